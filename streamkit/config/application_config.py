"""The settings of an application, joined from all their sources: files, environment variables and options."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import cast

from streamkit.config.settings import (
    ALIASES,
    EMBEDDED,
    EMBEDDED_STATE,
    OPTIMIZATIONS,
    REFUSED,
    SETTINGS,
    TOPIC_SETTINGS,
    ApplicationSettings,
    ConsumerSetting,
    RegistrySettings,
    Setting,
    SettingValue,
    T,
    default_of,
)
from streamkit.config.values import MASK, PREFIXES, TAG_PREFIX, TOPIC_PREFIX, as_text, check, convert, is_secret, split
from streamkit.errors import ConfigError, Position, Problem, TopologyError, UsageError

EXACTLY_ONCE = "exactly_once_v2"
STREAMS = "streams"
"""The value of group.protocol with which a coordinator of brokers assigns tasks."""
_SET_ON_GROUPS = {
    name: f"with group.protocol {STREAMS} it is {instead} of the group, which kafka-configs.sh sets"
    for name, instead in {
        "num.standby.replicas": "streams.num.standby.replicas",
        "max.warmup.replicas": "streams.num.warmup.replicas",
        "acceptable.recovery.lag": "streams.acceptable.recovery.lag",
        "rack.aware.assignment.tags": "streams.rack.aware.assignment.tags",
    }.items()
}
EOS_COMMIT_INTERVAL_MS = 100
TRANSACTION_TIMEOUT_MS = 10_000
ROLES = {
    "common": ("",),
    "consumer": ("", "consumer."),
    "main": ("", "consumer.", "main.consumer."),
    "restore": ("", "consumer.", "restore.consumer."),
    "global": ("", "consumer.", "global.consumer."),
    "producer": ("", "producer."),
    "admin": ("", "admin."),
}
"""The prefixes of a role's settings; later ones win (StreamsConfig.getMainConsumerConfigs, getRestoreConsumerConfigs)."""
_CONSUMERS = ("consumer", "main", "restore", "global")
_USER_INFO = re.compile(r"(://)[^/@,]*@")


