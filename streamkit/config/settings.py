"""Every setting of Kafka Streams and of topics: its name, type, default and meaning (StreamsConfig, TopicConfig)."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar, overload

from streamkit import durations
from streamkit.errors import ConfigError

SettingValue: TypeAlias = bool | int | str | tuple[str, ...] | None
"""The value of a setting; None if it has none."""

LONG = 2**63 - 1
INT = 2**31 - 1


T = TypeVar("T", bound=SettingValue)
T_co = TypeVar("T_co", bound=SettingValue, covariant=True)


class Setting(Generic[T_co]):
    """The declaration of a setting, an attribute of a class of settings: on an object it is the value, of its type.

    kind: "int", "bool", "text", "list" or "handler"; default: None if there is none; words: the texts allowed, if not all;
    minimum, maximum: bounds of numbers; longest: how many entries a list may have; old: deprecated names, over which the
    present one wins; classes: Java's handlers that mean `fail` and `continue`; no_effect: why it changes nothing, for
    settings that are accepted since files of Java programs have them.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        default: T_co,
        meaning: str,
        *,
        minimum: int = -LONG - 1,
        maximum: int = LONG,
        words: tuple[str, ...] = (),
        longest: int | None = None,
        old: tuple[str, ...] = (),
        classes: tuple[str, ...] = (),
        no_effect: str | None = None,
    ):
        self.name = name
        self.kind = kind
        self.default = default
        self.meaning = meaning
        self.minimum = minimum
        self.maximum = maximum
        self.words = words
        self.longest = longest
        self.old = old
        self.classes = classes
        self.no_effect = no_effect

    @overload
    def __get__(self, settings: None, owner: type[SettingValues]) -> Setting[T_co]: ...
    @overload
    def __get__(self, settings: SettingValues, owner: type[SettingValues]) -> T_co: ...
    def __get__(self, settings: SettingValues | None, owner: type[SettingValues]) -> Setting[T_co] | T_co:
        return self if settings is None else settings.value(self)

    @property
    def description(self) -> str:
        """The meaning, with the reason if the setting is without effect."""
        return self.meaning if self.no_effect is None else f"{self.meaning} Without effect: {self.no_effect}."


class ConsumerSetting(Setting[T_co]):
    """A setting of the main consumer that the threads follow too; `default` is that of the threads."""


class SettingValues(ABC):
    """An object whose class declares settings."""

    @abstractmethod
    def value(self, setting: Setting[T]) -> T:
        """Return the value of a setting as its type, the default if it is not set. Raises ConfigError."""


_REUSE, _MERGE, _SELF = "reuse.ktable.source.topics", "merge.repartition.topics", "single.store.self.join"
OPTIMIZATIONS = (_REUSE, _MERGE, _SELF)
EMBEDDED = "embedded"
EMBEDDED_STATE = ".streamkit"
"""The default of state.dir beside the file if the embedded log is used."""
DSL_STORES = ("RocksDBDslStoreSuppliers", "InMemoryDslStoreSuppliers")
"""Classes of BuiltInDslStoreSuppliers."""
UPGRADES = tuple("2.4 2.5 2.6 2.7 2.8 3.0 3.1 3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9 4.0 4.1 4.2 4.3".split())  # noqa: SIM905
"""The versions that a rolling upgrade may come from (UpgradeFromValues)."""

_NO_SAMPLES = "rates are of the last seconds, and metrics are counted whether they are read or not"
_NO_RACKS = "the brokers' racks do not count; rack.aware.assignment.tags spreads standbys"


