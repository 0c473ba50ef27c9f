"""`enrich` in a stream thread: what is committed where tasks, transactions and threads end while calls have no answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from streamkit.errors import ProcessingError, RetriableTransportError, TaskCorruptedError
from streamkit.expressions import load_object
from streamkit.operators.core.parsed_values import CallRef
from streamkit.operators.kernels import lookups
from streamkit.plan import load
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.execution.handlers import Handlers
from streamkit.runtime.local.internal_topics import TopicsOnLog
from streamkit.runtime.local.setup import Settings, Shared
from streamkit.runtime.local.states import ThreadState
from streamkit.runtime.local.stream_thread import StreamThread
from streamkit.state.directory import StateDirectory
from tests.calls.support import write
from tests.cli.support import LIMIT_S
from tests.runtime.fake_log import FakeLog, FakeProducer
from tests.runtime.fakes import Clock
from tests.runtime.harness import run_round

MODULE = """
    import asyncio

    from streamkit import errors

    CALLS = []
    DURING = {}

    async def answer(value):
        CALLS.append(value)
        await asyncio.sleep(0)
        # What the test does while this call, and those of the records after it, have no answer.
        DURING.pop(value, lambda: None)()
        await asyncio.sleep(0)
        return value

    async def never_after(value):
        if await answer(value) >= 3:
            await asyncio.Event().wait()
        return value

    def fails(*given):
        raise getattr(errors, DURING["error"])("from elsewhere")
"""
TOPOLOGY = """\
    streamkit: 1
    application: app
    config: {processing.guarantee: exactly_once_v2, commit.interval.ms: 100}
    topics:
      in: {value: integer}
      out: {value: json}
    pipelines:
      p: {stream: in, steps: [STEP], to: out}
