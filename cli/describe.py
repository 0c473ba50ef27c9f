"""`streamkit describe`: what a topology becomes."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from .loading import load_plan
from .options import EnvFile, File, Settings


class Format(StrEnum):
    """What describe writes."""

    text = "text"
    json = "json"
    mermaid = "mermaid"
    dot = "dot"
    svg = "svg"
    html = "html"
    python = "python"


Chosen = Annotated[
    Format,
    typer.Option(
        "--format",
        help="text: Topology.describe() of Kafka Streams; svg, html: a drawing; python: the code that processes records.",
    ),
]


def command(file: File, form: Chosen = Format.text, settings: Settings = None, env_file: EnvFile = None) -> None:
    """Print what a topology becomes.

    The text is that of Topology.describe() in Kafka Streams: sub-topologies, nodes, stores and topics.
    """
    plan = load_plan(file, settings, env_file)
    if form is Format.python:
        from streamkit.compile.show import describe_code

        text = describe_code(plan)
    else:
        from streamkit.plan.describe import describe

        text = describe(plan, form.value)
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
