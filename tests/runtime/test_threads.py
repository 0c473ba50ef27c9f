"""Stream threads that come, go and fail while the application runs; pausing it."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from streamkit.errors import FencedError, ProcessingError, StateError, StreamkitError, UsageError
from streamkit.runtime.local import coordinator
from streamkit.runtime.local.client import Application
from streamkit.runtime.local.rebalance_listener import RebalanceListener
from streamkit.runtime.local.states import ClientState, ThreadState
from streamkit.runtime.local.stream_thread import failure_response
from streamkit.transport.embedded import EmbeddedTransport
from tests.broker.support import until
from tests.cli.support import LIMIT_S
from tests.runtime.counting import PARTITIONS, by_key, counting, rows, send

KEYS = 6


class Running:
    """An application that is looked after, as its `run` would."""

    def __init__(self, application: Application):
        self.application = application
        self.error: BaseException | None = None
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.application.run(stop=self.stop)
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Application:
        self._thread.start()
        until(lambda: self.application.state is ClientState.RUNNING or self.error, "the start")
        return self.application

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        self.stop.set()
        self.join()
        if failure is not None and self.error is not None:
            failure.add_note(f"the application failed: {self.error!r}")

    def join(self) -> None:
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()


def counted(log: EmbeddedTransport, to: int) -> None:
    """Wait until every key has been counted so far; each count must have come once, in order."""
    until(lambda: len(rows(log, "counts")) >= to * KEYS, f"all counts up to {to}")
    assert by_key(rows(log, "counts")) == {f"k{key}": list(range(1, to + 1)) for key in range(KEYS)}


def running_tasks(application: Application) -> dict[str, int]:
    return {thread.name: len(thread._tasks.running) for thread in application.threads}


def budgets(application: Application) -> list[int]:
    return [thread._tasks.stores._budget.max_bytes for thread in application.threads]  # type: ignore[union-attr]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_threads_come_and_go(log, tmp_path, guarantee):
    plan = counting(tmp_path / "state", processing_guarantee=guarantee, statestore_cache_max_bytes=600)
    with Running(Application(plan, log)) as application:
        send(log, 3)
        until(lambda: len(by_key(rows(log, "counts"))) == KEYS, "the first counts")
        assert budgets(application) == [600]
        second = application.add_thread()
        third = application.add_thread()
        assert [second, third] == [thread.name for thread in application.threads[1:]]
        assert budgets(application) == [200, 200, 200]
        until(lambda: list(running_tasks(application).values()) == [1, 1, 1], "a task for each thread")
        send(log, 2)
        assert application.remove_thread(LIMIT_S) == third
        assert application.remove_thread(LIMIT_S) == second
        until(lambda: list(running_tasks(application).values()) == [PARTITIONS], "all tasks in one thread")
        assert budgets(application) == [600]
        until(lambda: application.state is ClientState.RUNNING, "the application runs")
        until(lambda: dict(rows(log, "counts")) == {f"k{key}": 5 for key in range(KEYS)}, "all counts")


def test_no_count_is_lost_or_doubled_while_threads_move(log, tmp_path):
    with Running(Application(counting(tmp_path / "state", processing_guarantee="exactly_once_v2"), log)) as application:
        for step in range(1, 7):
            send(log, 5)
            if step % 2:
                application.add_thread()
            else:
                application.remove_thread(LIMIT_S)
        counted(log, 30)


def test_the_last_thread_may_go_and_another_come(log, tmp_path):
    with Running(Application(counting(tmp_path / "state"), log)) as application:
        first = application.remove_thread(LIMIT_S)
        assert application.threads == []
        assert application.remove_thread(LIMIT_S) is None
        send(log, 1)
        assert application.add_thread() == first
        counted(log, 1)


def test_a_thread_that_is_being_started_is_not_removed(log, tmp_path):
    """Nothing can wait for its end yet."""
    with Running(Application(counting(tmp_path / "state"), log)) as application:
        (running,) = application.threads
        assert application._threads is not None
        (starting,) = application._threads.add()
        assert application.remove_thread(LIMIT_S) == running.name
        assert application.threads == [starting]
        starting.start()


def test_the_group_may_go_on_while_a_thread_that_goes_commits(log, tmp_path, monkeypatch):
    with Running(Application(counting(tmp_path / "state", processing_guarantee="exactly_once_v2"), log)) as application:
        name = application.add_thread()
        until(lambda: all(running_tasks(application).values()), "tasks for both")
        going = next(thread for thread in application.threads if thread.name == name)

        def refused() -> None:
            raise FencedError("not in generation 2 any more")

        monkeypatch.setattr(going._tasks, "commit", refused)
        assert application.remove_thread(LIMIT_S) == name
        send(log, 1)
        counted(log, 1)
        assert application.error is None


def test_a_thread_may_take_the_place_of_another_before_the_application_is_looked_after(log, tmp_path, monkeypatch):
    looking, look = threading.Lock(), Application._maintain

    def look_after(application: Application) -> None:
        with looking:
            look(application)

    monkeypatch.setattr(Application, "_maintain", look_after)
    with Running(Application(counting(tmp_path / "state"), log)) as application:
        with looking:
            name = application.remove_thread(LIMIT_S)
            assert application.add_thread() == name
        send(log, 1)
        counted(log, 1)


def test_threads_only_come_to_what_runs(log, tmp_path):
    application = Application(counting(tmp_path / "state"), log)
    assert (application.add_thread(), application.remove_thread()) == (None, None)
    with Running(application), pytest.raises(StateError, match="before the start"):
        application.set_uncaught_exception_handler(lambda error: "replace_thread")
    assert application.add_thread() is None


class Trouble:
    """Makes the n-th record that the application processes fail, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int):
        from streamkit.state.stores.key_value import KeyValueStore

        self.left = at
        put = KeyValueStore.put

        def failing(store, *args, **options):
            self.left -= 1
            if self.left == 0:
                raise RuntimeError("a bug")
            put(store, *args, **options)

        monkeypatch.setattr(KeyValueStore, "put", failing)