class Config(ApplicationSettings, RegistrySettings):
    """The settings of one application; immutable, picklable, secrets masked in `repr` and `describe`.

    `config.num_stream_threads` is the value of `num.stream.threads`, the default if nothing is set.
    """

    def __init__(
        self,
        application: str,
        file: Mapping[str, object] | None = None,
        *,
        overrides: Mapping[str, object] | Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
        env_file: Mapping[str, str] | None = None,
        folder: str = "",
    ):
        """Join the sources: overrides (`--set`) over environment over env_file over file over the defaults.

        overrides: a mapping, or texts `NAME=value`; environment, env_file: variables, of which those named STREAMKIT_…
        count; folder: the file's folder, in which the embedded log is kept. Raises UsageError for a malformed override,
        UnknownSettingError and ConfigError for the settings.
        """
        self.application = application
        self._folder = folder
        self._values: dict[str, SettingValue] = {}
        self._origins: dict[str, str] = {}
        from_file, unknown_in_file = from_environment(env_file or {})
        from_process, unknown = from_environment(environment or {})
        self._unknown = tuple(dict.fromkeys([*unknown_in_file, *unknown]))
        self._add_source("file", file or {})
        self._add_source("--env-file", from_file)
        self._add_source("environment", from_process)
        self._add_source("--set", overrides if isinstance(overrides, Mapping) else _pairs(overrides))
        self._check_transactions()

    def _check_transactions(self) -> None:
        """Raise ConfigError if brokers would abort each transaction before its commit, as Java's StreamsConfig does."""
        if not self.exactly_once or self.embedded:
            return
        interval, longest = self.commit_interval_ms, _transaction_timeout(self.client("producer"))
        if interval > longest:
            default = ", the default" if longest == TRANSACTION_TIMEOUT_MS else ""
            raise ConfigError(
                f"commit.interval.ms is {interval}, and transaction.timeout.ms of the producer {longest}{default}: with "
                f"{EXACTLY_ONCE} brokers would abort each transaction before its commit; set commit.interval.ms to at most "
                f"{longest}, or producer.transaction.timeout.ms to {interval} or more"
            )

    def _add_source(self, origin: str, values: Mapping[str, object]) -> None:
        # Deprecated names go first, so that the present one wins within one source.
        for name in sorted(values, key=lambda name: name not in ALIASES):
            present = ALIASES.get(name, name)
            try:
                self._values[present] = check(name, values[name])
            except ConfigError as error:
                raise type(error)(str(error) if origin == "file" else f"{origin}: {error}") from error
            self._origins[present] = origin

    # -- Settings of Kafka Streams ---------------------------------------------------------------------------------

    def value(self, setting: Setting[T]) -> T:
        """Return the value of a setting as its type, the default if it is not set. Raises ConfigError."""
        if isinstance(setting, ConsumerSetting):
            names = (f"{prefix}{setting.name}" for prefix in reversed(ROLES["main"]))
            written = next((self._values[name] for name in names if name in self._values), "")
            return setting.default if written == "" else cast("T", convert(setting, written))
        return cast("T", self._values[setting.name] if setting.name in self._values else self._default(setting))

    def __getitem__(self, name: str) -> SettingValue:
        """Return a setting by a name that is known only at run time. Raises ConfigError when there is none of that name."""
        present = ALIASES.get(name, name)
        if present not in SETTINGS:
            raise ConfigError(f"There is no setting {name!r} of Kafka Streams")
        return self.value(SETTINGS[present])

    def _default(self, setting: Setting[SettingValue]) -> SettingValue:
        if setting.name == "commit.interval.ms" and self.exactly_once:
            return EOS_COMMIT_INTERVAL_MS
        if setting.name == "state.dir" and self.embedded:
            # The log itself is below it, and must not be among temporary files.
            return os.path.join(self._folder, EMBEDDED_STATE)
        return default_of(setting)

    def with_setting(self, name: str, value: object, origin: str) -> Config:
        """Return a copy with one more setting, from `origin`. Raises ConfigError."""
        changed = copy(self)
        changed._values, changed._origins = dict(self._values), dict(self._origins)
        changed._values[name], changed._origins[name] = check(name, value), origin
        return changed

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each variable that begins with STREAMKIT_ but is not a setting, and for each setting without effect or with a lowered value."""
        unknown = (f"{name} is no setting of streamkit" for name in self._unknown)
        without = (f"{name} has no effect: {reason}" for name, reason in self.without_effect().items())
        return (*unknown, *without, *self._lowered())

    def _lowered(self) -> Iterator[str]:
        """Yield a line for each time-out that is set to more than a transactional producer can have."""
        if not self.exactly_once or self.embedded:
            return
        used = self.client("producer")
        for name, value in self._values.items():
            prefix, rest = split(name)
            limit = used.get(_LIMITED.get(rest, ""), "")
            if prefix in ROLES["producer"] and limit and str(value).isdecimal() and int(str(value)) > int(limit):
                yield (
                    f"{name} is {limit} for the producer, not {value}: with {EXACTLY_ONCE} librdkafka limits it by "
                    "transaction.timeout.ms"
                )

    def without_effect(self) -> dict[str, str]:
        """Return, for each setting that has no effect but differs from its default, the reason, by name."""
        brokers = _SET_ON_GROUPS if self.group_protocol == STREAMS and not self.embedded else {}
        return {
            name: reason
            for name, value in self._values.items()
            if name in SETTINGS
            and (reason := SETTINGS[name].no_effect or brokers.get(name))
            and value != default_of(SETTINGS[name])
        }

    def origin(self, name: str) -> str:
        """Return where a setting comes from: "--set", "environment", "--env-file", "file" or "default"."""
        return self._origins.get(ALIASES.get(name, name), "default")

    @property
    def exactly_once(self) -> bool:
        """Whether processing.guarantee is exactly_once_v2."""
        return self.processing_guarantee == EXACTLY_ONCE

    def read_committed(self, role: str = "main") -> bool:
        """Whether consumers of a role skip open and aborted transactions; by default they do not, as in Java's clients."""
        return self.client(role).get("isolation.level") == "read_committed"

    @property
    def embedded(self) -> bool:
        """Whether the built-in log is used in place of brokers."""
        servers = self.bootstrap_servers
        return (
            len(servers) == 1
            and servers[0].partition(":")[0] == EMBEDDED
            and not servers[0].rpartition(":")[2].isdigit()
        )

    @property
    def optimizations(self) -> frozenset[str]:
        """The optimizations that are on (StreamsConfig.verifyTopologyOptimizationConfigs)."""
        chosen = self.topology_optimization
        return frozenset(OPTIMIZATIONS) if "all" in chosen else frozenset(chosen) - {"none"}

    @property
    def dsl_in_memory(self) -> bool:
        """Whether stores of the DSL that name no type are in memory (TopologyConfig.resolveDslStoreSuppliers)."""
        if self.origin("dsl.store.suppliers.class") != "default":
            return self.supplied_in_memory
        return self.default_dsl_store == "in_memory"

    @property
    def supplied_in_memory(self) -> bool:
        """The same for stores that depend on dsl.store.suppliers.class alone (SubscriptionStoreFactory)."""
        return self.dsl_store_suppliers_class == "InMemoryDslStoreSuppliers"

    @property
    def queries_committed(self) -> bool:
        """Whether queries that do not say otherwise read what the last commit has."""
        return self.default_interactive_query_isolation_level == "READ_COMMITTED"

    @property
    def uncommitted_bytes(self) -> int | None:
        """How many bytes of uncommitted writes bring a commit forward; None: no number (KafkaStreams.maxUncommittedBytesPerThread)."""
        limit = self.statestore_uncommitted_max_bytes
        return limit if self.enable_transactional_statestores and limit > 0 else None

    @property
    def keeps_commits(self) -> bool:
        """Whether stores in memory keep what their last commit had, as those on disk always do."""
        return self.enable_transactional_statestores or self.queries_committed

    @property
    def client_tags(self) -> dict[str, str]:
        """The tags of this instance by key (`client.tag.KEY`)."""
        return self._below(TAG_PREFIX)

    def topic_defaults(self) -> dict[str, str]:
        """Return the settings of internal topics (`topic.NAME`) by name."""
        return self._below(TOPIC_PREFIX)

    def _below(self, prefix: str) -> dict[str, str]:
        return {
            name.removeprefix(prefix): str(value) for name, value in self._values.items() if name.startswith(prefix)
        }

    # -- Settings of the clients -----------------------------------------------------------------------------------

    def client(self, role: str) -> dict[str, str]:
        """Return librdkafka's configuration for a role.

        role: common, consumer, main, restore, global, producer or admin. Ids (group.id, client.id, transactional.id) and
        the partitioner are the transport's own. Raises ConfigError for another role.
        """
        from streamkit.config import clients

        if role not in ROLES:
            raise ConfigError(f"There is no client of the role {role!r}; known are {', '.join(ROLES)}")
        kind = "consumer" if role in _CONSUMERS else role
        settings = {"bootstrap.servers": ",".join(self.bootstrap_servers), **self._client_defaults(kind)}
        for prefix in ROLES[role]:
            for name, value in self._values.items():
                own, rest = split(name)
                if own != prefix or name in SETTINGS or name.startswith((TOPIC_PREFIX, TAG_PREFIX)):
                    continue
                roles = clients.roles_of(rest)
                if kind in roles or (kind == "common" and len(roles) == 3):
                    settings.update(clients.translate(rest, as_text(name, value)))
        settings.update(self._client_requirements(kind))
        if kind == "producer" and self.exactly_once:
            _clamp(settings)
        return settings

    @property
    def max_request_size(self) -> int | None:
        """The bytes that a record may have (`max.request.size`), if they are set."""
        size = self.client("producer").get("message.max.bytes")
        return None if size is None else int(size)

    def _client_defaults(self, kind: str) -> dict[str, str]:
        """Return the clients' settings whose defaults are Kafka Streams' own (StreamsConfig.PRODUCER_EOS_OVERRIDES)."""
        if kind == "producer" and self.exactly_once:
            return {"transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS)}
        return {}

    def _client_requirements(self, kind: str) -> dict[str, str]:
        """Return the clients' settings that the user can't change (StreamsConfig.checkIfUnexpectedUserSpecifiedClientConfig)."""
        if kind == "consumer":
            isolation = {"isolation.level": "read_committed"} if self.exactly_once else {}
            return {"enable.auto.commit": "false", "enable.auto.offset.store": "false", **isolation}
        if kind == "producer" and self.exactly_once:
            return {"enable.idempotence": "true"}
        return {}

    # -- Showing ---------------------------------------------------------------------------------------------------

    def describe(self) -> list[tuple[str, str, str]]:
        """Return a row of name, value as text and origin for every setting; secrets are masked."""
        names = sorted({*SETTINGS, *self._values} - set(ALIASES))
        return [
            (name, _text(name, self[name] if name in SETTINGS else self._values[name]), self.origin(name))
            for name in names
        ]

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name}={_text(name, value)}" for name, value in sorted(self._values.items()))
        return f"Config({self.application!r}: {chosen})"


