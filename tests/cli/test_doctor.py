"""What an installation has and lacks, and whether the log of a file answers."""

from __future__ import annotations

import json
import platform
import socket
import sys
from importlib import metadata
from pathlib import Path

import pytest

from streamkit.distribution import install_command
from streamkit.errors import ConfigError
from streamkit.runtime.operations.opening import connection_attempts
from streamkit.transport.kafka import native_client
from streamkit_cli.commands import doctor
from streamkit_cli.commands.run import HttpOptions
from tests.cli.support import UPPER, streamkit


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    path = tmp_path / "app.yaml"
    path.write_text(UPPER.format(state=tmp_path / "state"))
    return path


def test_what_is_installed_is_shown_with_versions():
    done = streamkit("doctor")
    assert done.code == 0, done.err
    assert f"Python     {platform.python_version()}" in done.out
    assert f"fastavro {metadata.version('fastavro')}" in done.out
    found = json.loads(streamkit("doctor", "--format", "json").out)
    assert found["engines"]["rocksdb"]["installed"]
    assert {"spark", "http", "avro", "protobuf", "json-schema", "registry", "rocksdb"} <= {
        each["name"] for each in found["extras"]
    }
    assert "dev" not in {each["name"] for each in found["extras"]}


def test_the_native_extension_is_shown_with_the_reason_where_it_is_not_used(monkeypatch: pytest.MonkeyPatch):
    reason = native_client.missing()
    assert doctor.installation()["native"] == {"used": not reason, "reason": reason}
    monkeypatch.setenv(native_client.SWITCH, native_client.OFF)
    assert "Native     the extension is not in use: STREAMKIT_NATIVE is off" in streamkit("doctor").out
    monkeypatch.setenv(native_client.SWITCH, "maybe")
    done = streamkit("doctor")
    assert (done.code, done.err) == (1, "streamkit: STREAMKIT_NATIVE takes auto or off, not 'maybe'\n")


def test_what_is_missing_comes_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch):
    real = metadata.version

    def version(name: str) -> str:
        if name == "fastavro":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(doctor.metadata, "version", version)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    text = doctor._text(doctor.installation())
    assert f"missing fastavro: {install_command('avro')}" in text
    assert "Java       not found; submit needs Java 17 or newer" in text


@pytest.mark.parametrize("missing", ["starlette", "prometheus_client"])
def test_run_names_the_extra_that_its_server_needs(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("streamkit.http.", "starlette"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError, match=r"^--http needs the extra http: .* install "):
        HttpOptions("127.0.0.1:0", None, None).bind()


def test_what_an_extra_of_a_package_brings_is_looked_for_too(monkeypatch: pytest.MonkeyPatch):
    """confluent-kafka itself is always there; its extra schema-registry may not be."""
    real = metadata.version

    def version(name: str) -> str:
        if name == "certifi":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    (registry,) = [each for each in doctor.extras() if each.name == "registry"]
    assert registry.missing == []
    monkeypatch.setattr(doctor.metadata, "version", version)
    (registry,) = [each for each in doctor.extras() if each.name == "registry"]
    assert registry.missing == ["certifi"]
    assert registry.command == install_command("registry")


def test_the_log_of_a_file_is_reached(topology: Path):
    assert streamkit("produce", topology, "words", stdin='{"key": "a", "value": "b"}\n').code == 0
    done = streamkit("doctor", topology)
    assert done.code == 0, done.err
    assert "embedded: 1 topic, 1 of the 2 that the file names" in done.out


def test_a_log_that_does_not_answer_is_named_with_the_reason(topology: Path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        listening = f"127.0.0.1:{silent.getsockname()[1]}"
        servers = f"127.0.0.1:1,{listening}"
        done = streamkit("doctor", topology, "--set", f"bootstrap.servers={servers}")
    assert done.code == 1
    assert f"{servers}: topics could not be listed: no Kafka broker answers at {servers}" in done.out
    assert " 127.0.0.1:1: Connection refused: nothing listens there" in done.out
    assert f" {listening}: accepts connections: it may be no Kafka broker" in done.out


def test_invalid_addresses_are_distinguished():
    assert "can't be resolved" in connection_attempts("no-such-host.invalid:9092")["no-such-host.invalid:9092"]
    assert connection_attempts("[::1]:x, broker") == {"[::1]:x": "is not HOST:PORT", "broker": "is not HOST:PORT"}


def test_a_wrong_file_is_for_validate(topology: Path):
    topology.write_text("streamkit: 1\n")
    done = streamkit("doctor", topology)
    assert done.code == 1
    assert f"streamkit validate {topology}" in done.out
    assert streamkit("doctor", "no-such.yaml").code == 2
