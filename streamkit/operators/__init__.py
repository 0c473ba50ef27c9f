"""The steps of the language, one file each; `OPERATORS` has them by name, in the order of the language reference."""

from __future__ import annotations

from typing import Any

from streamkit import plugins
from streamkit.operators.aggregate import AggregateOperator
from streamkit.operators.base import Operator
from streamkit.operators.branch import BranchOperator
from streamkit.operators.cogroup import CogroupOperator
from streamkit.operators.count import CountOperator
from streamkit.operators.filter import FilterNotOperator, FilterOperator
from streamkit.operators.flat_map import FlatMapOperator
from streamkit.operators.flat_map_values import FlatMapValuesOperator
from streamkit.operators.group_by import GroupByKeyOperator, GroupByOperator
from streamkit.operators.join import JoinOperator, LeftJoinOperator, OuterJoinOperator
from streamkit.operators.map import MapOperator
from streamkit.operators.map_values import MapValuesOperator
from streamkit.operators.merge import MergeOperator
from streamkit.operators.peek import PeekOperator
from streamkit.operators.print import PrintOperator
from streamkit.operators.process import ProcessOperator, ProcessValuesOperator
from streamkit.operators.reduce import ReduceOperator
from streamkit.operators.repartition import RepartitionOperator
from streamkit.operators.select_key import SelectKeyOperator
from streamkit.operators.set_headers import SetHeadersOperator
from streamkit.operators.suppress import SuppressOperator
from streamkit.operators.to_stream import ToStreamOperator
from streamkit.operators.to_table import ToTableOperator
from streamkit.operators.window import WindowOperator

OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        FilterOperator(),
        FilterNotOperator(),
        MapOperator(),
        MapValuesOperator(),
        FlatMapOperator(),
        FlatMapValuesOperator(),
        SelectKeyOperator(),
        PeekOperator(),
        PrintOperator(),
        MergeOperator(),
        BranchOperator(),
        ProcessOperator(),
        ProcessValuesOperator(),
        SetHeadersOperator(),
        RepartitionOperator(),
        ToTableOperator(),
        ToStreamOperator(),
        GroupByOperator(),
        GroupByKeyOperator(),
        WindowOperator(),
        CogroupOperator(),
        CountOperator(),
        ReduceOperator(),
        AggregateOperator(),
        SuppressOperator(),
        JoinOperator(),
        LeftJoinOperator(),
        OuterJoinOperator(),
    )
}


def _made(name: str, found: Any) -> Operator:
    operator = found() if isinstance(found, type) else found
    if not isinstance(operator, Operator):
        raise TypeError(f"an Operator is expected, not {type(operator).__name__}")
    if operator.name != name:
        raise TypeError(f"its entry point is {name}, its step {operator.name}")
    return operator


STEPS = plugins.WithPlugins(OPERATORS, plugins.STEPS, _made)
"""The operators, and those of installed plugins (entry points `streamkit.steps`)."""
