"""What the tests of spec share: the conformance topologies, and a file's problems as `LINE:COL: message`."""

from __future__ import annotations

from pathlib import Path

from streamkit import spec
from streamkit.errors import TopologyError

CONFORMANCE = Path(__file__).parent.parent / "conformance"
TOPOLOGIES = sorted(CONFORMANCE.glob("*/topology.yaml"))
HEAD = "streamkit: 1\napplication: a\n"
LINES = HEAD + "topics: {in: {value: json}, out: {}}\n"


def problems(text: str, **environment: str) -> list[str]:
    """Return the problems of a text, without the file's name."""
    try:
        spec.load_text(text, "f.yaml", environment=environment)
    except TopologyError as error:
        return [str(problem).removeprefix("f.yaml:") for problem in error.problems]
    return []


def pipeline(*steps: str, ends: str = "to: out") -> str:
    """Return a topology of one pipeline; its first step stands in line 8."""
    rows = "".join(f"      - {step}\n" for step in steps)
    return f"{LINES}functions: {{}}\npipelines:\n  p:\n    stream: in\n    steps:\n{rows}    {ends}\n"
