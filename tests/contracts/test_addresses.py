"""What an address names, an address without an answer, and settings of the user."""

from __future__ import annotations

import pytest

from streamkit.errors import (
    ProductionError,
    StreamkitError,
    TransportError,
    UnreachableError,
)
from streamkit.record import TopicPartition
from streamkit.transport import open_transport
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.kafka import KafkaTransport
from streamkit.transport.log_interface import (
    NewTopic,
)
from tests.contracts.records import create, produce


def test_addresses_name_their_transports(tmp_path):
    assert isinstance(open_transport("localhost:9092", {}, tmp_path), KafkaTransport)
    assert isinstance(open_transport("embedded:9092", {}, tmp_path), KafkaTransport)
    inside, beside = (open_transport(name, None, tmp_path) for name in ("embedded", f"embedded:{tmp_path / 'x'}"))
    assert isinstance(inside, EmbeddedTransport)
    assert inside.directory == tmp_path / "embedded"
    assert isinstance(beside, EmbeddedTransport)
    assert beside.directory == tmp_path / "x"
    with pytest.raises(StreamkitError, match="empty"):
        open_transport(" ", {}, tmp_path)


@pytest.mark.parametrize(
    "ask",
    [
        lambda t: t.admin().topics(),
        lambda t: t.admin().create_topics([NewTopic("t", 1)]),
        lambda t: t.consumer("g").committed([TopicPartition("t", 0)]),
        lambda t: t.consumer("g").end_offsets([TopicPartition("t", 0)]),
        lambda t: t.producer(transactional_id="t").begin(),
    ],
)
def test_an_address_where_nobody_answers_is_named_in_one_line(ask, capfd):
    transport = KafkaTransport("127.0.0.1:1", {"common": {"default.api.timeout.ms": "300"}})
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1") as raised:
        ask(transport)
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is not None
    assert capfd.readouterr().err == ""


@pytest.mark.broker
def test_the_users_settings_win(broker):
    transport = KafkaTransport(broker.address, {"producer": {"message.max.bytes": "2000"}})
    topic = create(transport, 1)
    with pytest.raises(ProductionError, match=topic):
        produce(transport, [(topic, b"k", b"x" * 5000, 1, None, None)])
    with pytest.raises(TransportError, match=r"no\.such\.setting"):
        KafkaTransport(broker.address, {"main": {"no.such.setting": "1"}}).consumer("g")