# fmt: off
class ApplicationSettings(SettingValues):
    """Settings of Kafka Streams, and of streamkit itself (StreamsConfig)."""

    acceptable_recovery_lag = Setting("acceptable.recovery.lag", "int", 10_000, "Records that a task may lag behind and still count as caught up.", minimum=0)
    allow_os_group_write_access = Setting("allow.os.group.write.access", "bool", False, "Whether the directories of state may be written by the group of their owner.")
    application_server = Setting("application.server", "text", "", "The host:port of this instance, to which the other instances send queries.")
    bootstrap_servers = Setting[tuple[str, ...]]("bootstrap.servers", "list", (EMBEDDED,), "Brokers as host:port, or `embedded`: the built-in log on disk.")
    buffered_records_per_partition = Setting("buffered.records.per.partition", "int", 1000, "Records buffered per partition before it is paused.", minimum=1, maximum=INT)
    built_in_metrics_version = Setting("built.in.metrics.version", "text", "latest", "The version of the built-in metrics.", words=("latest",))
    client_id = Setting("client.id", "text", "", "The beginning of the clients' ids; the application and a UUID where empty.")
    commit_interval_ms = Setting("commit.interval.ms", "int", 30_000, "Milliseconds between commits; 100 by default with exactly_once_v2.", minimum=0)
    default_dsl_store = Setting("default.dsl.store", "text", "rocksDB", "Where stores of the DSL lie that do not name a type: on disk or in memory.", words=("rocksDB", "in_memory"))
    default_interactive_query_isolation_level = Setting("default.interactive.query.isolation.level", "text", "READ_UNCOMMITTED", "What queries read while a commit is due: all writes, or those of the last commit.", words=("READ_UNCOMMITTED", "READ_COMMITTED"))
    dsl_store_format = Setting("dsl.store.format", "text", "DEFAULT", "The format of stores of the DSL: with HEADERS they also keep the headers of rows (KIP-1271).", words=("DEFAULT", "HEADERS"))
    dsl_store_suppliers_class = Setting("dsl.store.suppliers.class", "text", "RocksDBDslStoreSuppliers", "The same by Java's classes, and for the rows of foreign-key joins too; where it is set, default.dsl.store does not count.", words=DSL_STORES)
    deserialization_exception_handler = Setting("deserialization.exception.handler", "handler", "fail", "What happens to records that do not decode.", old=("default.deserialization.exception.handler",), classes=("LogAndFailExceptionHandler", "LogAndContinueExceptionHandler"))
    enable_transactional_statestores = Setting("enable.transactional.statestores", "bool", False, "Whether stores in memory keep what their last commit had, and uncommitted writes may bring a commit forward. Stores on disk change with a commit only in any case.")
    errors_dead_letter_queue_topic_name = Setting[str | None]("errors.dead.letter.queue.topic.name", "text", None, "The topic that records which fail are written to.")
    expression_max_bytes = Setting("expression.max.bytes", "int", 67_108_864, "Bytes of all values that the expressions of all steps may make of one record. Streamkit's own.", minimum=65_536)
    expression_max_steps = Setting("expression.max.steps", "int", 50_000_000, "Elementary steps that the expressions of all steps may take for one record. Streamkit's own.", minimum=10_000)
    group_protocol = Setting("group.protocol", "text", "classic", "Who assigns tasks: `classic`, the leader of the group, or `streams`, its coordinator (KIP-1071).", words=("classic", "streams"))
    http_idle_timeout_ms = Setting("http.idle.timeout.ms", "int", 10_000, "Milliseconds that a client of `run --http` may take for the head of a request, for its body, to take part of an answer, and between requests. Streamkit's own.", minimum=1)
    http_max_connections = Setting("http.max.connections", "int", 100, "Connections that `run --http` takes at once, at most a quarter of the files that the process may open; more are answered by 503. Streamkit's own.", minimum=1, maximum=INT)
    http_peers = Setting[tuple[str, ...]]("http.peers", "list", (), "Other instances to which requests, with their token, may be sent: networks (10.0.0.0/8), host names, or all names below one (*.example.org). Those of the same host always may. Streamkit's own.")
    log_record_contents = Setting("log.record.contents", "text", "full", "What log lines, errors, reasons of dead letters and traces show of a record that fails: key and value, the key, or neither. Streamkit's own.", words=("full", "keys", "none"))
    log_summary_interval_ms = Setting("log.summary.interval.ms", "int", 120_000, "Milliseconds between summaries in the log; below 0: none.")
    max_task_idle_ms = Setting("max.task.idle.ms", "int", 0, "Milliseconds that a task waits for its empty partitions; -1: never.", minimum=-1)
    max_warmup_replicas = Setting("max.warmup.replicas", "int", 2, "Additional replicas at a time that warm up to take over tasks.", minimum=1, maximum=INT)
    metadata_cluster_check_enable = Setting("metadata.cluster.check.enable", "bool", True, "Whether brokers are told which cluster and node a client expects.", no_effect="librdkafka does not send them")
    metrics_num_samples = Setting("metrics.num.samples", "int", 2, "Samples kept to compute metrics.", minimum=1, maximum=INT, no_effect=_NO_SAMPLES)
    metrics_recording_level = Setting("metrics.recording.level", "text", "INFO", "The least important metrics that are recorded.", words=("INFO", "DEBUG", "TRACE"), no_effect=_NO_SAMPLES)
    metrics_sample_window_ms = Setting("metrics.sample.window.ms", "int", 30_000, "Milliseconds over which a sample of a metric is taken.", minimum=0, no_effect=_NO_SAMPLES)
    num_standby_replicas = Setting("num.standby.replicas", "int", 0, "Standby copies of every task.", minimum=0, maximum=INT)
    num_stream_threads = Setting("num.stream.threads", "int", 1, "Threads that process records.", minimum=1, maximum=INT)
    otel_enabled = Setting("otel.enabled", "bool", False, "Whether traces and metrics are exported by OpenTelemetry (the extra otel; endpoint and sampler by OTEL_* variables). Streamkit's own.")
    poll_ms = Setting("poll.ms", "int", 100, "Milliseconds to wait for input.", minimum=0)
    probing_rebalance_interval_ms = Setting("probing.rebalance.interval.ms", "int", 600_000, "Milliseconds between rebalances that look for warmed-up tasks.", minimum=60_000)
    processing_exception_handler = Setting("processing.exception.handler", "handler", "fail", "What happens to records at which a step fails.", classes=("LogAndFailProcessingExceptionHandler", "LogAndContinueProcessingExceptionHandler"))
    processing_exception_handler_global_enabled = Setting("processing.exception.handler.global.enabled", "bool", False, "Whether processing.exception.handler holds for global stores too.")
    processing_guarantee = Setting("processing.guarantee", "text", "at_least_once", "How often a record takes effect.", words=("at_least_once", "exactly_once_v2"))
    production_exception_handler = Setting("production.exception.handler", "handler", "fail", "What happens to records that can't be encoded or written.", old=("default.production.exception.handler",), classes=("DefaultProductionExceptionHandler",))
    rack_aware_assignment_non_overlap_cost = Setting[int | None]("rack.aware.assignment.non_overlap_cost", "int", None, "The cost of moving tasks.", minimum=0, maximum=INT, no_effect=_NO_RACKS)
    rack_aware_assignment_strategy = Setting("rack.aware.assignment.strategy", "text", "none", "How racks count when tasks are assigned.", words=("none", "min_traffic", "balance_subtopology"), no_effect=_NO_RACKS)
    rack_aware_assignment_tags = Setting[tuple[str, ...]]("rack.aware.assignment.tags", "list", (), "Keys of client tags by which standbys are spread.", longest=5)
    rack_aware_assignment_traffic_cost = Setting[int | None]("rack.aware.assignment.traffic_cost", "int", None, "The cost of traffic between racks.", minimum=0, maximum=INT, no_effect=_NO_RACKS)
    repartition_purge_interval_ms = Setting("repartition.purge.interval.ms", "int", 30_000, "Milliseconds between purges of processed repartition records.", minimum=0)
    replication_factor = Setting("replication.factor", "int", -1, "Replicas of internal topics; -1: the broker's default.", minimum=-1, maximum=32_767)
    state_cleanup_delay_ms = Setting("state.cleanup.delay.ms", "int", 600_000, "Milliseconds until the state of a task that moved away is deleted.", minimum=0)
    state_cleanup_dir_max_age_ms = Setting("state.cleanup.dir.max.age.ms", "int", -1, "Milliseconds after which unchanged state is deleted at the start; -1: never.", minimum=-1)
    state_dir = Setting("state.dir", "text", "", "The directory of state, and of the embedded log; by default `.streamkit` beside the file with the embedded log, else `kafka-streams` among the temporary files, as in Java.")
    state_engine = Setting[str | None]("state.engine", "text", None, "What keeps persistent stores on disk; by default what wrote a directory, and rocksdb in a new one. Streamkit's own.", words=("leveldb", "rocksdb"))
    statestore_cache_max_bytes = Setting("statestore.cache.max.bytes", "int", 10_485_760, "Bytes of all record caches together.", minimum=0, old=("cache.max.bytes.buffering",))
    statestore_uncommitted_max_bytes = Setting("statestore.uncommitted.max.bytes", "int", 67_108_864, "With enable.transactional.statestores: bytes of uncommitted writes of all stores that bring the next commit forward; -1: none.", minimum=-1)
    task_timeout_ms = Setting("task.timeout.ms", "int", 300_000, "Milliseconds that a task may fail and be tried again.", minimum=0)
    topology_description_push_enabled = Setting("topology.description.push.enabled", "bool", True, "Whether brokers that ask a streams group for the description of its topology get it.")
    topology_optimization = Setting[tuple[str, ...]]("topology.optimization", "list", ("none",), "Optimizations: none, all, or some of them.", words=("none", "all", *OPTIMIZATIONS))
    upgrade_from = Setting[str | None]("upgrade.from", "text", None, "The version that a rolling upgrade comes from.", words=UPGRADES, no_effect="formats are those of Kafka Streams 4.4, whatever the version before")
    windowstore_changelog_additional_retention_ms = Setting("windowstore.changelog.additional.retention.ms", "int", 86_400_000, "Milliseconds that changelogs of windows are kept beyond their retention.", minimum=0)
    emit_interval_ms_of_windows = Setting("__emit.interval.ms.kstreams.windowed.aggregation__", "int", 1000, "Milliseconds between checks for windows to emit on close.", minimum=0)
    emit_interval_ms_of_outer_joins = Setting("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", "int", 1000, "Milliseconds between checks for rows without a partner.", minimum=0)

    # What consumers and threads have in common. Each has its place in `clients` too, as all settings of clients.
    auto_offset_reset = ConsumerSetting("auto.offset.reset", "text", "earliest", "Where reading begins without a committed offset.")
    group_instance_id = ConsumerSetting[str | None]("group.instance.id", "text", None, "The id of a static member.")
    max_poll_interval_ms = ConsumerSetting("max.poll.interval.ms", "int", 300_000, "Milliseconds between polls after which a member is removed.", minimum=1)
    # With Java's 1000 Python is slower by a fifth.
    max_poll_records = ConsumerSetting("max.poll.records", "int", 5000, "Records that a thread takes at once.", minimum=1)
    metadata_max_age_ms = ConsumerSetting("metadata.max.age.ms", "int", 300_000, "Milliseconds after which topics are looked up again.", minimum=0)
    session_timeout_ms = ConsumerSetting("session.timeout.ms", "int", 45_000, "Milliseconds without a heartbeat after which a member is removed.", minimum=1)


