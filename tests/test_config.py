"""Settings: their types, where they come from, and what the clients are given."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from streamkit.config import SETTINGS, Config, check, read_env_file
from streamkit.errors import ConfigError, TopologyError, UsageError


def test_nothing_set_gives_what_is_declared():
    config = Config("app")
    for name, setting in SETTINGS.items():
        if name != "state.dir":
            assert config[name] == setting.default
    assert Config("app", {"bootstrap.servers": "b:9092"}).state_dir.endswith("kafka-streams")
    assert config.max_poll_records == Config.max_poll_records.default
    assert config.optimizations == frozenset()
    assert config.embedded


@pytest.mark.parametrize("prefix", ["", "consumer.", "main.consumer."])
def test_threads_follow_settings_of_the_consumer(prefix):
    config = Config("app", {f"{prefix}max.poll.interval.ms": "7"})
    assert config.max_poll_interval_ms == 7
    with pytest.raises(ConfigError, match=f"^{prefix}max.poll.records must be a whole number, not 'x'$"):
        Config("app", {f"{prefix}max.poll.records": "x"})


def test_the_embedded_log_and_its_state_lie_beside_the_file(tmp_path):
    config = Config("app", folder=str(tmp_path))
    assert config.state_dir == str(tmp_path / ".streamkit")
    assert config.origin("state.dir") == "default"
    assert Config("app", {"bootstrap.servers": "embedded:/log"}, folder="a").state_dir == "a/.streamkit"
    assert Config("app", {"bootstrap.servers": "broker:9092"}, folder="a").state_dir.endswith("kafka-streams")
    assert Config("app", {"state.dir": "/state"}, folder="a").state_dir == "/state"


def test_exactly_once_changes_defaults():
    config = Config("app", {"processing.guarantee": "exactly_once_v2"})
    assert config.commit_interval_ms == 100
    assert config.client("main")["isolation.level"] == "read_committed"
    producer = config.client("producer")
    slow = {"processing.guarantee": "exactly_once_v2", "request.timeout.ms": 40_000}
    assert Config("app", slow).client("producer")["socket.timeout.ms"] == "10100"
    assert Config("app", slow).client("main")["socket.timeout.ms"] == "40000"
    assert (producer["enable.idempotence"], producer["transaction.timeout.ms"]) == ("true", "10000")


ON_KAFKA = {"processing.guarantee": "exactly_once_v2", "bootstrap.servers": "broker:9092"}


def test_a_transaction_lasts_until_its_commit():
    with pytest.raises(
        ConfigError,
        match=r"^commit.interval.ms is 30000, and transaction.timeout.ms of the producer 10000, the default: .* at most 10000, "
        r"or producer.transaction.timeout.ms to 30000 or more$",
    ):
        Config("app", ON_KAFKA | {"commit.interval.ms": 30_000})
    with pytest.raises(ConfigError, match=r"the producer 50:"):
        Config("app", ON_KAFKA | {"producer.transaction.timeout.ms": 50})
    with pytest.raises(ConfigError, match=r"^transaction.timeout.ms must be a whole number, not 'x'$"):
        Config("app", ON_KAFKA | {"producer.transaction.timeout.ms": "x"})
    Config("app", ON_KAFKA | {"commit.interval.ms": 10_000})
    Config("app", ON_KAFKA | {"commit.interval.ms": 30_000, "producer.transaction.timeout.ms": 30_000})
    # No broker aborts a transaction of the embedded log.
    Config("app", ON_KAFKA | {"commit.interval.ms": 30_000, "bootstrap.servers": "embedded"})
    Config("app", {"bootstrap.servers": "broker:9092", "commit.interval.ms": 30_000})


def test_a_time_out_that_is_lowered_is_a_warning():
    asked = {"producer.delivery.timeout.ms": 120_000, "request.timeout.ms": 40_000, "producer.linger.ms": 20_000}
    config = Config("app", ON_KAFKA | asked)
    assert [warning.partition(":")[0] for warning in config.warnings] == [
        "producer.delivery.timeout.ms is 10000 for the producer, not 120000",
        "request.timeout.ms is 10100 for the producer, not 40000",
    ]
    assert Config("app", {"bootstrap.servers": "broker:9092", **asked}).warnings == ()
    assert Config("app", ON_KAFKA | {"producer.delivery.timeout.ms": 10_000}).warnings == ()


def test_a_later_source_of_settings_wins():
    sources = {
        "file": {"num.stream.threads": 2, "poll.ms": 2, "commit.interval.ms": 2, "task.timeout.ms": 2},
        "env_file": {"STREAMKIT_POLL_MS": "3", "STREAMKIT_COMMIT_INTERVAL_MS": "3", "STREAMKIT_TASK_TIMEOUT_MS": "3"},
        "environment": {"STREAMKIT_COMMIT_INTERVAL_MS": "4", "STREAMKIT_TASK_TIMEOUT_MS": "4"},
        "overrides": ["task.timeout.ms=5"],
    }
    config = Config("app", **sources)
    names = ("num.stream.threads", "poll.ms", "commit.interval.ms", "task.timeout.ms", "max.task.idle.ms")
    assert [config[name] for name in names] == [2, 3, 4, 5, 0]
    assert [config.origin(name) for name in names] == ["file", "--env-file", "environment", "--set", "default"]


def test_deprecated_name_gives_way():
    config = Config("app", {"statestore.cache.max.bytes": 5, "cache.max.bytes.buffering": 7})
    assert config["statestore.cache.max.bytes"] == config["cache.max.bytes.buffering"] == 5
    assert Config("app", {"cache.max.bytes.buffering": 7})["statestore.cache.max.bytes"] == 7


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("none", frozenset()),
        ("all", {"reuse.ktable.source.topics", "merge.repartition.topics", "single.store.self.join"}),
        ("merge.repartition.topics, single.store.self.join", {"merge.repartition.topics", "single.store.self.join"}),
        (["reuse.ktable.source.topics"], {"reuse.ktable.source.topics"}),
    ],
)
def test_optimizations(value, expected):
    assert Config("app", {"topology.optimization": value}).optimizations == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("fail", "fail"),
        ("continue", "continue"),
        ("org.apache.kafka.streams.errors.LogAndContinueExceptionHandler", "continue"),
        ("LogAndFailExceptionHandler", "fail"),
    ],
)
def test_exception_handlers(value, expected):
    assert check("deserialization.exception.handler", value) == expected


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num.stream.thread", 1, "There is no setting 'num.stream.thread'; did you mean 'num.stream.threads'?"),
        ("consumer.fetch.max.byte", 1, "did you mean 'consumer.fetch.max.bytes'?"),
        ("num.stream.threads", 0, "num.stream.threads must be at least 1, not 0"),
        ("num.stream.threads", True, "num.stream.threads must be a whole number, not True"),
        ("num.stream.threads", "1_0", "must be a whole number"),
        ("commit.interval.ms", "30s", "must be a whole number, not '30s'; in milliseconds this is 30000"),
        ("bootstrap.servers", "kafka", "bootstrap.servers must be brokers as host:port, or embedded, not 'kafka'"),
        ("bootstrap.servers", "a:1,b:port", "must be brokers as host:port"),
        ("processing.guarantee", "exactly_once", "must be one of at_least_once, exactly_once_v2, not 'exactly_once'"),
        ("topology.optimization", "all,none", "none or all alone"),
        ("production.exception.handler", "com.acme.Handler", "must be one of fail, continue, Default"),
        ("application.id", "x", "write 'application:' at the top of the file"),
        ("default.key.serde", "x", "defaults: {key: SERDE"),
        ("main.consumer.auto.offset.reset", "newest", "must be earliest, latest, none or by_duration:PnDTnHnMn.nS"),
        ("auto.offset.reset", "by_duration:1h", "must be earliest, latest, none or by_duration:PnDTnHnMn.nS"),
        ("auto.offset.reset", "by_duration:PX", "its duration must be a duration such as"),
        ("restore.consumer.auto.offset.reset", "latest", "changelogs and global tables are read from their beginning"),
        ("producer.key.serializer", "x", "the serdes of 'topics' decide"),
        ("producer.fetch.max.bytes", 1, "fetch.max.bytes is a setting of consumer"),
        ("ssl.truststore.location", "a.jks", "write ssl.ca.location"),
        ("admin.bootstrap.servers", "x", "share bootstrap.servers"),
        ("plugin.library.paths", "x.so", "can't load native code"),
        ("topic.retention", 1, "There is no setting 'topic.retention' of topics"),
        ("dsl.store.format", "plain", "dsl.store.format must be one of DEFAULT, HEADERS"),
        ("default.interactive.query.isolation.level", "serial", "must be one of READ_UNCOMMITTED, READ_COMMITTED"),
        ("application.server", "example.org", "application.server must be host:port, not 'example.org'"),
        ("application.server", ":8080", "application.server must be host:port"),
        ("application.server", "example.org:80/path", "application.server must be host:port"),
        ("processor.wrapper.class", "com.acme.Wrapper", "steps are what the file names"),
        ("upgrade.from", "4.4", "upgrade.from must be one of 2.4, 2.5"),
        ("state.cleanup.dir.max.age.ms", -2, "must be at least -1"),
        ("producer.acks", "some", "producer.acks must be all, -1, 0 or 1"),
        ("sasl.jaas.config", "com.sun.Krb5LoginModule required;", "write sasl.kerberos.keytab"),
    ],
)
def test_mistakes(name, value, message):
    with pytest.raises(ConfigError) as caught:
        check(name, value)
    assert message in str(caught.value)


def test_client_settings_by_role():
    config = Config(
        "app",
        {
            "bootstrap.servers": "a:1, b:2",
            "security.protocol": "SASL_SSL",
            "fetch.max.bytes": 1,
            "consumer.fetch.max.bytes": 2,
            "restore.consumer.fetch.max.bytes": 3,
            "fetch.max.wait.ms": 9,
            "producer.buffer.memory": 33_554_432,
            "max.request.size": 5,
            "max.poll.records": 50,
            "queued.min.messages": 7,
            "topic.retention.ms": 4,
            "client.tag.zone": "z",
        },
    )
    assert config.client("common") == {"bootstrap.servers": "a:1,b:2", "security.protocol": "sasl_ssl"}
    assert config.client("main")["fetch.max.bytes"] == "2"
    assert config.client("restore")["fetch.max.bytes"] == "3"
    assert config.client("global")["fetch.wait.max.ms"] == "9"
    assert config.client("main")["queued.min.messages"] == "7"
    assert "fetch.max.bytes" not in config.client("admin")
    producer = config.client("producer")
    assert producer["queue.buffering.max.kbytes"] == "32768"
    assert producer["message.max.bytes"] == "5"
    assert config.max_poll_records == 50
    assert config.topic_defaults() == {"retention.ms": "4"}
    assert config.client_tags == {"zone": "z"}


def test_jaas_gives_user_and_password():
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    config = Config("app", {"sasl.jaas.config": f'{module} required username="me" password="a\\"b";'})
    common = config.client("common")
    assert (common["sasl.username"], common["sasl.password"]) == ("me", 'a"b')


def test_secrets_are_masked():
    config = Config(
        "app", {"sasl.password": "hunter2", "ssl.key.location": "k.pem"}, overrides={"ssl.key.password": "x9"}
    )
    shown = repr(config) + str(config.describe())
    assert "hunter2" not in shown
    assert "x9" not in shown
    assert "k.pem" in shown


def test_the_credentials_of_a_schema_registry_are_masked():
    settings = {
        "schema.registry.url": "https://ann:hunter2@one,https://two/x",
        "schema.registry.basic.auth.user.info": "ann:x9",
        "basic.auth.credentials.source": "USER_INFO",
        "bearer.auth.token": "x9",
        "value.subject.name.strategy": "io.confluent.kafka.serializers.subject.RecordNameStrategy",
    }
    config = Config("app", settings)
    assert config.schema_registry_url == ("https://ann:hunter2@one", "https://two/x")
    assert config.basic_auth_user_info == "ann:x9"
    assert config.value_subject_name_strategy == "RecordNameStrategy"
    shown = repr(config) + str(config.describe())
    assert "hunter2" not in shown
    assert "x9" not in shown
    assert "USER_INFO" in shown
    assert "https://********@one,https://two/x" in shown


def test_environment_names_of_clients_and_strange_ones():
    environment = {
        "STREAMKIT_MAIN_CONSUMER_SESSION_TIMEOUT_MS": "7000",
        "STREAMKIT_TOPIC_SEGMENT_MS": "5",
        "STREAMKIT_NUM_STREAM_THREDS": "2",
        "PATH": "x",
    }
    config = Config("app", environment=environment)
    assert config.client("main")["session.timeout.ms"] == "7000"
    assert config.topic_defaults() == {"segment.ms": "5"}
    assert config.warnings == ("STREAMKIT_NUM_STREAM_THREDS is no setting of streamkit",)


def test_mistake_names_its_source():
    with pytest.raises(ConfigError, match=r"^environment: poll\.ms must be a whole number"):
        Config("app", environment={"STREAMKIT_POLL_MS": "x"})
    with pytest.raises(UsageError, match="expected NAME=value"):
        Config("app", overrides=["poll.ms"])


def test_an_env_file_may_have_quotes_comments_and_export(tmp_path):
    path = tmp_path / "env"
    path.write_text("# comment\nexport A=1\nB='x # y'\nC=z # note\n\nD=\n", encoding="utf-8")
    assert read_env_file(path) == {"A": "1", "B": "x # y", "C": "z", "D": ""}
    path.write_text("A\nB=1\n=3\n", encoding="utf-8")
    with pytest.raises(TopologyError) as caught:
        read_env_file(path)
    assert str(caught.value).split("\n") == [f"{path}:{line}:1: expected NAME=value" for line in (1, 3)]


@pytest.mark.parametrize("value", ["", "a:1", "10.0.0.1:8080", "[::1]:8080", "https://example.org:443"])
def test_an_endpoint_has_host_and_port(value):
    assert check("application.server", value) == value


def test_the_format_of_stores_and_the_isolation_of_queries_are_read_in_any_case():
    assert check("dsl.store.format", "headers") == "HEADERS"
    assert check("default.interactive.query.isolation.level", "read_committed") == "READ_COMMITTED"


def test_every_setting_has_a_valid_default_and_a_meaning():
    for name, setting in SETTINGS.items():
        assert setting.meaning.endswith("."), name
        if setting.default is not None:
            assert check(name, setting.default) == setting.default, name


def test_settings_can_be_pickled():
    config = pickle.loads(pickle.dumps(Config("app", {"poll.ms": 5})))
    assert config.poll_ms == 5


def test_client_tables_are_not_imported_without_need():
    code = (
        "import sys, streamkit.config as c; c.Config('a').poll_ms; sys.exit('streamkit.config.clients' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
