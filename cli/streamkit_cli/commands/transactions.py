"""`streamkit transactions`: the transactions whose end brokers have lost."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from streamkit.errors import UsageError
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.serdes.plain import Json
from streamkit.transport.log_interface import Admin, OpenTransaction, Outcome, Transport
from streamkit_cli.guard import FAILED, print_message
from streamkit_cli.loading import load_plan, opened
from streamkit_cli.options import EnvFile, File, Format, Settings, Shown
from streamkit_cli.tables import table


class Assumed(StrEnum):
    """How a transaction is ended whose outcome is unknown."""

    commit = "commit"
    abort = "abort"


End = Annotated[bool, typer.Option("--end", help="End each in its partition as its coordinator did.")]
Assume = Annotated[
    Assumed | None,
    typer.Option(
        "--assume",
        metavar="commit|abort",
        help="With --end: the end of transactions with an unknown outcome.",
        show_default=False,
    ),
]


def transactions(
    file: File,
    end: End = False,
    assume: Assume = None,
    form: Shown = Format.text,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int:
    """List the transactions whose end brokers have lost, and end them.

    A lost transaction is open in a partition although its coordinator has ended it, so no later record can be read.
    Brokers of Kafka 4.3.0 to 4.4.0 lose ends when they restart. Topics and committed offsets of the application are
    searched. The coordinator's log determines the outcome. An application may run meanwhile; a live transaction is
    never ended. Exit code 1 if lost transactions remain.

    Examples:
        streamkit transactions orders.yaml
        streamkit transactions orders.yaml --end
    """

    if assume is not None and not end:
        raise UsageError("--assume needs --end")
    plan = load_plan(file, settings, env_file)
    with opened(plan, creates=False) as transport:
        lost = lost_transactions(plan, transport, end=end, assume=None if assume is None else assume is Assumed.commit)
    rows = [_row(transaction) for transaction in lost]
    if form is Format.json:
        print(json.dumps(rows, indent=2))
    elif rows:
        names = ("TOPIC", "PARTITION", "OFFSET", "PRODUCER", "EPOCH", "TRANSACTIONAL ID", "OUTCOME", "ENDED")
        print(table(names, [_shown(row) for row in rows], numbers=(1, 2, 3, 4)))
    else:
        print(f"{plan.application}: no lost transactions")
    return _result(lost, end)


def _result(lost: list[LostTransaction], end: bool) -> int:
    left = [transaction for transaction in lost if not transaction.ended]
    if not left:
        return 0
    for transaction in left:
        if transaction.outcome.committed is None:
            topic, partition = transaction.transaction.partition
            print_message(f"{topic}-{partition}: the outcome is unknown: {transaction.outcome.reason}")
    advice = "--end --assume commit or abort ends them: an abort loses records that were committed"
    what = "1 lost transaction remains" if len(left) == 1 else f"{len(left)} lost transactions remain"
    print_message(f"{what}; {advice if end else '--end ends them'}")
    return FAILED


def _row(lost: LostTransaction) -> dict[str, Json]:
    transaction, outcome = lost.transaction, lost.outcome
    words = {True: "commit", False: "abort", None: "unknown"}
    return {
        "topic": transaction.partition.topic,
        "partition": transaction.partition.partition,
        "offset": transaction.start,
        "producer_id": transaction.producer_id,
        "epoch": transaction.epoch,
        "transactional_id": transaction.transactional_id or None,
        "outcome": words[outcome.committed],
        "reason": outcome.reason,
        "ended": lost.ended,
    }


def _shown(row: dict[str, Json]) -> tuple[object, ...]:
    shown = {**row, "transactional_id": row["transactional_id"] or "unknown", "ended": "yes" if row["ended"] else "no"}
    del shown["reason"]
    return tuple(shown.values())


# The transactions on an application's topics whose end brokers have lost; they are ended as their coordinator did.


@dataclass(frozen=True)
class LostTransaction:
    """A transaction that is open in a partition although its coordinator has ended it."""

    transaction: OpenTransaction
    outcome: Outcome
    ended: bool = False
    """Whether it was ended here, too."""


def lost_transactions(
    plan: Plan, transport: Transport, *, end: bool = False, assume: bool | None = None
) -> list[LostTransaction]:
    """Return the lost transactions on topics and offsets of an application. Raises TransportError.

    `end`: end those whose outcome is known. `assume`: end the others too, True: with a commit.
    """
    with closing(transport.admin()) as admin:
        return [_handled(admin, transaction, end, assume) for transaction in _found(plan, admin)]


def _found(plan: Plan, admin: Admin) -> list[OpenTransaction]:
    known = admin.topics(plan.topic_names())
    places = [TopicPartition(name, number) for name, info in known.items() for number in range(info.partitions)]
    first = [transaction for transaction in admin.open_transactions(places, plan.application) if transaction.hanging]
    if not first:
        return []
    # A transaction that ended between the requests of the first look does not appear in the second one.
    again = [transaction for transaction in admin.open_transactions(places, plan.application) if transaction.hanging]
    return sorted(
        (transaction for transaction in again if any(transaction.is_same(other) for other in first)),
        key=lambda transaction: (transaction.partition, transaction.start),
    )


def _handled(admin: Admin, transaction: OpenTransaction, end: bool, assume: bool | None) -> LostTransaction:
    outcome = admin.outcome_of(transaction)
    committed = assume if outcome.committed is None else outcome.committed
    if not end or committed is None or outcome.alive:
        return LostTransaction(transaction, outcome)
    admin.end_transaction(transaction, committed)
    return LostTransaction(transaction, outcome, True)
