"""Plans made by hand."""

from __future__ import annotations

from typing import Any

from streamkit.config import Config
from streamkit.plan.model import ExternalTopic, InternalTopic, Plan, SinkNode, SourceNode, SubTopology
from streamkit.serdes.formats.primitives import StringSerde

CONFIG = {"statestore.cache.max.bytes": 0, "poll.ms": 1, "num.stream.threads": 2}


def pass_through(state_dir: Any = None, **config: Any) -> Plan:
    """Return a plan that copies "in" to the repartition topic "again", and that to "out"."""
    text = StringSerde()

    def external(name: str, partitions: int) -> ExternalTopic:
        return ExternalTopic(name, name, text, text, partitions, None, {}, name == "in", name == "out")

    first = SubTopology(
        0,
        {
            "source-0": SourceNode("source-0", ("in",), None, text, text, ("sink-0",)),
            "sink-0": SinkNode("sink-0", ("source-0",), "again", None, text, text, internal=True),
        },
        False,
        (),
        ("in",),
        ("again",),
    )
    second = SubTopology(
        1,
        {
            "source-1": SourceNode("source-1", ("again",), None, text, text, ("sink-1",), internal=True),
            "sink-1": SinkNode("sink-1", ("source-1",), "out", None, text, text),
        },
        False,
        (),
        ("again",),
        ("out",),
    )
    options: dict[str, Any] = {
        "application": "app",
        "file": "app.yaml",
        "config": Config("app", {**CONFIG, **({"state.dir": str(state_dir)} if state_dir else {}), **config}),
        "sub_topologies": (first, second),
        "stores": {},
        "external_topics": {"in": external("in", 3), "out": external("out", 1)},
        "internal_topics": {"again": InternalTopic("again", None, {"cleanup.policy": "delete"})},
        "copartition_sources": (),
        "functions": {},
        "default_serdes": (text, text),
    }
    names = Plan.__dataclass_fields__
    return Plan(**{name: value for name, value in options.items() if name in names})
