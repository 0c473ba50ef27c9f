"""Rules that go beyond validity: `check` gives what `streamkit validate --strict` reports.

A comment `# lint: ignore=CODE` (several with commas) in the line of a finding keeps it from being reported.
"""

from __future__ import annotations

import re
from typing import Any

from streamkit import plugins
from streamkit.lint import habits, state, unused
from streamkit.lint.base import Finding, Rule, Subject
from streamkit.plan.model import Plan
from streamkit.spec.model import TopologyModel

RULES: dict[str, Rule] = {rule.code: rule for rule in (*unused.RULES, *state.RULES, *habits.RULES)}


def _made(code: str, found: Any) -> Rule:
    if not isinstance(found, Rule) or found.code != code:
        raise TypeError(f"a Rule with the code {code} is expected")
    return found


EVERY_RULE = plugins.WithPlugins(RULES, plugins.RULES, _made)
"""The rules, and those of installed plugins (entry points `streamkit.lint`)."""
_IGNORED = re.compile(r"#\s*lint:\s*ignore=([a-z, -]+)")

__all__ = ["EVERY_RULE", "RULES", "Finding", "Rule", "check"]


def check(model: TopologyModel, plan: Plan) -> list[Finding]:
    """Return what breaks a rule, by place; lines may ask for rules to be ignored."""
    subject = Subject(model, plan)
    found = {
        Finding(rule.code, position, message)
        for rule in EVERY_RULE.values()
        for position, message in rule.find(subject)
    }
    kept = [each for each in found if each.code not in _ignored(subject.line(each.position))]
    return sorted(kept, key=lambda each: (each.position.line, each.position.column, each.code))


def _ignored(line: str) -> set[str]:
    match = _IGNORED.search(line)
    return {code.strip() for code in match[1].split(",")} if match else set()
