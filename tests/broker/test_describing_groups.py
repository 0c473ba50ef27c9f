"""Members of a group, also while its broker is gone: librdkafka ends the process when it describes a group then."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from streamkit.errors import TransportError, UnreachableError
from streamkit.transport import open_transport
from streamkit.transport.kafka.kafka_admin import KafkaAdmin
from streamkit.transport.log_interface import Admin, GroupDescription
from tests.broker.counting import Process, counting, feed
from tests.broker.kafka_broker import Broker
from tests.broker.support import Log, until

pytestmark = pytest.mark.broker

# A broker that was killed starts again only when its session has ended.
SETTINGS = "broker.session.timeout.ms=2000\nbroker.heartbeat.interval.ms=300\n"


def is_empty(admin: Admin, group: str) -> bool:
    """Whether the group has no member; not as long as the broker that has just started refuses to say so."""
    try:
        return not admin.describe_group(group).members
    except TransportError:
        return False


def test_a_group_is_described_while_it_runs_and_after_the_broker_was_gone(tmp_path: Path) -> None:
    with Broker(settings=SETTINGS) as broker, closing(Log(broker.address)) as log:
        # The group has its killed member as long as the session of that lasts.
        app = counting(tmp_path, log, session_timeout_ms=6000)
        feed(app, 1)
        transport = open_transport(broker.address, {"common": {"default.api.timeout.ms": "2000"}}, "unused")
        with closing(transport), closing(transport.admin()) as admin:
            with Process(app, tmp_path):
                until(lambda: log.is_read(app.application, [app.topic("words")]), "the input is read")
                (member,) = admin.describe_group(app.application).members
                assert {place for place in member.partitions if place.topic == app.topic("words")} == {
                    (app.topic("words"), 0),
                    (app.topic("words"), 1),
                }
            # There are offsets by now, so the coordinator is ready.
            assert admin.describe_group("nobody") == GroupDescription()
            for _ in range(2):
                broker.kill()
                for _ in range(2):
                    with pytest.raises(UnreachableError, match="could not be described: no Kafka broker answers"):
                        admin.describe_group(app.application)
                broker.start()
                until(lambda: is_empty(admin, app.application), "the group is described, and has no member")


def test_a_group_of_the_new_consumer_protocol_is_described(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = f"new-protocol-{broker.address.replace(':', '-')}"
    log = Log(broker.address)
    settings = {"bootstrap.servers": broker.address, "group.id": topic, "group.protocol": "consumer"}
    with closing(log), closing(log.transport.admin()) as admin, closing(Consumer(settings)) as consumer:
        log.create(topic, 1)
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "the partition is assigned")
        (member,) = admin.describe_group(topic).members
        assert member.partitions == {(topic, 0)}
        # Nothing else is asked of librdkafka.
        monkeypatch.setattr(KafkaAdmin, "_describe_consumer_group", None)
        assert admin.describe_group("nobody") == GroupDescription()
