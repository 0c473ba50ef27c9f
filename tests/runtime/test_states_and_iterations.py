"""States of threads and of the client, and the number of records of a round."""

from __future__ import annotations

import pytest

from streamkit.errors import StateError
from streamkit.runtime.local.states import ClientState, ThreadState, check_transition, client_state
from streamkit.runtime.local.stream_thread import START, Iterations


def test_states_follow_java():
    check_transition(ThreadState.RUNNING, ThreadState.PARTITIONS_REVOKED)
    with pytest.raises(StateError, match="RUNNING can't follow CREATED"):
        check_transition(ThreadState.CREATED, ThreadState.RUNNING)


def test_a_client_runs_when_all_its_threads_do():
    assert client_state([ThreadState.RUNNING, ThreadState.DEAD], True) is ClientState.RUNNING
    assert client_state([ThreadState.RUNNING, ThreadState.STARTING], True) is ClientState.REBALANCING
    assert client_state([ThreadState.RUNNING], False) is ClientState.REBALANCING


def test_the_pace_grows_until_something_else_wants_its_turn():
    iterations = Iterations(max_poll_interval_ms=1000)
    iterations.adapt(interrupted=False, since_poll_ms=0)
    assert iterations.records == 2 * START
    iterations.adapt(interrupted=True, since_poll_ms=0)
    assert iterations.records == START
    iterations.adapt(interrupted=False, since_poll_ms=501)
    assert iterations.records == START // 2
