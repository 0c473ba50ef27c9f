"""Lists the transactions on an application's topics whose end brokers have lost, and ends them as their coordinator did."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.transport.log_interface import Admin, OpenTransaction, Outcome, Transport


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
        return [_handled(admin, each, end, assume) for each in _found(plan, admin)]


def _found(plan: Plan, admin: Admin) -> list[OpenTransaction]:
    known = admin.topics(plan.topic_names())
    places = [TopicPartition(name, number) for name, info in known.items() for number in range(info.partitions)]
    first = [each for each in admin.open_transactions(places, plan.application) if each.hanging]
    if not first:
        return []
    # One that ended between the requests of the first look is not there any more.
    again = [each for each in admin.open_transactions(places, plan.application) if each.hanging]
    return sorted(
        (each for each in again if any(each.is_same(other) for other in first)),
        key=lambda each: (each.partition, each.start),
    )


def _handled(admin: Admin, found: OpenTransaction, end: bool, assume: bool | None) -> LostTransaction:
    outcome = admin.outcome_of(found)
    committed = assume if outcome.committed is None else outcome.committed
    if not end or committed is None or outcome.alive:
        return LostTransaction(found, outcome)
    admin.end_transaction(found, committed)
    return LostTransaction(found, outcome, True)
