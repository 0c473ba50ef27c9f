"""`evolve` on a broker: killed while it waits, and continued when the old version has stopped in the middle of its work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.kafka_broker import Broker
from tests.broker.support import Log, kill, until
from tests.cli.support import LIMIT_S, streamkit
from tests.evolution.evolving import evolving, lines_until

pytestmark = pytest.mark.broker


def test_new_aggregates_have_their_past(tmp_path: Path, broker: Broker) -> None:
    log = Log(broker.address)
    found = evolving(tmp_path, log, processing_guarantee="exactly_once_v2")
    found.write(1000)
    old = found.old.start()
    first = second = None
    try:
        until(found.is_read, "the old version has read everything")
        first = found.evolve("--wait")
        assert any(line.startswith("stop: group") for line in lines_until(first, "stop"))
        kill([first])
        found.write(500)
        old.terminate()  # it may have read all of that or nothing
        old.communicate(timeout=LIMIT_S)
        done = streamkit("run", found.new, "--until-idle")
        assert done.code == 1
        assert "streamkit evolve OLD NEW" in done.err
        second = found.evolve("--wait")
        out, err = second.communicate(timeout=10 * LIMIT_S)
        assert second.returncode == 0, err
        assert out.splitlines()[-1].startswith("all steps are done")
    finally:
        kill([old, *filter(None, (first, second))])
    found.write(200)
    done = streamkit("run", found.new, "--until-idle")
    assert done.code == 0, done.err
    for store, rows in found.expected().items():
        assert found.rows(store) == rows
        assert found.output(store).items() <= rows.items()
    log.close()