_STRATEGIES = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
class RegistrySettings(SettingValues):
    """Settings of the schema registry, by the names of Confluent's serializers for Java (AbstractKafkaSchemaSerDeConfig)."""

    auto_register_schemas = Setting("auto.register.schemas", "bool", True, "Whether schemas are registered when they are first written.")
    basic_auth_credentials_source = Setting[str | None]("basic.auth.credentials.source", "text", None, "Where the registry's user stands: in its URL, or in basic.auth.user.info.", words=("URL", "USER_INFO"))
    basic_auth_user_info = Setting[str | None]("basic.auth.user.info", "text", None, "The schema registry's user, as USER:PASSWORD.", old=("schema.registry.basic.auth.user.info",))
    bearer_auth_client_id = Setting[str | None]("bearer.auth.client.id", "text", None, "The client that OAuth gives a token for the schema registry.")
    bearer_auth_client_secret = Setting[str | None]("bearer.auth.client.secret", "text", None, "Its secret.")
    bearer_auth_credentials_source = Setting[str | None]("bearer.auth.credentials.source", "text", None, "Where the registry's bearer token comes from.", words=("STATIC_TOKEN", "OAUTHBEARER", "OAUTHBEARER_AZURE_IMDS"))
    bearer_auth_identity_pool_id = Setting[str | None]("bearer.auth.identity.pool.id", "text", None, "The identity pool of a Confluent Cloud registry.")
    bearer_auth_issuer_endpoint_url = Setting[str | None]("bearer.auth.issuer.endpoint.url", "text", None, "Where OAuth gives tokens for the schema registry.")
    bearer_auth_logical_cluster = Setting[str | None]("bearer.auth.logical.cluster", "text", None, "The logical cluster of a Confluent Cloud registry.")
    bearer_auth_scope = Setting[str | None]("bearer.auth.scope", "text", None, "The scope of those tokens.")
    bearer_auth_token = Setting[str | None]("bearer.auth.token", "text", None, "A bearer token for the schema registry.")
    key_subject_name_strategy = Setting("key.subject.name.strategy", "text", "TopicNameStrategy", "The subject of a key's schema.", words=_STRATEGIES)
    latest_compatibility_strict = Setting("latest.compatibility.strict", "bool", True, "Whether use.latest.version checks that the schema fits the latest one.")
    normalize_schemas = Setting("normalize.schemas", "bool", False, "Whether the registry brings schemas into a normal form.")
    schema_registry_ssl_ca_location = Setting[str | None]("schema.registry.ssl.ca.location", "text", None, "A PEM file with the authorities that sign the registry's certificate.", old=("schema.registry.ssl.truststore.location",))
    schema_registry_ssl_certificate_location = Setting[str | None]("schema.registry.ssl.certificate.location", "text", None, "A PEM file with the certificate shown to the registry.")
    schema_registry_ssl_key_location = Setting[str | None]("schema.registry.ssl.key.location", "text", None, "A PEM file with its key.")
    schema_registry_ssl_key_password = Setting[str | None]("schema.registry.ssl.key.password", "text", None, "The password of that key.")
    schema_registry_url = Setting[tuple[str, ...]]("schema.registry.url", "list", (), "Confluent-compatible schema registries, tried in turn; empty: none.")
    use_latest_version = Setting("use.latest.version", "bool", False, "Whether records are written by the latest version of the subject.")
    value_subject_name_strategy = Setting("value.subject.name.strategy", "text", "TopicNameStrategy", "The subject of a value's schema.", words=_STRATEGIES)


