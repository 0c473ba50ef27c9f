"""States of threads and of the client, and the number of records of a round."""

from __future__ import annotations

import pytest

from streamkit.errors import StateError
from streamkit.runtime.local.states import ClientState, ThreadState, check_transition, client_state
from streamkit.runtime.local.stream_thread import LEAST, START, Iterations


def test_states_follow_java():
    check_transition(ThreadState.RUNNING, ThreadState.PARTITIONS_REVOKED)
    with pytest.raises(StateError, match="RUNNING can't follow CREATED"):
        check_transition(ThreadState.CREATED, ThreadState.RUNNING)


def test_a_client_runs_when_all_its_threads_do():
    assert client_state([ThreadState.RUNNING, ThreadState.DEAD], True) is ClientState.RUNNING
    assert client_state([ThreadState.RUNNING, ThreadState.STARTING], True) is ClientState.REBALANCING
    assert client_state([ThreadState.RUNNING], False) is ClientState.REBALANCING


def test_the_pace_grows_until_something_else_wants_its_turn():
    iterations = Iterations(longest_ms=500)
    iterations.adapt(0, interrupted=False)
    assert iterations.records == 2 * START
    iterations.adapt(0, interrupted=True)
    assert iterations.records == START
    iterations.adapt(251, interrupted=False)
    assert iterations.records == START
    iterations.adapt(501, interrupted=False)
    assert iterations.records == START // 2
    # A step that waits for answers would wait for each record, if commits made rounds ever shorter.
    for _ in range(10):
        iterations.adapt(0, interrupted=True)
    assert iterations.records == LEAST
    # Only a round that took too long becomes shorter than that, also if it failed.
    iterations.note_failure(500)
    assert iterations.records == LEAST
    iterations.note_failure(501)
    iterations.adapt(501, interrupted=True)
    assert iterations.records == LEAST // 8
    iterations.adapt(0, interrupted=True)
    assert iterations.records == LEAST // 8
