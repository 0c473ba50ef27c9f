"""The progress of a job, as Spark tells it while a stage runs."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamkit.runtime.spark.spark_session import interrupts_kept
from streamkit.runtime.spark.submission.job_progress import ContextProgress, Snapshot


def after_permission(gates: tuple[str, str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, once the test has let them go: opening a pipe waits for its other end."""
    for gate, mode in zip(gates, "wr", strict=True):
        with open(gate, mode, encoding="utf-8"):
            pass
    yield from batches


def test_stages_tasks_and_records_while_a_job_runs(spark: Any, tmp_path: Path) -> None:
    reached, go_on = str(tmp_path / "reached"), str(tmp_path / "go-on")
    os.mkfifo(reached)
    os.mkfifo(go_on)
    (tmp_path / "in.txt").write_text("line\n" * 1000)
    held = (
        spark.read.text(str(tmp_path / "in.txt"))
        .repartition(1)
        .mapInArrow(partial(after_permission, (reached, go_on)), "value string")
    )
    rows: list[int] = []
    progress = ContextProgress(spark.sparkContext)
    before = progress.snapshot()
    thread = threading.Thread(target=lambda: rows.append(held.count()))
    thread.start()
    with open(reached, encoding="utf-8"):
        pass
    found = progress.snapshot()
    with open(go_on, "w", encoding="utf-8"):
        pass
    thread.join()
    assert before is None
    assert found is not None
    # The tasks of the second stage have told nothing yet; the first one has read the file.
    assert (found.done, found.tasks, rows) == (0, 1, [1000])
    assert found.read >= 1000
    assert found.stage_seconds >= 0


def test_ctrl_c_in_a_call_of_the_jvm_prints_no_stack_trace(caplog: pytest.LogCaptureFixture) -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupts_kept():
        signal.signal(signal.SIGINT, lambda number, frame: None)  # as SparkContext does
    assert signal.getsignal(signal.SIGINT) is before
    logging.error("KeyboardInterrupt while sending command.")  # as Py4J does, by the function of the module
    logging.getLogger("py4j.clientserver").error("Exception occurred while shutting down connection")
    logging.error("other")
    assert [record.message for record in caplog.records] == ["other"]


def test_a_line_of_progress() -> None:
    shown = Snapshot("streamkit orders: sums", 3, 4, 12_000, 6.0).text(60)
    assert shown == "streamkit orders: sums: 3/4 tasks, 12,000 records, 200/s, 60 s, about 2 s left of this stage"
    assert Snapshot("sums", 0, 4, 0, 0.0).text(0.5) == "sums: 0/4 tasks, 0 records, 0 s"
