"""`migrate` on a broker: killed at random points and repeated."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.migrating import Renamed, renamed, streamkit
from tests.broker.support import Log
from tests.changes.migrating import content
from tests.cli.support import LIMIT_S, assert_one_clear_line

pytestmark = pytest.mark.broker

KEYS = 30_000
KILLS = 4
DYING = """\
import os, signal, sys
from streamkit.transport.kafka.kafka_producer import KafkaProducer
from streamkit_cli.main import main

target, left = sys.argv.pop(1), int(sys.argv.pop(1))
send = KafkaProducer.send

def send_and_die(self, rows):
    global left
    rows = list(rows)
    if rows and rows[0][0] == target:
        rows, left = rows[:left], left - len(rows)
    send(self, rows)
    if left <= 0:
        self.flush()
        os.kill(os.getpid(), signal.SIGKILL)

KafkaProducer.send = send_and_die
sys.exit(main())
"""


def kill_after(found: Renamed, records: int) -> None:
    """Begin to migrate, and kill it as soon as the target has so many records."""
    line = [sys.executable, "-c", DYING, found.target, records, "migrate", found.old.path, found.new, "--execute"]
    done = subprocess.run([*map(str, line)], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_store_is_renamed_by_a_command_that_is_killed(kafka: Log, tmp_path: Path, guarantee: str) -> None:
    found = renamed(tmp_path, kafka, KEYS, processing_guarantee=guarantee)
    draw = random.Random(guarantee)
    for _ in range(KILLS):
        kill_after(found, draw.randrange(1, KEYS))
    refused = streamkit("run", found.new, "--until-idle")
    assert_one_clear_line(refused, 1, "a migration of", "is incomplete", found.target)
    done = streamkit("migrate", found.old.path, found.new, "--execute")
    assert done.code == 0, done.err
    source = kafka.read(f"{found.old.application}-words-changelog", committed_only=True)
    target = kafka.read(found.target, committed_only=True)
    assert content(target) == content(source) != []
    found.write()
    done = streamkit("run", found.new, "--until-idle")
    assert done.code == 0, done.err
    assert found.counted() == found.expected(2)
