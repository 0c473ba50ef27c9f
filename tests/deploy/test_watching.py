"""Alert rules and the dashboard: their rules fire when they should, and every metric that they name exists."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import NewTopic
from tests.broker.support import until
from tests.http.support import request, served
from tests.packaging.environments import ROOT
from tests.requirements import tool

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "helm" / "streamkit" / "files" / "alerts.yaml"
DASHBOARD = DEPLOY / "helm" / "streamkit" / "files" / "dashboard.json"
FAULTY = """\
streamkit: 1
application: faulty
config:
  bootstrap.servers: embedded
  commit.interval.ms: 100
  deserialization.exception.handler: continue
  errors.dead.letter.queue.topic.name: dead
topics: {numbers: {key: string, value: long, partitions: 1}, dead: {partitions: 1}, out: {value: long, partitions: 1}}
pipelines:
  count: {stream: numbers, steps: [group_by_key, {count: counts}, to_stream], to: out}
"""
METRIC = re.compile(r"\b((?:kafka_streams|kafka_consumer|streamkit)_[a-z0-9_]+)")


def expressions() -> list[str]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [rule["expr"] for group in groups for rule in group["rules"]] + [
        target["expr"] for panel in panels for target in panel["targets"]
    ]


@pytest.mark.process
def test_alerts_fire_when_they_should(tmp_path: Path):
    tests = (Path(__file__).parent / "alert_rules.yaml").read_text(encoding="utf-8")
    file = tmp_path / "alert_rules.yaml"
    file.write_text(tests.replace("RULES", str(RULES)), encoding="utf-8")
    for arguments in (["check", "rules", RULES], ["test", "rules", file]):
        done = subprocess.run([tool("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_exists_in_a_scrape(tmp_path: Path):
    """One record is counted, one has no key and is dropped, one cannot be read and becomes a dead letter."""
    log = EmbeddedTransport(tmp_path / "log.sqlite")
    admin = log.admin()
    admin.create_topics([NewTopic("numbers", 1), NewTopic("dead", 1), NewTopic("out", 1)])
    admin.close()
    producer = log.producer()
    producer.send(
        [("numbers", key, value, 1, None, None) for key, value in ((b"a", bytes(8)), (None, bytes(8)), (b"a", b"?"))]
    )
    producer.flush()
    producer.close()
    with served(tmp_path / "faulty", log, text=FAULTY) as (address, _):

        def scraped() -> set[str]:
            lines = request(address, "/metrics").text.splitlines()
            return {re.split("[{ ]", line)[0] for line in lines if not line.startswith("#")}

        named = {name for expression in expressions() for name in METRIC.findall(expression)}
        assert len(named) > 15
        until(lambda: named <= scraped(), f"all of {sorted(named)} exist")
    log.close()