# fmt: on
def _declared(*owners: type) -> Iterator[Setting[SettingValue]]:
    return (setting for owner in owners for setting in vars(owner).values() if isinstance(setting, Setting))


CONSUMER_SETTINGS = {
    setting.name: setting for setting in _declared(ApplicationSettings) if isinstance(setting, ConsumerSetting)
}
SETTINGS = {
    setting.name: setting
    for setting in _declared(ApplicationSettings, RegistrySettings)
    if setting.name not in CONSUMER_SETTINGS
}
ALIASES = {old: setting.name for setting in SETTINGS.values() for old in setting.old}
"""Deprecated names, with the present ones."""

_SERDES = "'defaults: {key: SERDE, value: SERDE}' of the file"
_IN_JAVA = "it names a Java class, which Python can't load"
REFUSED = {
    "application.id": "write 'application:' at the top of the file",
    "default.key.serde": f"write {_SERDES}",
    "default.value.serde": f"write {_SERDES}",
    "default.list.key.serde.inner": f"write {_SERDES}",
    "default.list.key.serde.type": f"write {_SERDES}",
    "default.list.value.serde.inner": f"write {_SERDES}",
    "default.list.value.serde.type": f"write {_SERDES}",
    "windowed.inner.class.serde": "write the serde {windowed: SERDE, size: DURATION}",
    "window.size.ms": "write the serde {windowed: SERDE, size: DURATION}",
    "default.timestamp.extractor": "write 'timestamp:' in the entry of 'topics'",
    "default.client.supplier": f"{_IN_JAVA}; bootstrap.servers chooses the log",
    "rocksdb.config.setter": f"{_IN_JAVA}; state.engine and statestore.cache.max.bytes are what stores offer",
    "processor.wrapper.class": f"{_IN_JAVA}; steps are what the file names",
    "task.assignor.class": f"{_IN_JAVA}; rack.aware.assignment.tags and num.standby.replicas are what it offers",
    "config.providers": "write ${NAME}, which reads the environment",
    "ensure.explicit.internal.resource.naming": "give steps a 'name' and a 'store' where names must be stable",
}
"""Settings of Kafka Streams that streamkit does not have, with what to write in their place."""


