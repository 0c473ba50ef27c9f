"""What an instance says to a streams group."""

from __future__ import annotations

import pytest

from streamkit.runtime.local.internal_topics import TopicsOnLog
from streamkit.runtime.local.streams_group import described_topology, streams_topology
from tests.runtime.plans import pass_through


@pytest.mark.parametrize("pushed", [True, False])
def test_the_description_of_the_topology_is_sent_unless_the_setting_forbids_it(pushed: bool) -> None:
    plan = pass_through(**{"topology.description.push.enabled": pushed})
    topology = streams_topology(plan, TopicsOnLog({}, {}), {}, lambda partitions: {}, 1)
    assert topology.description == (described_topology(plan) if pushed else None)
