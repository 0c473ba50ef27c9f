"""The protocols have what processors are given: every public name, with the same parameters."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import streamkit
from streamkit import user_metrics
from streamkit.api import protocols
from streamkit.operators.kernels.processor_calls import ProcessorContext
from streamkit.runtime.execution.punctuation import Punctuator
from streamkit.state import views

INTERNAL = {
    ProcessorContext: {"forward_all", "at", "step_metric"},
    Punctuator: {"node", "interval_ms", "callback", "due", "cancelled"},
}
GIVEN = [
    (streamkit.ProcessorContext, ProcessorContext),
    (streamkit.Timer, Punctuator),
    (protocols.UserMetrics, user_metrics.UserMetrics),
    (streamkit.KeyValueStore, views.KeyValueView),
    (streamkit.WindowStore, views.WindowView),
    (streamkit.SessionStore, views.SessionView),
    (streamkit.VersionedStore, views.VersionedView),
]


def names(of: type) -> set[str]:
    return {name for name in (*vars(of), *vars(of).get("__annotations__", ())) if not name.startswith("_")}


@pytest.mark.parametrize(("protocol", "real"), GIVEN, ids=lambda each: each.__name__)
def test_a_protocol_names_all_that_a_processor_may_call(protocol: Any, real: Any) -> None:
    offered = names(real) - INTERNAL.get(real, set()) - {"kind"}
    assert names(protocol) - {"task_id", "application_id", "log", "metrics"} == offered
    for name in offered:
        if callable(theirs := getattr(real, name)):
            found, given = inspect.signature(getattr(protocol, name)), inspect.signature(theirs)
            described = [(each.name, each.default) for each in found.parameters.values()]
            assert described == [(each.name, each.default) for each in given.parameters.values()], name
