"""`lag` counts the records that can be read: a marker of a transaction is an offset, and no record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.broker.support import Log, application
from tests.cli.support import assert_one_clear_line, streamkit

pytestmark = pytest.mark.broker

COUNTING = """topics:
  in: {topic: "{a}in", value: string}
  out: {topic: "{a}out", key: string, value: long, partitions: 1}
pipelines:
  counts:
    stream: in
    steps: [{group_by: {key: value, key_serde: string}}, {count: counts}, to_stream]
    to: out
"""


@pytest.fixture(params=["embedded", "kafka"])
def log(request: pytest.FixtureRequest) -> Log:
    return request.getfixturevalue(request.param)


def test_a_complete_run_with_exactly_once_has_no_lag(log: Log, tmp_path: Path) -> None:
    app = application(tmp_path, log, "lagging", COUNTING, processing_guarantee="exactly_once_v2")
    log.create(app.topic("in"), 2)
    log.write((app.topic("in"), None, b"abc"[n % 3 : n % 3 + 1], 1, None, n % 2) for n in range(6))
    assert_one_clear_line(streamkit("lag", app.path, "--max", 5), 1, "the lag is 6, more than 5")
    assert app.run().code == 0
    done = streamkit("lag", app.path, "--max", 0, "--format", "json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert found["lag"] == 0
    repartition = [each for each in found["partitions"] if each["topic"].endswith("-repartition")]
    # On Kafka the partitions end with markers, which no commit passes.
    assert any(each["end"] > (each["committed"] or 0) for each in repartition) == log.address.startswith("127")
