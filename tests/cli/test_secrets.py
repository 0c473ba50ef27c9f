"""A secret that stands everywhere a secret may stand is in no output: of commands, of errors, over HTTP."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cli.support import LIMIT_S, UPPER, command, streamkit
from tests.ports import free_ports

SECRET = "sesame-7f3a"
SETTINGS = {
    "sasl.password": SECRET,
    "sasl.jaas.config": f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";',
    "ssl.key.password": SECRET,
    "ssl.keystore.key": f"-----BEGIN PRIVATE KEY----- {SECRET}",
    "sasl.oauthbearer.client.secret": SECRET,
    "producer.sasl.password": SECRET,
}


@pytest.fixture
def nobody() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


@pytest.fixture
def secretive(tmp_path: Path) -> Path:
    """A topology with secrets in its file."""
    path = tmp_path / "upper.yaml"
    lines = "".join(f", {name}: {json.dumps(value)}" for name, value in SETTINGS.items())
    path.write_text(
        UPPER.format(state=tmp_path / "state").replace("commit.interval.ms: 100", f"commit.interval.ms: 100{lines}")
    )
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate"],
        ["validate", "--strict"],
        ["validate", "--strict", "--format", "json"],
        ["describe"],
        ["describe", "--format", "json"],
        ["describe", "--format", "python"],
        ["describe", "--format", "html"],
        ["config"],
        ["config", "--format", "json"],
        ["topics", "list"],
        ["reset-offsets", "--format", "json"],
        ["run", "--until-idle", "--log-level", "debug"],
    ],
    ids=" ".join,
)
def test_commands_show_no_secret(arguments: list[str], secretive: Path) -> None:
    name, *options = arguments
    actions = [options.pop(0)] if name == "topics" else []
    done = streamkit(name, *actions, secretive, *options)
    assert done.code == (1 if "--strict" in options else 0), done
    assert SECRET not in done.out + done.err


@pytest.mark.parametrize(
    "setting",
    [
        f"sasl.jaas.config={SECRET}",
        f"sasl.jaas.config=PlainLoginModule required password={SECRET}",
        f"sasl.password:{SECRET}",
        f"sasl.pasword={SECRET}",
        f"num.stream.threads.password={SECRET}",
        f"producer.sasl.jaas.config=Krb5LoginModule required {SECRET}",
    ],
)
def test_errors_about_secrets_do_not_repeat_them(setting: str, secretive: Path) -> None:
    done = streamkit("describe", secretive, "--set", setting)
    assert done.code in (1, 2)
    assert done.err
    assert SECRET not in done.out + done.err


def test_errors_in_the_file_do_not_repeat_secrets(secretive: Path) -> None:
    text = secretive.read_text()
    for wrong in (
        text.replace("PlainLoginModule required", "NoLoginModule required"),
        text.replace("sasl.password:", "sasl.pasword:"),
        text.replace(f'"{SECRET}"', f'{{"x": "{SECRET}"}}'),
    ):
        secretive.write_text(wrong)
        done = streamkit("validate", "--excerpt", secretive)
        assert done.code == 1
        assert SECRET not in done.out + done.err


def test_clients_that_refuse_their_settings_show_no_secret(secretive: Path, nobody: str) -> None:
    secure = ["--set", "security.protocol=SASL_SSL", "--set", "sasl.mechanism=PLAIN"]
    for command_name in ("run", "consume", "produce"):
        topic = ["--until-idle", "--set", "task.timeout.ms=0"] if command_name == "run" else ["words"]
        done = streamkit("--verbose", command_name, secretive, *topic, "--set", f"bootstrap.servers={nobody}", *secure)
        assert done.code == 1
        assert SECRET not in done.out + done.err


def test_http_shows_no_secret(secretive: Path, nobody: str) -> None:
    process = subprocess.Popen(
        command("run", secretive, "--http", nobody, "--log-level", "info"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        log = []
        for line in process.stderr:
            log.append(line)
            if "-> RUNNING" in line:
                break
        shown = [
            _read(nobody, path) for path in ("/", "/metrics", "/openapi.json", "/status", "/lag", "/stores", "/ready")
        ]
    finally:
        process.terminate()
        rest = process.communicate(timeout=LIMIT_S)
    assert any("upper" in text for text in shown), shown
    assert SECRET not in "".join([*shown, *log, *rest])


def _read(address: str, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=LIMIT_S) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()
