"""Random sizes of input topics and random settings of topics: the internal topics and tasks that follow from them.

python -m tests.fuzz.layouts --n 150 --seed 1     compare with Kafka Streams, print each difference
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz import java_side
from tests.fuzz.generate import Case, draw
from tests.fuzz.run import write
from tests.java import build

if TYPE_CHECKING:
    from streamkit.plan.model import Plan

ADDITIONAL = "windowstore.changelog.additional.retention.ms"
SETTINGS = {
    "topic.retention.ms": (77, 10**12),
    "topic.min.compaction.lag.ms": (5, 10**12),
    "topic.cleanup.policy": ("compact", "delete", "compact,delete"),
    "topic.segment.bytes": (1_000_000,),
    "topic.message.timestamp.type": ("LogAppendTime",),
    "topic.delete.retention.ms": (9,),
    ADDITIONAL: (0, 5, 2**63 - 1),
}


def draw_layout(seed: int) -> tuple[Case, dict[str, int]]:
    """The case of a seed, with settings of topics and without input, and the sizes of its input topics."""
    rng = random.Random(seed)
    case = draw(seed)
    config = case.topology.setdefault("config", {})
    for name, values in SETTINGS.items():
        if rng.random() < 0.3:
            config[name] = rng.choice(values)
    sizes = rng.choice([(2,), (1, 2, 3), (1, 2, 3), (1, 4)])
    return Case(case.topology, []), {
        entry.get("topic", name): rng.choice(sizes) for name, entry in case.topology["topics"].items()
    }


def ours(folder: Path, counts: dict[str, int]) -> dict:
    """What streamkit makes of a case, in the form of Java's answer."""
    from streamkit.errors import InvalidTopologyError
    from streamkit.plan import load
    from streamkit.plan.partitions import lay_out

    plan = load(folder / "topology.yaml", env={})
    try:
        layout = lay_out(plan, counts)
    except InvalidTopologyError as error:
        return {"error": str(error)}
    return {
        "tasks": [f"{group}_{partition}" for group, partition in layout.tasks],
        "topics": {
            topic.name: [topic.partitions, dict(topic.config)] for topic in (*layout.repartitions, *layout.changelogs)
        },
        "group": _heartbeat(plan),
        "description": _description(plan),
    }


def _description(plan: Plan) -> str:
    """The bytes of a request that has the topology's description and nothing else, behind its version."""
    from streamkit.runtime.local.streams_group import described_topology
    from streamkit.transport.kafka.messages import StreamsGroupTopologyDescriptionUpdateRequest
    from streamkit.transport.kafka.streams_membership import description_message

    description = description_message(described_topology(plan))
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id="", member_id="", topology_epoch=0, topology_description=description
    )
    return (bytes(2) + request.encode(version=0)).hex()


def _heartbeat(plan: Plan) -> str:
    """The bytes of a heartbeat that has the topology of a streams group and nothing else, behind its version."""
    from streamkit.errors import InvalidTopologyError
    from streamkit.runtime.local.streams_group import group_topics
    from streamkit.transport.kafka.messages import StreamsGroupHeartbeatRequest
    from streamkit.transport.kafka.streams_membership import topology_message

    try:
        topics = group_topics(plan)
    except InvalidTopologyError:
        return ""
    request = StreamsGroupHeartbeatRequest(group_id="", member_id="", topology=topology_message(topics))
    return (bytes(2) + bytes(request.encode(version=0))).hex()


def differences(seeds: range, work: Path, counted: Counter) -> list[str]:
    """Ask both about every seed; one text a difference."""
    sizes = {}
    for seed in seeds:
        case, sizes[seed] = draw_layout(seed)
        folder = write(case, work / f"case-{seed:05d}")
        (folder / "input.jsonl").unlink()
        (folder / "counts.json").write_text(json.dumps(sizes[seed]), encoding="utf-8")
    with java_side.Oracle() as oracle:
        oracle.run(work)
    found = []
    for seed in seeds:
        answer = work / f"case-{seed:05d}" / "layout.json"
        if not answer.exists():
            counted["refused by Java"] += 1
            continue
        java = json.loads(answer.read_text(encoding="utf-8"))
        here = ours(answer.parent, sizes[seed])
        if java.get("group") == "" and "group" in here:
            # Kafka Streams ends in a streams group whose co-partition groups overlap.
            here["group"] = ""
        elif java.get("group") != here.get("group") and _ordered(java) == _ordered(here):
            # Topics in one bucket of a hash set: their order differs from one JVM to the next.
            counted["other order of joined topics"] += 1
            here["group"] = java["group"]
        if java.get("description") == "" and build.runs_older():
            here["description"] = ""
        counted["sizes refused" if "error" in java else "laid out"] += 1
        counted["topics"] += len(java.get("topics", ()))
        counted["streams groups"] += bool(java.get("group"))
        if "Topics not co-partitioned" in here.get("error", "") and not _repartitions(java):
            counted["checked here only"] += 1
        elif java.keys() != here.keys() or ("error" not in java and java != here):
            found.append(
                f"case-{seed}: {sizes[seed]}\n  java      {shown(java, here)}\n  streamkit {shown(here, java)}"
            )
    return found


def shown(answer: dict, other: dict) -> str:
    """The parts of an answer that the other one does not share."""
    if "error" in answer:
        return str(answer["error"])
    theirs = other.get("topics", {})
    topics = {name: topic for name, topic in answer["topics"].items() if theirs.get(name) != topic}
    group = {"group": _decoded(answer["group"])} if answer["group"] != other.get("group") else {}
    return json.dumps({"tasks": len(answer["tasks"]), **topics, **group})


def _ordered(answer: dict) -> object:
    """The topology of a streams group, each co-partition group in order."""
    topology = _decoded(answer.get("group", ""))
    for sub in topology["subtopologies"] if topology else ():
        for group in sub["copartition_groups"]:
            for numbers in group.values():
                numbers.sort()
    return topology


def _decoded(heartbeat: str) -> dict | None:
    from streamkit.transport.kafka.messages import StreamsGroupHeartbeatRequest

    if not heartbeat:
        return None
    return StreamsGroupHeartbeatRequest.decode(bytes.fromhex(heartbeat)[2:], version=0).to_dict()["topology"]


def _repartitions(java: dict) -> bool:
    """Whether there is a topic for which Kafka Streams looks at the sizes of joined topics (docs/guarantees.md)."""
    return "error" in java or any(name.endswith("-repartition") for name in java["topics"])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=150, help="how many layouts")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first; the others follow")
    options = parser.parse_args(arguments)
    counted: Counter = Counter()
    with tempfile.TemporaryDirectory(prefix="layouts-") as work:
        found = differences(range(options.seed, options.seed + options.n), Path(work), counted)
    print("\n".join(found))
    print(f"{dict(counted)}; {len(found)} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
