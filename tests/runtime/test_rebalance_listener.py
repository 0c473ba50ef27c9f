"""The rebalance listener: lost tasks are closed before it takes part in the next generation."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from streamkit.errors import FencedError, ForeignMembersError
from streamkit.runtime.local import rebalance_listener as module
from streamkit.runtime.local.rebalance_listener import RebalanceListener
from streamkit.runtime.local.states import ThreadState


class Thread:
    """A thread that does what it is told when the test says so."""

    def __init__(self) -> None:
        self.name, self.stopping, self.polled_at = "t", False, float("inf")
        self.assignment: Any = [], []
        self.lost = Event()
        self.told: list[str] = []
        self.busy = False
        self.state = ThreadState.RUNNING

    def settled(self) -> bool:
        return not self.busy

    def assign(self, active: Any, standby: Any = ()) -> None:
        self.told.append("assign")

    def lose(self) -> None:
        self.told.append("lose")
        self.busy = True


def test_lost_tasks_are_closed_before_a_new_generation_is_announced() -> None:
    answers: list[Any] = [FencedError("gone"), {}]
    asked = []

    def poll(join: bool) -> Any:
        asked.append(join)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    coordinator = SimpleNamespace(poll=poll, use_threads=lambda names: None, is_member=False, assigned=True)
    thread = Thread()
    listener = RebalanceListener(coordinator, lambda: [thread], 1000, 1000)  # type: ignore[arg-type,list-item]
    listener.poll()
    listener.poll()
    assert (asked, thread.told) == ([True], ["lose"])
    thread.busy = False
    listener.poll()
    assert (asked, thread.told) == ([True, True], ["lose", "assign"])


def test_members_of_another_kind_are_waited_for_no_longer_than_their_session(monkeypatch, caplog) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module, "monotonic", lambda: clock.now)
    joined: list[bool] = []
    foreign = ForeignMembersError("its members are not streamkit's; stop them first")

    def poll(join: bool) -> Any:
        if not joined:
            raise foreign
        return {}

    coordinator = SimpleNamespace(poll=poll, use_threads=lambda names: None, is_member=False, assigned=True)
    thread = Thread()
    listener = RebalanceListener(coordinator, lambda: [thread], 1000, 45_000)  # type: ignore[arg-type,list-item]
    for second in range(61):
        clock.now = 100.0 + second
        listener.poll()
    assert [each.getMessage() for each in caplog.records] == [
        "the group has members that are not streamkit's; waiting up to 60 s for them to end"
    ]
    joined.append(True)
    clock.now += 1
    listener.poll()
    assert thread.told == ["assign"]
    # Once it is a member the time begins again.
    joined.clear()
    listener.poll()
    clock.now += 60
    listener.poll()
    clock.now += 1
    with pytest.raises(ForeignMembersError):
        listener.poll()


def test_a_group_is_quiet_some_seconds_after_its_last_rebalance(monkeypatch) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module, "monotonic", lambda: clock.now)
    answers: list[Any] = [{}, None]
    coordinator = SimpleNamespace(poll=lambda join: answers.pop(0), use_threads=lambda names: None)
    coordinator.is_member, coordinator.assigned, coordinator.rebalancing = False, True, False
    thread = Thread()
    listener = RebalanceListener(coordinator, lambda: [thread], 1000, 1000)  # type: ignore[arg-type,list-item]

    def after(seconds: float) -> bool:
        clock.now += seconds
        return listener.is_quiet()

    assert [after(9), after(2)] == [False, True]
    listener.poll()
    assert [after(9), after(2)] == [False, True]
    for owner, name in ((coordinator, "rebalancing"), (thread, "busy")):
        setattr(owner, name, True)
        assert not listener.is_quiet()
        setattr(owner, name, False)
        assert [after(9), after(2)] == [False, True]
