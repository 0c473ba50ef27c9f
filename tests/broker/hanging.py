"""A lost transaction: open in a partition, while its coordinator has ended it.

Brokers leave one behind when they lose a marker. Here it is the late write of a producer, which a broker accepts if it does
not verify partitions (`transaction.partition.verification.enable=false`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.protocol.producer import ProduceRequest
from kafka.record.memory_records import MemoryRecordsBuilder

from streamkit.record import TopicPartition

UNVERIFIED = "transaction.partition.verification.enable=false\n"
"""The setting of a broker that accepts such a write."""


def leave_open(
    address: str,
    transactional_id: str,
    ended_in: str,
    place: TopicPartition,
    values: Sequence[int],
    committed: bool = True,
    after_abort: bool = False,
) -> int:
    """End a transaction with a record in the topic `ended_in`, and one with the key k0 in `place` for all values but the last.

    Then write a late record with the last value there; return its offset. `after_abort`: abort one there before.
    """
    *values, last = values
    producer = Producer({"bootstrap.servers": address, "transactional.id": transactional_id})
    producer.init_transactions(30)
    if after_abort:
        producer.begin_transaction()
        producer.produce(place.topic, b"v", b"k", place.partition)
        producer.flush()
        producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(ended_in, b"x", b"x", 0)
    for value in values:
        producer.produce(place.topic, value.to_bytes(8), b"k0", place.partition)
    producer.flush()
    (producer.commit_transaction if committed else producer.abort_transaction)(30)
    with closing(KafkaAdminClient(bootstrap_servers=[address])) as admin:
        known = admin.describe_transactions([transactional_id])[transactional_id]
        records = MemoryRecordsBuilder(
            2, 0, 1 << 14, 0, True, known.producer_id, known.producer_epoch, len(values) + after_abort
        )
        records.append(1000, b"k0", last.to_bytes(8), [])
        records.close()
        part = ProduceRequest.TopicProduceData.PartitionProduceData(index=place.partition, records=records.buffer())
        data = ProduceRequest.TopicProduceData(name=place.topic, partition_data=[part])
        request = ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=[data], max_version=9
        )
        (node,) = [broker["broker_id"] for broker in admin.describe_cluster()["brokers"]]
        response = admin._manager.run(admin._manager.send, request, node)
    (answer,) = response.responses[0].partition_responses
    assert answer.error_code == 0, answer
    return int(answer.base_offset)