def default_of(setting: Setting[SettingValue]) -> SettingValue:
    """Return a setting's default; that of state.dir depends on the machine (java.io.tmpdir)."""
    if setting.name == "state.dir":
        return os.path.join(os.environ.get("TMPDIR") or "/tmp", "kafka-streams")
    return setting.default


# The settings of topics (TopicConfig), for `config` of a topic and for names that begin with `topic.`.

TOPIC_SETTINGS = frozenset(
    """
    cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    delete.retention.ms errors.deadletterqueue.group.enable file.delete.delay.ms flush.messages flush.ms
    follower.replication.throttled.replicas index.interval.bytes leader.replication.throttled.replicas
    local.retention.bytes local.retention.ms max.compaction.lag.ms max.decompressed.message.bytes
    max.message.bytes message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.type
    min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate remote.copy.lag.bytes
    remote.copy.lag.ms remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable
    retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms segment.ms
    unclean.leader.election.enable
    """.split()  # noqa: SIM905 - a list of names reads better as text
)
"""Settings of a topic in Kafka 4.4."""


# Where reading begins without a committed offset: the values of `auto.offset.reset` (AutoOffsetResetStrategy, KIP-1106).

POLICIES = ("earliest", "latest", "none")
BY_DURATION = "by_duration"


@dataclass(frozen=True)
class OffsetReset:
    """A reset policy: one of POLICIES, or BY_DURATION with how far back reading begins, in milliseconds."""

    policy: str = POLICIES[0]
    duration_ms: int = 0


def parse_reset(text: str) -> OffsetReset:
    """Return the policy of a text as the clients have it. Raises ConfigError.

    >>> parse_reset("by_duration:PT1H")
    OffsetReset(policy='by_duration', duration_ms=3600000)
    """
    if text in POLICIES:
        return OffsetReset(text)
    policy, colon, duration = text.partition(":")
    if policy == BY_DURATION and colon and duration[:1] in ("P", "p"):
        try:
            return OffsetReset(BY_DURATION, durations.parse(duration))
        except ConfigError as error:
            raise ConfigError(f"is {text!r}; its duration {error}") from error
    raise ConfigError(
        f"must be earliest, latest, none or {BY_DURATION}:PnDTnHnMn.nS such as by_duration:PT1H, not {text!r}"
    )
