"""What differs between two answers to one case: describe text, records of each topic, stores' rows, dropped records, changelogs."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, field
from itertools import zip_longest

SHOWN = 4

HELD = "held"
"""A file in a case's folder: nothing is committed before the wall clock is advanced."""

# Where Java's own defects stop it, streamkit may go on (docs/guarantees.md): CachingSessionStore throws the first where a
# session's range begins in one segment and its cache iterator in another, the buffer of a left join with grace the
# second for a record without a key, CachingSessionStore the third where it is read backwards before its first put,
# the buffer of suppress the fourth for a record that a timer forwarded, and a foreign-key join the fifth for such a record,
# whose partition it takes for that of its row. The test driver closes processors before caches, and throws the last where a
# cached store has been written to since the last commit.
JAVA_DEFECTS = (
    "Error iterating over segments: segment interval has changed",
    "NullPointerException: key cannot be null",
    "Window startMs time cannot be negative",
    'because "this.topic" is null',
    "Invalid partition: -1.",
    "The processor is already closed",
)

NO_PARTITION, FIRST_PARTITION = "ffffffff", "00000000"
"""The last field of a foreign-key join's subscription, in hexadecimal digits."""


@dataclass
class Answer:
    """What one side says to a case; `error` is why it refused, and at which stage: read, build, start or run."""

    describe: str | None = None
    records: list[dict] = field(default_factory=list)
    stores: dict[str, list] = field(default_factory=dict)
    keys: dict[str, int | None] = field(default_factory=dict)
    """How many rows a store has: Java says it of stores in memory, as the metric num-keys, streamkit of all without windows."""
    dropped: int | None = 0
    """How many records were dropped (dropped-records-total); None where Java's processor of a store does not count them."""
    changelogs: list[list] = field(default_factory=list)
    """[topic, key in hex, value in hex, timestamp, headers] of what stores logged.

    Headers are None where this version of Kafka Streams logs none of records."""
    stage: str | None = None
    error: str | None = None


def differences(java: Answer, ours: Answer) -> list[str]:
    """Texts of what differs; none where both agree. Where both refuse, the reasons are not compared."""
    if java.stage in ("read", "build"):
        return (
            [] if ours.stage in ("read", "build") else [f"Java refuses the topology, streamkit does not:\n{java.error}"]
        )
    if ours.stage in ("read", "build"):
        return [f"streamkit refuses the topology, Java does not:\n{ours.error}"]
    found = describe_differences(java.describe, ours.describe)
    if java.stage == "start" or any(defect in (java.error or "") for defect in JAVA_DEFECTS):
        # Java describes some topologies that it then cannot start: the joins of cogrouped session tables. Ours may run.
        return found
    if java.stage or ours.stage:
        if not (java.stage and ours.stage):
            found.append(
                f"{'Java' if java.stage else 'streamkit'} fails at a record, the other does not:\n{java.error or ours.error}"
            )
        return found
    found += record_differences(java.records, ours.records) + store_differences(java.stores, ours.stores)
    if ours.dropped not in (None, java.dropped):
        found.append(f"dropped records: java {java.dropped}, streamkit {ours.dropped}")
    return found + key_differences(java.keys, ours.keys) + changelog_differences(java, ours)


def describe_differences(java: str | None, ours: str | None) -> list[str]:
    if java is None or ours is None or ours in (java, java + "\n"):
        return []
    lines = difflib.unified_diff(java.splitlines(), ours.splitlines(), "java", "streamkit", lineterm="", n=2)
    return ["describe:\n" + "\n".join(lines)]


def record_differences(java: list[dict], ours: list[dict]) -> list[str]:
    found = []
    wanted, had = by_topic(java), by_topic(ours)
    for topic in sorted(wanted.keys() | had.keys()):
        pairs = zip_longest(wanted.get(topic, []), had.get(topic, []))
        for number, (want, have) in enumerate(pairs, 1):
            if want is None or have is None or not same(want, have):
                found.append(f"topic {topic}, record {number}:\n  java      {shown(want)}\n  streamkit {shown(have)}")
    return found


def by_topic(records: list[dict]) -> dict[str, list]:
    topics: dict[str, list] = {}
    for record in records:
        row = [record.get("key"), record.get("value"), record.get("timestamp"), record.get("headers") or []]
        topics.setdefault(record["topic"], []).append(row)
    return topics


def store_differences(java: dict[str, list], ours: dict[str, list]) -> list[str]:
    """Only the stores that Java shows count; rows with windowed keys compare in any order."""
    found = []
    for name, rows in java.items():
        if name not in ours:
            found.append(f"store {name} is missing")
            continue
        wanted, had = ordered(rows), ordered(ours[name])
        if not same(wanted, had):
            found.append(f"store {name}:\n  java      {shown(wanted)}\n  streamkit {shown(had)}")
    return found


def key_differences(java: dict[str, int | None], ours: dict[str, int | None]) -> list[str]:
    return [
        f"keys of store {name}: java {keys}, streamkit {ours[name]}"
        for name, keys in java.items()
        if name in ours and keys != ours[name]
    ]


def changelog_differences(java: Answer, ours: Answer) -> list[str]:
    """The first difference of each changelog."""
    found = []
    wanted, had = (by_changelog(answer.changelogs) for answer in (java, ours))
    for topic in sorted(wanted.keys() | had.keys()):
        for number, (want, have) in enumerate(zip_longest(wanted.get(topic, []), had.get(topic, [])), 1):
            if not logged_alike(want, have):
                found.append(
                    f"changelog {topic}, record {number}:\n  java      {shown(want)}\n  streamkit {shown(have)}"
                )
                break
    return found


def logged_alike(want: list | None, have: list | None) -> bool:
    """Whether two rows of a changelog are equal, or differ by what docs/guarantees.md lists."""
    if not want or not have or want == have:
        return want == have
    if want[-1] is None:
        want, have = [*want[:-1], None], [*have[:-1], None]
    # The subscription for a record from a timer: Java logs partition -1, and fails when it answers.
    if (want[1] or "").endswith(NO_PARTITION) and have[1] == want[1][: -len(NO_PARTITION)] + FIRST_PARTITION:
        want = [want[0], have[1], *want[2:]]
    return want == have


def by_changelog(rows: list[list]) -> dict[str, list]:
    topics: dict[str, list] = {}
    for topic, *row in rows:
        topics.setdefault(topic, []).append(row)
    return topics


def ordered(rows: list) -> list:
    """Rows in the order of their keys' bytes; sorted where Java's tagged bytes may have another order."""
    plain = {type(row[0]) for row in rows} in ({str}, {int}, {float})
    return rows if plain else sorted(rows, key=json.dumps)


def same(a, b) -> bool:
    """Equality of the JSON texts: 1, 1.0 and true differ, and so do objects with their fields in another order."""
    return json.dumps(a) == json.dumps(b)


def shown(value) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)
