"""A hanging transaction: open on a partition, while its coordinator has ended the last transaction of the transactional id.

Brokers leave one behind when they lose a marker. Here it is the late write of a producer, which a broker accepts if it does
not verify partitions (`transaction.partition.verification.enable=false`).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.admin._transactions import AbortTransactionSpec
from kafka.protocol.producer import ProduceRequest
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.structs import TopicPartition

from streamkit.transport.log_interface import OpenTransaction

UNVERIFIED = "transaction.partition.verification.enable=false\n"
"""The setting of a broker that accepts such a write."""


def end_by_hand(address: str, transactions: Iterable[OpenTransaction]) -> None:
    """Abort transactions as `kafka-transactions.sh abort` does."""
    with closing(KafkaAdminClient(bootstrap_servers=[address])) as admin:
        for each in transactions:
            place = TopicPartition(*each.partition)
            (found,) = [
                producer
                for producer in admin.describe_producers([place])[place].active_producers
                if producer.producer_id == each.producer_id
            ]
            epoch = max(0, found.coordinator_epoch)
            admin.abort_transaction(AbortTransactionSpec(place, each.producer_id, each.epoch, epoch))


def leave_open(address: str, transactional_id: str, ended_in: str, topic: str, partition: int, key: bytes) -> int:
    """Commit a transaction on the topic `ended_in`, then write a late record of it to a partition; return its offset."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(ended_in, b"x", b"x", 0)
    producer.commit_transaction(30)
    with closing(KafkaAdminClient(bootstrap_servers=[address])) as admin:
        known = admin.describe_transactions([transactional_id])[transactional_id]
        records = MemoryRecordsBuilder(2, 0, 1 << 14, 0, True, known.producer_id, known.producer_epoch, 0)
        records.append(1000, key, (1).to_bytes(8), [])
        records.close()
        part = ProduceRequest.TopicProduceData.PartitionProduceData(index=partition, records=records.buffer())
        data = ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
        request = ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=[data], max_version=9
        )
        (node,) = [broker["broker_id"] for broker in admin.describe_cluster()["brokers"]]
        response = admin._manager.run(admin._manager.send, request, node)
    (answer,) = response.responses[0].partition_responses
    assert answer.error_code == 0, answer
    return int(answer.base_offset)
