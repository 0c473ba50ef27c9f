"""The generated code of a plan, for readers."""

from __future__ import annotations

from streamkit.compile.compiler import compile_sub_topology
from streamkit.plan.model import Plan


def describe_code(plan: Plan) -> str:
    """Return the Python that applications run for every sub-topology, each below a comment with its source topics."""
    parts = [
        f"# Sub-topology {sub.id}: reads {', '.join(sub.source_topics) or 'a pattern'}\n"
        + compile_sub_topology(plan, sub, measures_latency=True).source.strip()
        for sub in plan.sub_topologies
    ]
    return "\n\n\n".join(parts)
