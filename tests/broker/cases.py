"""Conformance cases put on a real log: times shifted, all inputs there before the start, compared with `try`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from streamkit.plan import load
from streamkit.runtime.driver import run_case
from streamkit.runtime.records import RecordJson
from tests.broker.support import LIMIT_S, App, Log, fresh, kill, until
from tests.java import build

FOLDER = Path(__file__).parents[1] / "conformance"
# Kafka keeps no time 0. A multiple of every window's size and advance in the cases, so that windows stay what they are.
SHIFT = 30 * 86_400_000


class _Loader(yaml.SafeLoader):
    """Reads `on:` of a join as text, as YAML 1.2 does."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:bool"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), list("tf"))


def inputs(case: str, as_given: bool = False) -> list[dict]:
    """The records of a case, shifted in time, in the order in which one task takes them (architecture.md) or as given."""
    text = (FOLDER / case / "input.jsonl").read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines() if line.strip()]
    records = [{**record, "timestamp": record["timestamp"] + SHIFT} for record in records if "topic" in record]
    return records if as_given else in_order_of_one_task(records)


def in_order_of_one_task(records: list[dict]) -> list[dict]:
    """Records in the order in which one task takes them that finds them all there."""
    highest: dict[str, int] = {}
    places = []
    for position, record in enumerate(records):
        topic = record["topic"]
        highest[topic] = max(record["timestamp"], highest.get(topic, 0))
        places.append((highest[topic], topic, position))
    return [record for _, record in sorted(zip(places, records, strict=True), key=lambda pair: pair[0])]


def on_log(case: str, folder: Path, log: Log, **config: object) -> App:
    """An application of a case, whose topics exist."""
    document = yaml.load((FOLDER / case / "topology.yaml").read_text(encoding="utf-8"), _Loader)
    own = fresh(case)
    document["application"] = own
    settings = {
        "bootstrap.servers": log.address,
        "state.dir": str(folder / "state"),
        "statestore.cache.max.bytes": 0,
        "commit.interval.ms": 100,
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    document["config"] = {**document.get("config", {}), **settings}
    for name, entry in document["topics"].items():
        document["topics"][name] = {**entry, "topic": f"{own}.{entry.get('topic', name)}", "partitions": 1}
        log.create(document["topics"][name]["topic"], 1)
    path = folder / f"{case}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    for module in (FOLDER / case).glob("*.py"):
        shutil.copy(module, folder)
    return App(path, own, folder / "state", log)


def twin(app: App, folder: Path) -> App:
    """The same application under another name of the same length: it reads the same topics and writes its own."""
    # Names stand in stored bytes (a suppressed record's topic), so that their lengths matter.
    own = app.application[:-1] + ("x" if app.application[-1] != "x" else "y")
    document = yaml.load(app.path.read_text(encoding="utf-8"), _Loader)
    document["application"] = own
    for topic in load(app.path).external_topics.values():
        if not topic.read:
            name = f"{own}.{topic.name.removeprefix(f'{app.application}.')}"
            document["topics"][topic.entry]["topic"] = name
            app.log.create(name, topic.partitions or 1)
    path = folder / f"{own}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return App(path, own, folder / "twin", app.log)


@contextmanager
def in_java(app: App) -> Iterator[None]:
    """Kafka Streams running the application's file."""
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = [*build.command("fuzz/java", "Live", *options), str(app.path), str(app.state)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield
        _, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, err
    finally:
        kill([process])


def rows(app: App, records: Iterable[dict]) -> list[tuple]:
    """The bytes of a case's records, for the topics of the application."""
    form = RecordJson(load(app.path))
    return [form.encode({**record, "topic": app.topic(record["topic"])}, 0, lambda topic: None) for record in records]


def tried(app: App, records: Iterable[dict]) -> list[dict]:
    """What `try` makes of these records."""
    lines = (json.dumps({**record, "topic": app.topic(record["topic"])}) for record in records)
    return run_case(app.path, lines, stores=False)[0]


def wait_until_quiet(app: App) -> None:
    """Return when the running application has committed all that its inputs have, internal topics included."""
    plan = load(app.path)
    # The group commits nothing of the topics of global tables.
    of_tasks = [sub for sub in plan.sub_topologies if not sub.is_global]
    sources = {plan.internal_name(topic) for sub in of_tasks for topic in sub.source_topics}
    until(lambda: app.log.is_read(app.application, sources), "everything is read")


def written(app: App) -> list[dict]:
    """What lies in the topics that the application writes, as JSON records."""
    plan = load(app.path)
    form = RecordJson(plan)
    rows = [
        (topic.name, raw.key, raw.value, raw.timestamp, raw.headers, raw.partition)
        for topic in plan.external_topics.values()
        if not topic.read
        for raw in app.log.read(topic.name)
    ]
    return [form.decode(row) for row in rows]
