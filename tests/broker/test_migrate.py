"""`migrate` on a broker: killed at random points and repeated."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from tests.broker.migrating import Renamed, renamed, streamkit
from tests.broker.support import Log, kill, until
from tests.changes.migrating import content
from tests.cli.support import assert_one_clear_line, command

pytestmark = pytest.mark.broker

KEYS = 30_000
KILLS = 4


def written(log: Log, topic: str) -> int:
    """The number of records of a topic; 0 where it does not exist, as between two attempts."""
    return sum(log.ends(topic)) if log.topics("").get(topic) else 0


def kill_after(found: Renamed, records: int) -> bool:
    """Begin to migrate, and kill it once the target has so many records; return whether that was before its end."""
    line = command("migrate", found.old.path, found.new, "--execute")
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        log = found.old.log
        until(lambda: process.poll() is not None or written(log, found.target) >= records, "the copy has begun")
        is_running = process.poll() is None
    finally:
        kill([process])
    return is_running


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_store_is_renamed_by_a_command_that_is_killed(kafka: Log, tmp_path: Path, guarantee: str) -> None:
    found = renamed(tmp_path, kafka, KEYS, processing_guarantee=guarantee)
    draw = random.Random(guarantee)
    killed = [kill_after(found, draw.randrange(1, KEYS)) for _ in range(KILLS)]
    assert any(killed)
    if killed[0]:
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