"""
IN, OUT = TopicPartition("in", 0), TopicPartition("out", 0)


class Enriching:
    """A stream thread over a log in memory, driven round by round."""

    def __init__(self, folder: Path, step: str = 'enrich: "user_code:answer"'):
        file = write(folder, TOPOLOGY.replace("STEP", "{" + step + "}"), MODULE)
        plan = load(file)
        (sub,) = plan.sub_topologies
        self.clock = Clock(0)
        self.log = FakeLog({"in": 1, "out": 1})
        self.shared = Shared(
            plan,
            self.log,
            Settings(exactly_once=True, commit_interval_ms=100, handlers=Handlers.of(plan.config)),
            StateDirectory(folder / "state", "app"),
            TopicsOnLog({"in": 1}, {sub.id: ("in",)}),
            clock=self.clock,
            elapsed=self.clock,
        )
        self.task = TaskId(sub.id, 0)
        self.calls: list[int] = self._of_module(folder, "CALLS")
        self.during: dict[object, object] = self._of_module(folder, "DURING")
        self.thread = StreamThread("t", self.shared)
        self.thread.assign([self.task])

    def __enter__(self) -> Enriching:
        self.thread._committer.open()
        self.thread._to(ThreadState.STARTING)
        return self

    def __exit__(self, *_exc: object) -> None:
        self.thread._shut_down(False)

    @staticmethod
    def _of_module(folder: Path, name: str):
        return load_object(CallRef("user_code", name, str(folder)))

    def send(self, *values: int) -> None:
        self.log.append([("in", b"k", value.to_bytes(4, "big"), 1, None, 0) for value in values])

    def round(self) -> None:
        run_round(self.thread)

    def commit(self) -> None:
        """A round after the commit interval."""
        self.clock.now += 101
        self.round()

    @property
    def written(self) -> list[int]:
        """What transactions have committed."""
        return [json.loads(row[2]) for row in self.log.rows[OUT]]

    @property
    def committed(self) -> int:
        found = self.log.offsets.get(IN)
        return 0 if found is None else found.offset


def test_a_commit_has_what_was_answered_and_nothing_else(tmp_path: Path) -> None:
    with Enriching(tmp_path) as app:
        app.send(1, 2)
        # Further records come, and the interval ends, while calls have no answer.
        app.during[2] = lambda: (app.send(3, 4), setattr(app.clock, "now", 101))
        app.round()
        assert (app.written, app.committed) == ([1, 2], 2)
        app.commit()
        assert (app.written, app.committed, app.calls) == ([1, 2, 3, 4], 4, [1, 2, 3, 4])


@pytest.mark.parametrize("end", ["lose", "revoke"])
def test_tasks_that_go_while_calls_have_no_answer(end: str, tmp_path: Path) -> None:
    """Lost ones commit nothing; of revoked ones all that was taken from the queue is answered and committed."""
    with Enriching(tmp_path) as app:
        app.send(1, 2)
        app.commit()
        app.send(3, 4, 5)
        app.during[4] = app.thread.lose if end == "lose" else lambda: app.thread.assign([])
        app.round()
        assert (app.written, app.committed) == ([1, 2], 2)
        app.round()
        assert (app.written, app.committed) == (([1, 2], 2) if end == "lose" else ([1, 2, 3, 4, 5], 5))
        app.thread.assign([app.task])
        app.send(6)
        app.commit()
        assert (app.written, app.committed) == ([1, 2, 3, 4, 5, 6], 6)
        assert app.calls == [1, 2, 3, 4, 5, *([3, 4, 5] if end == "lose" else []), 6]


@pytest.mark.parametrize("step", ["send", "commit", "after the commit"])
def test_a_transaction_that_fails_after_the_answers_is_repeated_from_its_beginning(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "send" if step == "send" else "commit"
    real: Callable[..., None] = getattr(FakeProducer, name)

    def fails(producer: FakeProducer, *given: object) -> None:
        monkeypatch.setattr(FakeProducer, name, real)
        if step == "after the commit":
            real(producer, *given)
        raise TaskCorruptedError("lost", on_disk=False) if step == "send" else RetriableTransportError("lost")

    with Enriching(tmp_path) as app:
        app.send(1, 2)
        app.during[2] = lambda: monkeypatch.setattr(FakeProducer, name, fails)
        app.commit()
        app.send(3)
        app.round()
        app.commit()
        assert (app.written, app.committed) == ([1, 2, 3], 3)
        assert app.calls == [1, 2, *([] if step == "after the commit" else [1, 2]), 3]


def test_a_poll_that_fails_after_the_answers_moves_no_position(tmp_path: Path) -> None:
    with Enriching(tmp_path) as app:
        app.send(1, 2)
        app.during[2] = lambda: app.log.failures.append(RetriableTransportError("no answer"))
        app.round()
        app.send(3)
        app.round()
        app.commit()
        assert (app.written, app.committed, app.calls) == ([1, 2, 3], 3, [1, 2, 3])


def test_a_stop_commits_nothing_of_a_transaction_with_calls_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "STOP_SECONDS", 0.0)
    app = Enriching(tmp_path, 'enrich: {call: "user_code:never_after", timeout: 1h}')
    app.send(1, 2)
    app.during[2] = lambda: app.send(3, 4)
    app.during[4] = app.thread.stop
    app.thread.start()
    assert app.thread.join(LIMIT_S)
    assert (app.thread.error, app.calls) == (None, [1, 2, 3, 4])
    assert (app.written, app.committed) == ([], 0)


@pytest.mark.parametrize("step", ['enrich: {call: "user_code:fails"', 'map_values: {value: {call: "user_code:fails"}'])
@pytest.mark.parametrize("name", ["RetriableTransportError", "UnreachableError", "FencedError", "ProductionError"])
def test_errors_of_a_log_that_a_function_raises_are_failures_of_its_record(
    step: str, name: str, tmp_path: Path
) -> None:
    """A thread that took them for errors of its own log would go on behind the records that it had taken."""
    with Enriching(tmp_path, f"{step}}}") as app:
        app.during["error"] = name
        app.send(1)
        with pytest.raises(ProcessingError, match=r"offset 0: [^(]*from elsewhere"):
            app.round()
    assert (app.written, app.committed) == ([], 0)


@pytest.mark.parametrize("name", ["StoppedError", "TaskCorruptedError", "ProcessingError"])
def test_errors_that_no_handler_handles_are_handled_where_the_function_raises_them(name: str, tmp_path: Path) -> None:
    with Enriching(tmp_path, 'enrich: {call: "user_code:fails", on_error: continue}') as app:
        app.during["error"] = name
        app.send(1)
        app.commit()
        assert (app.written, app.committed) == ([], 1)
        (task,) = app.thread.tasks()
        assert task.dropped == 1
