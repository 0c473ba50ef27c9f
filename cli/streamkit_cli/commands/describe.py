"""`streamkit describe`: the description of a topology."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from streamkit_cli.loading import load_plan
from streamkit_cli.options import EnvFile, File, Settings


class Format(StrEnum):
    """The formats of describe."""

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


def describe(file: File, form: Chosen = Format.text, settings: Settings = None, env_file: EnvFile = None) -> None:
    """Print the topology that a file describes.

    The text is that of Topology.describe() in Kafka Streams: sub-topologies, nodes, stores and topics.

    Examples:
        streamkit describe orders.yaml
        streamkit describe orders.yaml --format svg > orders.svg
    """
    plan = load_plan(file, settings, env_file)
    if form is Format.python:
        from streamkit.compile.compiler import describe_code

        text = describe_code(plan)
    else:
        from streamkit.plan.describe import describe

        text = describe(plan, form.value)
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
