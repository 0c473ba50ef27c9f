"""Two processes of an application, one of which a test kills."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import NewTopic
from tests.broker.support import until
from tests.http.test_instances import Instance
from tests.http.test_state import SLOW_TO_EXPIRE


@contextmanager
def killed_instance(folder: Path) -> Iterator[tuple[Instance, Instance, Callable[[int], None]]]:
    """Give an instance that stays, one to kill, and a function that writes so many records to their four partitions."""
    log = EmbeddedTransport(folder / "log")
    admin = log.admin()
    admin.create_topics([NewTopic("events", 4)])
    admin.close()
    file = folder / "topology.yaml"
    file.write_text(SLOW_TO_EXPIRE.format(application="visits", topic="events"))
    instances: list[Instance] = []
    try:
        for name in ("a", "b"):
            instances.append(Instance(folder / name, file, f"embedded:{folder / 'log'}"))
            until(instances[-1].ready, f"instance {name} is ready")
        until(lambda: [each.tasks("active") for each in instances] == [2, 2], "each has two tasks")
        yield instances[0], instances[1], partial(_write, log)
    finally:
        for each in instances:
            each.end(signal.SIGKILL)
        log.close()


def _write(log: EmbeddedTransport, count: int) -> None:
    producer = log.producer()
    now = time.time_ns() // 1_000_000
    producer.send([("events", b"k%d" % number, b"x", now, None, number % 4) for number in range(count)])
    producer.flush()
    producer.close()
