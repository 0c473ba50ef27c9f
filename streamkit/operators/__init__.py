"""The steps of the language, one module each; `OPERATORS` has them by name, in the order of the language reference."""

from __future__ import annotations

from typing import get_args

from streamkit import plugins
from streamkit.operators.core.operator import AnyOperator, StepDeclaration, Upstream
from streamkit.operators.steps.aggregations.aggregate import AggregateOperator
from streamkit.operators.steps.aggregations.cogroup import CogroupOperator
from streamkit.operators.steps.aggregations.count import CountOperator
from streamkit.operators.steps.aggregations.group_by import GroupByKeyOperator, GroupByOperator
from streamkit.operators.steps.aggregations.reduce import ReduceOperator
from streamkit.operators.steps.aggregations.window import WindowOperator
from streamkit.operators.steps.extensions.assertion import AssertOperator
from streamkit.operators.steps.extensions.deduplicate import DeduplicateOperator
from streamkit.operators.steps.extensions.enrich import EnrichOperator
from streamkit.operators.steps.extensions.log import LogOperator
from streamkit.operators.steps.extensions.sample import SampleOperator
from streamkit.operators.steps.extensions.set_timestamp import SetTimestampOperator
from streamkit.operators.steps.extensions.top import TopOperator
from streamkit.operators.steps.joins.join import JoinOperator, LeftJoinOperator, OuterJoinOperator
from streamkit.operators.steps.processors.process import ProcessOperator, ProcessValuesOperator
from streamkit.operators.steps.stateless.branch import BranchOperator
from streamkit.operators.steps.stateless.filter import FilterNotOperator, FilterOperator
from streamkit.operators.steps.stateless.flat_map import FlatMapOperator
from streamkit.operators.steps.stateless.flat_map_values import FlatMapValuesOperator
from streamkit.operators.steps.stateless.map import MapOperator
from streamkit.operators.steps.stateless.map_values import MapValuesOperator
from streamkit.operators.steps.stateless.merge import MergeOperator
from streamkit.operators.steps.stateless.peek import PeekOperator
from streamkit.operators.steps.stateless.print import PrintOperator
from streamkit.operators.steps.stateless.select_key import SelectKeyOperator
from streamkit.operators.steps.stateless.set_headers import SetHeadersOperator
from streamkit.operators.steps.tables.suppress import SuppressOperator
from streamkit.operators.steps.tables.to_stream import ToStreamOperator
from streamkit.operators.steps.tables.to_table import ToTableOperator
from streamkit.operators.steps.topics.repartition import RepartitionOperator
from streamkit.suggestions import did_you_mean, listed

OPERATORS: dict[str, AnyOperator] = {
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
        SetTimestampOperator(),
        EnrichOperator(),
        DeduplicateOperator(),
        SampleOperator(),
        AssertOperator(),
        LogOperator(),
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
        TopOperator(),
        SuppressOperator(),
        JoinOperator(),
        LeftJoinOperator(),
        OuterJoinOperator(),
    )
}


def _check_step(name: str, entry: object) -> StepDeclaration:
    step = entry() if isinstance(entry, type) else entry
    if not isinstance(step, StepDeclaration):
        raise TypeError(f"expected an Operator or a ComposedStep, not {type(step).__name__}")
    if step.name != name:
        raise TypeError(f"the entry point is named {name}, but the step {step.name}")
    kinds = {upstream.kind for upstream in get_args(Upstream)}
    wrong = next((kind for kind in step.accepts if kind not in kinds), None)
    if wrong is not None or not step.accepts:
        raise TypeError(
            f"'accepts' has {wrong!r}{did_you_mean(wrong or '', kinds, f'known are {listed(sorted(kinds))}')}"
        )
    return step


STEPS = plugins.WithPlugins[StepDeclaration](OPERATORS, plugins.STEPS, _check_step)
"""The operators, and the steps of installed plugins (entry points `streamkit.steps`)."""
