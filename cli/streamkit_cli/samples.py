"""Inputs `TOPIC=PLACE` of commands that take test data: samples of files and tables, which Spark reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.errors import UsageError

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.serdes.plain import Json

Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", metavar="N", min=1, help="At most so many records of each topic of --input TOPIC=PLACE; default 100."
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark, which reads TOPIC=PLACE; may be repeated."),
]


def is_place(text: str) -> bool:
    """Return whether an input is TOPIC=PLACE rather than a file of records."""
    return "=" in text and not os.path.exists(text)


def check_sample_options(inputs: Sequence[str], limit: int | None, conf: list[str] | None) -> None:
    """Raise UsageError for options of samples without a sample."""
    for option, value in (("--limit", limit), ("--conf", conf)):
        if value is not None and not any(map(is_place, inputs)):
            raise UsageError(f"{option} needs an input of the form --input TOPIC=PLACE, as submit has it")


def sample_of(plan: Plan, inputs: Sequence[str], limit: int | None, conf: list[str] | None) -> list[dict[str, Json]]:
    """Return the first records of inputs TOPIC=PLACE, which need Spark. Raises UsageError and other StreamkitErrors."""
    from streamkit.runtime.spark.submission.lake_sample import LIMIT, sample
    from streamkit.runtime.spark.submission.request import inputs_of
    from streamkit_cli.commands.submit import cluster_of

    for text in inputs:
        if not is_place(text):
            raise UsageError(f"--input {text}: expected TOPIC=PLACE, as submit has it")
    cluster = cluster_of(os.environ.get("MASTER") or "local[*]", conf, None, None)
    return sample(plan, inputs_of(plan, inputs), limit or LIMIT, cluster)
