"""Handlers: which of them answers where."""

from __future__ import annotations

import re
import traceback

import pytest

from streamkit.config import Config
from streamkit.errors import DeserializationError, ProcessingError, RefusedError
from streamkit.operators.core.task_services import FailedRecord
from streamkit.runtime.execution.handlers import Drop, ErrorPolicy, Handlers, human_reason

RECORD = FailedRecord(topic="in", partition=0, offset=3, timestamp=5, raw_key=b"k", raw_value=b"v", headers=None)


class Node:
    """A node without a place in a file."""

    name = "KTABLE-SOURCE-0000000001"
    on_error = None


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


CARD = "4111-1111"
SECRET = FailedRecord(
    topic="in", partition=0, offset=3, timestamp=5, raw_key=b"key-9", raw_value=CARD.encode(), headers=None
)
HIDDEN = "node KTABLE-SOURCE-0000000001: topic in, partition 0, offset 3: ValueError (test_handlers.py, line N) (log.record.contents hides its text)"


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        (
            "full",
            "node KTABLE-SOURCE-0000000001: topic in, partition 0, offset 3: ValueError: could not convert string to float: '4111-1111' (test_handlers.py, line N) (key key-9, value 4111-1111)",
        ),
        ("keys", f"{HIDDEN} (key key-9)"),
        ("none", HIDDEN),
    ],
)
@pytest.mark.parametrize("kind", ["processing", "deserialization", "production"])
def test_what_failures_show_of_a_record_is_a_setting(contents: str, text: str, kind: str) -> None:
    def fail(handled: str) -> tuple[list[tuple], Drop]:
        sent: list[tuple] = []
        settings = {"log.record.contents": contents, "errors.dead.letter.queue.topic.name": "dead"}
        made = ErrorPolicy(
            (Node(),), Handlers.of(Config("app", {**settings, f"{kind}.exception.handler": handled})), sent.append, int
        )
        try:
            float(CARD)
        except ValueError as error:
            if kind == "production":
                return sent, made.refusal(0, error, SECRET, encoding=True)
            return sent, getattr(made, kind)(0, error, SECRET)
        raise AssertionError

    sent, drop = fail("continue")
    assert re.sub(r"line \d+", "line N", drop.message()) == text
    headers = dict(sent[0][4])
    assert headers["__streams.errors.exception"] == b"ValueError"
    written = b"".join(value or b"" for value in headers.values()).decode()
    assert "test_handlers.py" in written
    assert sent[0][2] == CARD.encode(), "the dead letter itself is the record"
    with pytest.raises((ProcessingError, DeserializationError, RefusedError)) as caught:
        fail("fail")
    assert re.sub(r"line \d+", "line N", str(caught.value)) == text
    traced = "".join(traceback.format_exception(caught.value))
    assert "test_handlers.py" in traced
    assert (CARD in written, CARD in traced) == (contents == "full", contents == "full")


def test_reasons_that_name_types_only_are_always_shown() -> None:
    hidden = Handlers(contents="none")
    for error, reason in (
        (
            TypeError("'>' not supported between instances of 'str' and 'int'"),
            "text > a whole number can't be compared",
        ),
        (ZeroDivisionError("division by zero"), "division by zero"),
        (KeyError(CARD), "KeyError (log.record.contents hides its text)"),
        (
            ValueError(f"invalid literal for int() with base 10: '{CARD}'"),
            "ValueError (log.record.contents hides its text)",
        ),
    ):
        assert human_reason(hidden.shown(error)) == reason
