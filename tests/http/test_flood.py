"""A flood of useless connections while an application runs, with few files that it may open."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections import Counter
from http.client import HTTPException
from pathlib import Path

from streamkit.record import TopicPartition
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import NewTopic
from tests.broker.support import until
from tests.cli.support import LIMIT_S, command
from tests.http import flood
from tests.http.support import request
from tests.ports import free_ports

FILES = 256
"""That the application may open; the flood alone has eight times as many."""
WORDS = [f"word-{number * 7919 % 2003}" for number in range(30_000)]
COUNTS = """\
streamkit: 1
application: counts
config: {{bootstrap.servers: embedded, state.dir: {state}, commit.interval.ms: 100, num.stream.threads: 2}}
topics:
  words: {{key: string, value: string, partitions: 2}}
  counts: {{key: string, value: long, partitions: 2}}
pipelines:
  words:
    stream: words
    steps: [{{group_by: value}}, {{count: counts}}, to_stream]
    to: counts
"""


PARTITIONS = [TopicPartition("counts", 0), TopicPartition("counts", 1)]


def write_words(log: EmbeddedTransport) -> None:
    producer = log.producer()
    producer.send([("words", None, word.encode(), at, None, at % 2) for at, word in enumerate(WORDS, 1)])
    producer.flush()
    producer.close()


class Written:
    """The counts that an application has written, read as they come."""

    def __init__(self, log: EmbeddedTransport):
        self._consumer = log.consumer(None)
        self._consumer.assign(dict.fromkeys(PARTITIONS, 0))
        self.last: dict[str, int] = {}

    def complete(self) -> bool:
        """Read what is there; return whether every word has been counted."""
        for batch in self._consumer.poll(10_000, 0):
            for key, value in zip(batch.keys, batch.values, strict=True):
                self.last[key.decode()] = int.from_bytes(value, "big")
        return sum(self.last.values()) >= len(WORDS)


def test_a_flood_changes_no_result_and_fills_no_log(tmp_path: Path):
    file, port = tmp_path / "topology.yaml", *free_ports(1)
    file.write_text(COUNTS.format(state=tmp_path / "state"))
    log = EmbeddedTransport(tmp_path / "state" / "embedded")
    admin = log.admin()
    admin.create_topics([NewTopic("words", 2), NewTopic("counts", 2)])
    with (tmp_path / "run.log").open("wb") as written:
        application = subprocess.Popen(
            command("run", file, "--http", f"127.0.0.1:{port}", "--set", "http.idle.timeout.ms=1000"),
            stderr=written,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)),
        )
    flooder: subprocess.Popen[str] | None = None
    try:
        until(lambda: answers(port) or application.poll() is not None, "the application is ready")
        flooder = subprocess.Popen(
            [sys.executable, flood.__file__, "127.0.0.1", str(port), "2000"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert flooder.stdout is not None
        assert flooder.stdout.readline() == "flooding\n"
        write_words(log)
        counts = Written(log)
        until(lambda: counts.complete() or application.poll() is not None, "all words are counted")
        assert counts.last == Counter(WORDS)
        opened = json.loads(flooder.communicate("", timeout=LIMIT_S)[0])
        assert sum(opened.values()) >= 2000
        assert set(opened) == set(flood.KINDS)
        # The flood over, it answers as before.
        metrics = until(lambda: metrics_of(port), "the application answers again")
        application.send_signal(signal.SIGTERM)
        assert application.wait(LIMIT_S) == 0
    finally:
        for process in (flooder, application):
            if process is not None:
                process.kill()
                process.wait()
        log.close()
    assert f"streamkit_http_connections_limit {FILES // 4}.0" in metrics
    lines = (tmp_path / "run.log").read_text()
    assert "beyond the limit" in lines
    assert "Traceback" not in lines
    assert len(lines) < 10_000, lines[:2000]


def metrics_of(port: int) -> str:
    """Return the metrics; nothing where the request is refused, or cut since it took more than the idle time."""
    try:
        answer = request(f"127.0.0.1:{port}", "/metrics")
    except (OSError, HTTPException):
        return ""
    return answer.text if answer.status == 200 else ""


def answers(port: int) -> bool:
    try:
        return request(f"127.0.0.1:{port}", "/ready").status == 200
    except (OSError, HTTPException):
        return False
