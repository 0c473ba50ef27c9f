"""What Kafka Streams did on a broker with the pairs, old program and then new (`tests/changes/live.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamkit.changes.compare_versions import compare
from streamkit.changes.finding import Verdict
from tests.broker.kafka_broker import Broker
from tests.broker.support import Log
from tests.changes import live
from tests.changes.pairs import PAIRS
from tests.changes.versions import forms
from tests.cli.support import LIMIT_S

BY_NAME = {pair.name: pair for pair in PAIRS}
OUTCOMES = json.loads(live.FILE.read_text(encoding="utf-8"))


def test_there_are_enough_outcomes_of_each_kind() -> None:
    assert len(OUTCOMES) >= 20
    assert set(OUTCOMES.values()) == {"empty", "kept", "fails"}


@pytest.mark.parametrize("name", OUTCOMES)
def test_verdicts_are_what_happens(name: str) -> None:
    found = compare(*forms(BY_NAME[name]))
    verdicts = {each.verdict for each in found if each.subject == "store" or each.verdict is Verdict.INCOMPATIBLE}
    if Verdict.INCOMPATIBLE in verdicts:
        # It ends, or goes on with rows that it misreads. Where keys have other bytes, as those of another kind of store, no
        # key finds its row.
        other_keys = any(
            words in each.message for each in found for words in ("the key was", "it held ") if each.subject == "store"
        )
        assert OUTCOMES[name] in (("fails", "empty") if other_keys else ("fails", "kept"))
    else:
        assert OUTCOMES[name] == ("empty" if Verdict.RENAMED in verdicts else "kept")


def test_it_happens_today(broker: Broker, java: None, tmp_path: Path) -> None:
    log = Log(broker.address)
    try:
        found = live.outcome(BY_NAME["store-renamed"], tmp_path, log, LIMIT_S)
        assert found == OUTCOMES["store-renamed"] == "empty"
    finally:
        log.close()
