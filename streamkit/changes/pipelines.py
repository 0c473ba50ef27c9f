"""Compares the steps of pipelines, and the generated names of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from streamkit.changes.finding import Finding, Verdict
from streamkit.changes.forms.form import Form, StepForm
from streamkit.changes.match import is_generated
from streamkit.errors import Position


def compare_pipelines(old: Form, new: Form) -> Iterator[Finding]:
    """Yield a finding for each pipeline that is new, gone or has other steps."""
    if old.pipelines is None or new.pipelines is None:
        return
    for name, steps in new.pipelines.items():
        before = old.pipelines.get(name)
        if before is None:
            text = f"pipeline {name} is new"
        else:
            text = _changes(before, steps)
            if not text:
                continue
            text = f"pipeline {name}: {text}"
        yield Finding(Verdict.SAFE, "pipeline", name, text, "", _first(before or (), steps), name)
    for name in old.pipelines:
        if name not in new.pipelines:
            yield Finding(Verdict.SAFE, "pipeline", name, f"pipeline {name} is gone", "", new.start, name, name)


def _changes(old: Sequence[StepForm], new: Sequence[StepForm]) -> str:
    parts = []
    matcher = SequenceMatcher(None, [each[:2] for each in old], [each[:2] for each in new], autojunk=False)
    for tag, begin, end, start, stop in matcher.get_opcodes():
        if tag == "equal":
            continue
        before, after = [each.step for each in old[begin:end]], [each.step for each in new[start:stop]]
        if before == after:
            parts.append(
                f"{', '.join(after)} does something else"
                if len(after) == 1
                else f"{', '.join(after)} do something else"
            )
            continue
        if before:
            parts.append(f"{', '.join(before)} {'is' if len(before) == 1 else 'are'} gone")
        if after:
            parts.append(f"{', '.join(after)} {'is' if len(after) == 1 else 'are'} new")
    return "; ".join(parts)


def _first(old: Sequence[StepForm], new: Sequence[StepForm]) -> Position:
    known = {each[:2] for each in old}
    return next((each.position for each in new if each[:2] not in known), new[0].position)


def compare_names(old: Form, new: Form) -> Iterator[Finding]:
    """Yield a finding where the generated names of nodes change, on which only metrics depend."""
    if not old.has_tasks or not new.has_tasks:
        return
    before = {name for each in old.sub_topologies for name in each.nodes}
    after = {name for each in new.sub_topologies for name in each.nodes}
    gone = sorted(name for name in before - after if is_generated(name))
    if gone and after - before:
        nodes = "1 node is" if len(gone) == 1 else f"{len(gone)} nodes are"
        text = (
            f"generated names change: {nodes} called otherwise ({', '.join(gone[:2])}{', …' if len(gone) > 2 else ''})"
        )
        yield Finding(Verdict.SAFE, "names", "", f"{text}, and so are their metrics", "", new.start)