_LIMITED = {
    "delivery.timeout.ms": "delivery.timeout.ms",
    "message.timeout.ms": "message.timeout.ms",
    "socket.timeout.ms": "socket.timeout.ms",
    "request.timeout.ms": "socket.timeout.ms",
}
"""The settings of librdkafka that `_clamp` limits, by the names that they are derived from."""


def _transaction_timeout(settings: Mapping[str, str]) -> int:
    text = settings["transaction.timeout.ms"]
    if not text.isdecimal():
        raise ConfigError(f"transaction.timeout.ms must be a whole number, not {text!r}")
    return int(text)


def _clamp(settings: dict[str, str]) -> None:
    """Limit a transactional producer's timeouts to that of its transaction; librdkafka requires it, Java does not."""
    longest = _transaction_timeout(settings)
    for name in set(_LIMITED.values()):
        limit = longest + 100 if name == "socket.timeout.ms" else longest
        value = settings.get(name, "")
        if value.isdecimal() and int(value) > limit:
            settings[name] = str(limit)


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return the settings of texts `NAME=value`. Raises UsageError for another form."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--set {text.split('=')[0]}: expected NAME=value")
        pairs[name.strip()] = value
    return pairs


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if is_secret(name) and value != "":
        return MASK
    # An address may hold credentials: http://user:password@host.
    return _USER_INFO.sub(rf"\1{MASK}@", as_text(name, value)) if name.endswith(".url") else as_text(name, value)


