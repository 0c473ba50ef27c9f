"""What confluent-kafka throws although it is no exception, as it now and then does with a fatal error."""

from __future__ import annotations

import ctypes

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamkit.errors import FencedError
from streamkit.transport.kafka.kafka_errors import call, translate


def fails_for_good(seconds: float) -> None:
    """Throw as its C code does; nothing written in Python can."""
    throw = ctypes.pythonapi.PyErr_SetObject
    throw.argtypes, throw.restype = [ctypes.py_object, ctypes.py_object], None
    throw(KafkaError, KafkaError(KafkaError._FENCED, "fenced by a newer instance", True))


def test_it_becomes_an_exception() -> None:
    with pytest.raises(KafkaException) as caught:
        call(fails_for_good, 1.0)
    assert isinstance(translate(caught.value, "records could not be written", "here"), FencedError)


def test_everything_else_passes() -> None:
    assert call(int, "7") == 7
    with pytest.raises(ValueError, match="seven"):
        call(int, "seven")
    with pytest.raises(KeyboardInterrupt):
        call(interrupted)


def interrupted() -> None:
    raise KeyboardInterrupt
