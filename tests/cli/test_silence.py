"""A cluster that does not answer: a first line that names what was tried, before the clients give up."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from streamkit.runtime.operations.opening import ANSWERS, connection_attempts, silence
from tests.cli.support import LIMIT_S, UPPER, command

TALKING = [
    ["lag"],
    ["status"],
    ["topics", "list"],
    ["topics", "create"],
    ["consume", "words", "--until-idle"],
    ["produce", "words"],
    ["replay"],
    ["explain", "--dead-letter", "0"],
    ["reset-offsets"],
    ["diff", "--running"],
    ["doctor"],
    ["run", "--until-idle"],
    ["submit", "--dry-run"],
]
"""Commands with the arguments that follow the file; one word before it for `topics` and `diff`."""


@pytest.mark.parametrize("arguments", TALKING, ids=lambda each: each[0])
def test_the_first_line_names_the_address_and_what_was_tried(arguments: list[str], tmp_path: Path) -> None:
    path = tmp_path / "upper.yaml"
    path.write_text(UPPER.format(state=tmp_path / "state").replace("embedded", "'127.0.0.1:1'"))
    name, *rest = arguments
    words = [name, *rest, path] if name in ("topics", "diff") else [name, path, *rest]
    process = subprocess.Popen(
        command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        line = next(line for line in process.stderr if "no answer from" in line)
    finally:
        process.kill()
        process.communicate(timeout=LIMIT_S)
    assert "no answer from 127.0.0.1:1 yet" in line
    assert "tried 127.0.0.1:1: Connection refused: nothing listens there" in line


def test_a_listener_that_is_silent_is_no_broker_and_tls_may_be_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        assert "accepts connections: it may be no Kafka broker" in (silence(place, tls=False) or "")
        assert silence(place, tls=True) is None
    assert silence("127.0.0.1:1", tls=True) is not None


@pytest.mark.broker
def test_a_broker_answers(broker) -> None:
    assert connection_attempts(broker.address, ask=True) == {broker.address: ANSWERS}
    assert silence(f"127.0.0.1:1,{broker.address}", tls=False) is None