assert set(PREFIXES) == {prefix for prefixes in ROLES.values() for prefix in prefixes if prefix}


# Settings from environment variables: `STREAMKIT_` and the name in capitals, `_` for every `.` and `-`.

PREFIX = "STREAMKIT_"
OPTIONS = frozenset(
    {
        "STREAMKIT_HTTP_TOKEN",
        "STREAMKIT_LIFELINE",
        "STREAMKIT_LOG_FORMAT",
        "STREAMKIT_LOG_LEVEL",
        "STREAMKIT_NATIVE",
        "STREAMKIT_SETTINGS",
    }
)
"""Variables that are options of commands and of the process, not settings."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def variable(name: str) -> str:
    """Return the environment variable of a setting.

    >>> variable("num.stream.threads")
    'STREAMKIT_NUM_STREAM_THREADS'
    """
    return PREFIX + name.replace(".", "_").replace("-", "_").upper()


def from_environment(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the settings by name, and the variables that begin with STREAMKIT_ but are not settings."""
    values: dict[str, str] = {}
    unknown = []
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in OPTIONS:
            continue
        setting = _setting(name)
        if setting is None:
            unknown.append(name)
        else:
            values[setting] = environment[name]
    return values, unknown


def _setting(name: str) -> str | None:
    """Return the setting of a variable, or None."""
    for setting in (*SETTINGS, *ALIASES, *REFUSED):
        if variable(setting) == name:
            return setting
    from streamkit.config import clients

    for prefix in ("", *PREFIXES):
        if name.startswith(variable(prefix)):
            rest = name.removeprefix(variable(prefix))
            for setting in (*clients.KNOWN, *clients.REFUSED):
                if variable(setting).removeprefix(PREFIX) == rest.removeprefix(PREFIX):
                    return prefix + setting
    for setting in TOPIC_SETTINGS:
        if variable(TOPIC_PREFIX + setting) == name:
            return TOPIC_PREFIX + setting
    if name.startswith(variable(TAG_PREFIX)):
        return TAG_PREFIX + name.removeprefix(variable(TAG_PREFIX)).lower()
    return None


def read_env_file(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the variables of a file of `NAME=value` lines; `#` begins a comment, `export` and quotes are allowed.

    Raises UsageError if it can't be read, TopologyError with all malformed lines.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"{os.fspath(path)}: {getattr(error, 'strerror', None) or error}") from error
    variables, problems = {}, list[Problem]()
    for number, line in enumerate(lines, 1):
        line = line.strip().removeprefix("export ").strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not _NAME.fullmatch(name.strip()):
            problems.append(Problem(Position(os.fspath(path), number, 1), "expected NAME=value"))
        variables[name.strip()] = _unquoted(value.strip())
    if problems:
        raise TopologyError(problems)
    return variables


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value.split(" #", 1)[0].rstrip()


_PROPERTY = re.compile(r"([^=:\s]+)\s*[=:]?\s*(.*)")


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the settings of a properties file, as Kafka's tools take it (java.util.Properties, without its escapes).

    `#` and `!` begin comments, a `\\` at the end of a line continues it. Raises UsageError when it can't be read.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, ValueError) as error:
        raise UsageError(f"{os.fspath(path)}: {getattr(error, 'strerror', None) or error}") from error
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    matches = (_PROPERTY.fullmatch(line.strip()) for line in lines if not line.lstrip().startswith(("#", "!")))
    return {match[1]: match[2] for match in matches if match}
