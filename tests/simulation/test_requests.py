"""The simulated broker answers as a real one does; `python -m tests.simulation.requests` compares more histories."""

from __future__ import annotations

import pytest

from tests.broker.kafka_broker import Broker
from tests.simulation.requests import Comparison

SEEDS = 6


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_the_simulated_broker_answers_as_kafka_does(broker: Broker, seed: int) -> None:
    comparison = Comparison(broker.address, seed)
    comparison.run()
    assert len(comparison.lines) > 2 * SEEDS
