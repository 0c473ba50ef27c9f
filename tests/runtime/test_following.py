"""Following a group: what is lost is closed before the next generation is heard of."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from typing import Any

from streamkit.errors import FencedError
from streamkit.runtime.local.following import Following


class Thread:
    """A thread that does what it is told when the test says so."""

    def __init__(self) -> None:
        self.name, self.stopping, self.polled_at = "t", False, float("inf")
        self.lost = Event()
        self.told: list[str] = []
        self.busy = False

    def settled(self) -> bool:
        return not self.busy

    def assign(self, active: Any, standby: Any = ()) -> None:
        self.told.append("assign")

    def lose(self) -> None:
        self.told.append("lose")
        self.busy = True


def test_a_new_generation_is_not_heard_of_before_what_is_lost_is_closed() -> None:
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
    following = Following(coordinator, lambda: [thread], 1000)  # type: ignore[arg-type,list-item]
    following.look()
    following.look()
    assert (asked, thread.told) == ([True], ["lose"])
    thread.busy = False
    following.look()
    assert (asked, thread.told) == ([True, True], ["lose", "assign"])
