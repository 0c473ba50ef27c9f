"""Global and read-only stores on a real log: a new instance restores them, through their processor or past it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.broker.support import Log, application
from tests.runtime.topic_stores import PROCESSORS, TOPOLOGY


@pytest.mark.broker
def test_through_the_broker(kafka: Log, tmp_path: Path) -> None:
    restored(kafka, tmp_path)


def test_through_the_embedded_log(embedded: Log, tmp_path: Path) -> None:
    restored(embedded, tmp_path)


def restored(log: Log, folder: Path) -> None:
    text = TOPOLOGY[TOPOLOGY.index("defaults:") :]
    for name in ("rates", "prices", "words", "out"):
        text = text.replace(f"{name}: {{partitions", f"{name}: {{topic: '{{a}}{name}', partitions")
    (folder / "keepers.py").write_text(PROCESSORS)
    app = application(folder, log, "kept", text)
    rates, prices, words, out = map(app.topic, ("rates", "prices", "words", "out"))
    for topic in (rates, prices, words, out):
        log.create(topic, 2 if topic == rates else 1)
    log.write([(rates, key, b"one", 1_000, None, 0) for key in (b"a", None, b"b")])
    log.write([(prices, b"a", b"cheap", 1_000, None, 0), (words, b"a", b"?", 2_000, None, 0)])
    assert app.run().code == 0
    shutil.rmtree(app.tasks.parent)
    log.write([(words, b"a", b"?", 3_000, None, 0)])
    assert app.run().code == 0
    assert [row.value for row in log.read(out)] == [b"ONE cheap! a,b", b"ONE cheap a,b"]
