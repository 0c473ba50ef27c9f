"""Threads of functions without `async`: as many as calls that run at once, and no more."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from streamkit.operators.kernels.lookups import DaemonThreads

LONG = 60.0
"""Seconds after which a wait has failed."""


def threads_of(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def stuck(threads: DaemonThreads, release: threading.Event) -> Future[bool]:
    """Return a call that has begun and runs until the event."""
    began = threading.Event()

    def call() -> bool:
        began.set()
        return release.wait(LONG)

    future = threads.submit(call)
    assert began.wait(LONG)
    return future


def test_calls_of_a_burst_run_at_once_although_one_thread_is_idle() -> None:
    threads = DaemonThreads(8, "burst")
    threads.submit(int).result(LONG)
    barrier = threading.Barrier(8)
    calls = [threads.submit(barrier.wait, LONG) for _ in range(8)]
    assert sorted(call.result(LONG) for call in calls) == list(range(8))
    assert len(threads_of("burst")) == 8
    threads.shutdown()


def test_more_calls_than_threads_wait_for_one() -> None:
    threads = DaemonThreads(2, "few")
    calls = [threads.submit(int, str(n)) for n in range(50)]
    assert [call.result(LONG) for call in calls] == list(range(50))
    assert len(threads_of("few")) <= 2
    threads.shutdown()


def test_a_thread_whose_call_was_abandoned_ends_with_it() -> None:
    threads, release = DaemonThreads(1, "abandoned"), threading.Event()
    for _ in range(5):
        call = stuck(threads, release)
        waiting = threads.submit(int, "7")
        threads.abandon(call)
        assert waiting.result(LONG) == 7
    busy = threads_of("abandoned")[:5]
    release.set()
    for thread in busy:
        thread.join(LONG)
    assert len(threads_of("abandoned")) == 1
    assert threads.submit(int, "8").result(LONG) == 8
    threads.shutdown()


def test_an_abandoned_call_that_has_not_begun_is_never_made() -> None:
    threads, release = DaemonThreads(1, "unmade"), threading.Event()
    made: list[int] = []
    call = stuck(threads, release)
    waiting = threads.submit(made.append, 1)
    threads.abandon(waiting)
    assert len(threads_of("unmade")) == 1
    release.set()
    assert (call.result(LONG), threads.submit(int).result(LONG), made) == (True, 0, [])
    threads.shutdown()
