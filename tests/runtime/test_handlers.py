"""Handlers: which of them answers where."""

from __future__ import annotations

import pytest

from streamkit.config import Config
from streamkit.errors import DeserializationError, ProcessingError
from streamkit.operators.core.task_services import FailedRecord
from streamkit.runtime.execution.handlers import ErrorPolicy, Handlers

RECORD = FailedRecord(topic="in", partition=0, offset=3, timestamp=5, raw_key=b"k", raw_value=b"v", headers=None)


class Node:
    """A node without a place in a file."""

    name = "KTABLE-SOURCE-0000000001"


def policy(sent: list[tuple], **settings: str | bool) -> ErrorPolicy:
    """The policy of a global task."""
    config = Config("app", {name.replace("_", "."): value for name, value in settings.items()})
    return ErrorPolicy((Node(),), Handlers.of(config).of_globals(), sent.append, lambda: 7)


def test_a_global_store_fails_unless_its_handler_is_enabled():
    sent: list[tuple] = []
    everywhere = {"processing_exception_handler": "continue", "errors_dead_letter_queue_topic_name": "dead"}
    with pytest.raises(ProcessingError, match="topic in, partition 0, offset 3"):
        policy(sent, **everywhere).processing(0, ValueError("bad"), RECORD)
    enabled = policy(sent, **everywhere, processing_exception_handler_global_enabled=True)
    enabled.processing(0, ValueError("bad"), RECORD)
    assert sent == []  # global tasks write nothing, dead letters neither


def test_global_records_that_do_not_decode_follow_their_handler():
    sent: list[tuple] = []
    policy(sent, deserialization_exception_handler="continue").deserialization(0, ValueError("bad"), RECORD)
    with pytest.raises(DeserializationError):
        policy(sent).deserialization(0, ValueError("bad"), RECORD)
    assert sent == []
