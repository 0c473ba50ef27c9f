"""What is closed is freed although the collector runs rarely."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from streamkit.errors import RetriableTransportError
from streamkit.runtime.execution import collecting
from streamkit.runtime.execution.collecting import CycleCollector
from streamkit.runtime.local.setup import Settings
from streamkit.transport.embedded import EmbeddedTransport
from tests.broker.support import until
from tests.runtime.counting import create
from tests.runtime.fake_log import FakeProducer
from tests.runtime.fakes import Clock, FakeProgram
from tests.runtime.harness import Harness
from tests.runtime.one_thread import ALL, Started


class Ring:
    """A cycle."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def by_hand() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def test_once_nothing_was_closed_for_a_second() -> None:
    clock = Clock()
    cycles = CycleCollector(clock)
    ring = weakref.ref(Ring())
    clock.now = 5_000
    assert not cycles.collect_if_due()
    cycles.note_closed()
    clock.now = 5_900
    cycles.note_closed()
    clock.now = 6_100
    assert not cycles.collect_if_due()
    assert ring() is not None
    clock.now = 6_900
    assert cycles.collect_if_due()
    assert ring() is None
    assert not cycles.collect_if_due()


def test_a_task_that_moves_away_leaves_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(collecting, "_SETTLED_MS", 0)
    log = EmbeddedTransport(tmp_path / "log")
    create(log)
    with Started(log, tmp_path) as started:
        started.assign(ALL)
        tasks = [weakref.ref(held.task) for held in started.thread._tasks.running.values()]
        assert len(tasks) == len(ALL)
        started.assign([])
        until(lambda: started.application._maintain() or not any(task() for task in tasks), "closed tasks are freed")
    log.close()


def test_a_producer_that_is_replaced_leaves_nothing(tmp_path, monkeypatch) -> None:
    harness = Harness(tmp_path, FakeProgram(), Settings(exactly_once=True))
    committer = harness.thread._committer
    committer._producer.me = committer._producer
    before = weakref.ref(committer._producer)

    def abort(producer: FakeProducer) -> None:
        raise RetriableTransportError("gone")

    monkeypatch.setattr(FakeProducer, "abort", abort)
    committer.restart()
    harness.clock.now = 2_000
    assert before() is not None
    assert harness.shared.cycles.collect_if_due()
    assert before() is None


ARENAS = """
import ctypes, threading
from streamkit.runtime.execution.collecting import few_arenas
few_arenas()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
made, done = threading.Barrier(21), threading.Event()
def allocate():
    library.malloc(100_000)
    made.wait()
    done.wait()
for _ in range(20):
    threading.Thread(target=allocate).start()
made.wait()
library.malloc_info(0, ctypes.c_void_p.in_dll(library, "stdout"))
library.fflush(None)
done.set()
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="the C library is not glibc")
@pytest.mark.parametrize(("chosen", "most"), [({}, 2), ({"MALLOC_ARENA_MAX": "3"}, 3)])
def test_threads_share_two_arenas_unless_the_environment_differs(chosen: dict[str, str], most: int) -> None:
    done = subprocess.run([sys.executable, "-c", ARENAS], capture_output=True, env={**os.environ, **chosen}, check=True)
    assert done.stdout.count(b"<heap nr=") == most