@pytest.mark.parametrize("persistent", [True, False])
def test_a_thread_that_fails_is_replaced(log, tmp_path, monkeypatch, persistent):
    plan = counting(tmp_path / "state", persistent=persistent, processing_guarantee="exactly_once_v2")
    application = Application(plan, log)
    seen: list[BaseException] = []
    states: list[ClientState] = []
    application._listener = lambda new, old: states.append(new)
    application.set_uncaught_exception_handler(lambda error: seen.append(error) or "replace_thread")  # type: ignore
    with Running(application):
        (before,) = application.threads
        send(log, 2)
        counted(log, 2)
        Trouble(monkeypatch, 4)
        send(log, 3)
        counted(log, 5)
        (after,) = application.threads
        assert (after is not before, after.name) == (True, before.name)
        assert before.state is ThreadState.DEAD
    assert isinstance(seen[0], ProcessingError)
    assert len(seen) == 1
    assert application.error is None
    assert states[-2:] == [ClientState.PENDING_SHUTDOWN, ClientState.NOT_RUNNING]


def test_by_default_a_failure_ends_the_instance(log, tmp_path, monkeypatch):
    states: list[ClientState] = []
    application = Application(counting(tmp_path / "state"), log, lambda new, old: states.append(new))
    running = Running(application)
    Trouble(monkeypatch, 2)
    send(log, 1)
    with running:
        running.join()
    assert "a bug" in str(running.error)
    assert states[-2:] == [ClientState.PENDING_ERROR, ClientState.ERROR]
    assert [thread for thread in application.threads if thread.state is not ThreadState.DEAD] == []


def test_a_failure_may_end_all_instances(log, tmp_path, monkeypatch):
    monkeypatch.setattr(coordinator, "_END_SECONDS", LIMIT_S)
    first, second = (Application(counting(tmp_path / name), log) for name in ("a", "b"))
    for application in (first, second):
        application.set_uncaught_exception_handler(lambda error: "shutdown_application")
    one, other = Running(first), Running(second)
    with one, other:
        until(
            lambda: sum(running_tasks(first).values()) * sum(running_tasks(second).values()) == 2,
            "both instances have tasks",
        )
        Trouble(monkeypatch, 1)
        send(log, 1)
        one.join()
        other.join()
    assert {first.state, second.state} == {ClientState.ERROR}
    texts = sorted((str(one.error), str(other.error)), key=len)
    assert texts[0] == "an instance has failed and requested that all instances stop"
    assert "a bug" in texts[1]


def test_all_instances_end_where_one_gets_the_request_last(log, tmp_path, monkeypatch):
    """The one that requests it is the leader here, and has the assignment before the other takes it."""
    monkeypatch.setattr(coordinator, "_END_SECONDS", LIMIT_S)
    first, second = (Application(counting(tmp_path / name), log) for name in ("a", "b"))
    first.set_uncaught_exception_handler(lambda error: "shutdown_application")
    polls: Counter[str] = Counter()
    poll = RebalanceListener.poll

    def slow(listener: RebalanceListener) -> None:
        requested = first._coordinator is not None and first._coordinator._end_assigned_at is not None
        is_first = listener is first._rebalance_listener
        polls["first"] += requested and is_first
        if is_first or not requested or polls["first"] > 20 or first.state is ClientState.ERROR:
            poll(listener)

    monkeypatch.setattr(RebalanceListener, "poll", slow)
    one, other = Running(first), Running(second)
    with one:
        until(lambda: sum(running_tasks(first).values()) == PARTITIONS, "the first instance has all tasks, and leads")
        with other:
            until(lambda: sum(running_tasks(second).values()) > 0, "both instances have tasks")
            first._handle("a thread", StreamkitError("a bug"))
            other.join()
            one.join()
    assert {first.state, second.state} == {ClientState.ERROR}
    assert str(other.error) == "an instance has failed and requested that all instances stop"


def test_paused_nothing_is_processed_and_afterwards_everything(log, tmp_path):
    with Running(Application(counting(tmp_path / "state"), log)) as application:
        send(log, 1)
        counted(log, 1)
        application.pause()
        send(log, 1)
        (thread,) = application.threads
        # Fetched by now, and still not processed.
        until(lambda: any(held.task.has_records() for held in thread._tasks.running.values()), "records wait")
        assert application.paused
        assert len(rows(log, "counts")) == KEYS
        application.resume()
        counted(log, 2)


def test_answers_have_their_names():
    assert failure_response("Replace-Thread") == "replace_thread"
    with pytest.raises(UsageError, match="'retry' is no response to a failing thread; expected replace_thread, "):
        failure_response("retry")
