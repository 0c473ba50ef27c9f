"""TLS, SASL and ACLs on a real broker, with the settings of Java's clients and librdkafka's; no secret in any output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from streamkit.config.application_config import variable
from tests.broker.secure_broker import KEY_PASSWORD, PASSWORDS, SecureBroker
from tests.broker.support import App, Log, application, until
from tests.broker.token_server import token, token_server
from tests.cli.support import Done, assert_one_clear_line, streamkit

pytestmark = pytest.mark.broker

UPPER = """\
topics:
  words: {topic: "{a}words", key: string, value: string, partitions: 1}
  loud: {topic: "{a}loud", key: string, value: string, partitions: 1}
pipelines:
  shout:
    stream: words
    steps:
      - map_values: {value: value.upper(), value_serde: string}
    to: loud
"""
MODULES = "org.apache.kafka.common.security"
CLIENT_SECRET = "oauth-sesame-5"
SECRETS = (*PASSWORDS.values(), KEY_PASSWORD, CLIENT_SECRET, "PRIVATE KEY", "wrong-sesame-6")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(tmp_path_factory.mktemp("secure")) as running:
        yield running


@pytest.fixture(scope="module")
def app(secure: SecureBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """An application that everybody but bob may run; its file names no broker."""
    log = Log(secure.address)
    made = application(tmp_path_factory.mktemp("secure-app"), log, "secure", UPPER)
    lines = made.path.read_text().splitlines(keepends=True)
    made.path.write_text("".join(line for line in lines if "bootstrap.servers" not in line))
    for user in ("alice", "carol", "dave", "erin"):
        secure.allow(user, made.application)
    for name in ("words", "loud"):
        log.create(made.topic(name), 1)
    yield made
    log.close()


def over_sasl(secure: SecureBroker, mechanism: str, **more: str) -> dict[str, str]:
    return {
        "bootstrap.servers": secure.secure,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(secure.folder / "ca.pem"),
        "sasl.mechanism": mechanism,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def over_tls(secure: SecureBroker, **more: str) -> dict[str, str]:
    return {
        "bootstrap.servers": secure.mutual,
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secure.folder / "ca.pem"),
        "ssl.key.password": KEY_PASSWORD,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def discreet(done: Done) -> Done:
    """What a command said, which must hold no secret."""
    assert not [secret for secret in SECRETS if secret in done.out + done.err]
    return done


def by_set(command: str, app: App, settings: dict[str, str], *options: object) -> Done:
    given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return discreet(streamkit(command, app.path, *given, *options))


def works(app: App, *options: object, **variables: str) -> None:
    """Assert that an application over this connection reads, joins its group, and writes."""
    before = len(app.log.read(app.topic("loud")))
    app.log.write([(app.topic("words"), None, b"hello", 1_700_000_000_000, None, 0)])
    done = discreet(streamkit("run", app.path, "--until-idle", *options, **variables))
    # A broker on a busy machine may be slow to answer.
    lines = [line for line in done.err.splitlines() if "no answer from" not in line]
    assert (done.code, lines) == (0, [])
    assert [raw.value for raw in app.log.read(app.topic("loud"))[before:]] == [b"HELLO"]


def test_plain_from_options(secure: SecureBroker, app: App) -> None:
    settings = over_sasl(secure, "PLAIN", sasl_username="dave", sasl_password=PASSWORDS["dave"])
    works(app, *(part for name, value in settings.items() for part in ("--set", f"{name}={value}")))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_from_the_environment_by_the_names_of_java(mechanism: str, secure: SecureBroker, app: App) -> None:
    login = f'{MODULES}.scram.ScramLoginModule required username="alice" password="{PASSWORDS["alice"]}";'
    settings = over_sasl(secure, mechanism, sasl_jaas_config=login)
    works(app, **{variable(name): value for name, value in settings.items()})


def test_scram_with_transactions_from_a_file_of_variables(secure: SecureBroker, app: App, tmp_path: Path) -> None:
    settings = over_sasl(secure, "SCRAM-SHA-256", sasl_username="alice", sasl_password=PASSWORDS["alice"])
    settings["processing.guarantee"] = "exactly_once_v2"
    env_file = tmp_path / "secrets.env"
    env_file.write_text("".join(f"{variable(name)}='{value}'\n" for name, value in settings.items()))
    works(app, "--env-file", env_file)


def test_certificates_of_clients(secure: SecureBroker, app: App) -> None:
    files = {
        "ssl_certificate_location": str(secure.folder / "client.pem"),
        "ssl_key_location": str(secure.folder / "client.key"),
    }
    works(app, **{variable(name): value for name, value in over_tls(secure, **files).items()})


def test_certificates_as_text_under_javas_names(secure: SecureBroker, app: App) -> None:
    texts = {
        "ssl_keystore_type": "PEM",
        "ssl_keystore_certificate_chain": (secure.folder / "client.pem").read_text(),
        "ssl_keystore_key": (secure.folder / "client.key").read_text(),
    }
    works(app, **{variable(name): value for name, value in over_tls(secure, **texts).items()})


def test_bearer_tokens_from_a_server(secure: SecureBroker, app: App) -> None:
    login = f'{MODULES}.oauthbearer.OAuthBearerLoginModule required clientId="erin" clientSecret="{CLIENT_SECRET}";'
    with token_server("erin", CLIENT_SECRET) as url:
        settings = over_sasl(secure, "OAUTHBEARER", sasl_jaas_config=login)
        settings["sasl.oauthbearer.token.endpoint.url"] = url
        works(app, **{variable(name): value for name, value in settings.items()})


def test_bearer_tokens_from_a_file(secure: SecureBroker, app: App, tmp_path: Path) -> None:
    place = tmp_path / "token"
    place.write_text(token("erin"))
    settings = over_sasl(secure, "OAUTHBEARER")
    settings["sasl.oauthbearer.token.endpoint.url"] = f"file://{place}"
    works(app, **{variable(name): value for name, value in settings.items()})


def test_a_wrong_password_is_reported_at_once(secure: SecureBroker, app: App) -> None:
    settings = over_sasl(secure, "SCRAM-SHA-256", sasl_username="alice", sasl_password="wrong-sesame-6")
    done = by_set("run", app, settings, "--until-idle")
    assert_one_clear_line(done, 1, secure.secure, "refuses", "SCRAM-SHA-256")


def test_a_certificate_of_another_authority_is_refused(secure: SecureBroker, app: App) -> None:
    settings = over_sasl(secure, "PLAIN", sasl_username="dave", sasl_password=PASSWORDS["dave"])
    settings["ssl.ca.location"] = str(secure.folder / "other-ca.pem")
    done = by_set("run", app, settings, "--until-idle")
    assert_one_clear_line(done, 1, secure.secure, "certificate verify failed")


def test_what_acls_forbid_is_one_line(secure: SecureBroker, app: App) -> None:
    settings = over_sasl(secure, "SCRAM-SHA-256", sasl_username="bob", sasl_password=PASSWORDS["bob"])
    assert_one_clear_line(by_set("run", app, settings, "--until-idle"), 1, app.topic("words"), "uthoriz")
    assert_one_clear_line(by_set("reset-offsets", app, settings), 1, "uthoriz")


def test_reset_offsets_removes_members_over_sasl(secure: SecureBroker, app: App) -> None:
    member = Consumer({"bootstrap.servers": secure.address, "group.id": app.application, "log_level": 0})
    member.subscribe([app.topic("words")])
    try:
        until(lambda: member.poll(0.1) is not None or member.assignment(), "the member has joined")
        settings = over_sasl(secure, "SCRAM-SHA-512", sasl_username="alice", sasl_password=PASSWORDS["alice"])
        assert by_set("reset-offsets", app, settings).code == 1
        assert by_set("reset-offsets", app, settings, "--execute", "--force").code == 0
    finally:
        member.close()
    assert app.log.read_so_far(app.application, app.topic("words")) == 0


def test_the_closest_look_at_the_log_shows_no_secret(secure: SecureBroker, app: App) -> None:
    settings = over_sasl(secure, "PLAIN", sasl_username="dave", sasl_password=PASSWORDS["dave"])
    settings["debug"] = "security,conf,broker"
    done = by_set("run", app, settings, "--until-idle", "--log-level", "debug")
    assert done.code == 0
    assert "dave" in done.err


def test_no_handler_drops_records_that_acls_forbid_to_write(secure: SecureBroker, tmp_path: Path) -> None:
    log = Log(secure.address)
    app = application(tmp_path, log, "unwritten", UPPER)
    secure.allow("dave", app.application)
    for name in ("words", "loud"):
        log.create(app.topic(name), 1)
    log.write([(app.topic("words"), None, b"hello", 1_700_000_000_000, None, 0)])
    settings = over_sasl(secure, "PLAIN", sasl_username="dave", sasl_password=PASSWORDS["dave"])
    settings["production.exception.handler"] = "continue"
    secure.deny_writes("dave", app.topic("loud"), True)
    done = by_set("run", app, settings, "--until-idle")
    assert_one_clear_line(done, 1, app.topic("loud"), "uthoriz", "no handler drops records for this reason")
    secure.deny_writes("dave", app.topic("loud"), False)
    assert by_set("run", app, settings, "--until-idle").code == 0
    assert [raw.value for raw in log.read(app.topic("loud"))] == [b"HELLO"]
    log.close()
