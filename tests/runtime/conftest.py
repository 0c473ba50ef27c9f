"""What tests of the runtime share: an embedded log with the topics of `counting.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamkit.transport.embedded import EmbeddedTransport
from tests.runtime.counting import create


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedTransport]:
    transport = EmbeddedTransport(tmp_path / "log")
    create(transport)
    yield transport
    transport.close()
