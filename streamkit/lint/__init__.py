"""Rules for valid topologies: `check` returns what `streamkit validate --strict` reports.

A comment `# lint: ignore=CODE` (several with commas) in the line of a finding suppresses it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from streamkit import plugins
from streamkit.errors import Position
from streamkit.lint import call_rules, habits, state_rules, unused, window_rules
from streamkit.lint.rule import Finding, Rule, Subject
from streamkit.plan.model import Plan
from streamkit.spec.topology_model import TopologyModel

RULES: dict[str, Rule] = {
    rule.code: rule
    for rule in (*unused.RULES, *state_rules.RULES, *window_rules.RULES, *call_rules.RULES, *habits.RULES)
}


def _checked_rule(code: str, found: object) -> Rule:
    if not isinstance(found, Rule) or found.code != code:
        raise TypeError(f"a Rule with the code {code} is expected")
    return found


EVERY_RULE = plugins.WithPlugins(RULES, plugins.RULES, _checked_rule)
"""The rules, and those of installed plugins (entry points `streamkit.lint`)."""
MISTAKES = {code: rule for code, rule in RULES.items() if rule.is_mistake}
"""The rules that `validate` checks without `--strict` too."""
_IGNORED = re.compile(r"#\s*lint:\s*ignore=([a-z, -]+)")

__all__ = ["EVERY_RULE", "MISTAKES", "RULES", "Finding", "Rule", "check"]


def check(model: TopologyModel, plan: Plan, rules: Mapping[str, Rule] = EVERY_RULE) -> list[Finding]:
    """Return the findings in the order of the file, without those that a comment in their line ignores."""
    subject = Subject(model, plan)
    found = {
        Finding(rule.code, position, message) for rule in rules.values() for position, message in rule.find(subject)
    }
    kept = [each for each in found if each.code not in _ignored(subject.line(each.position))]
    return sorted(kept, key=lambda each: (*_place(model, each.position), each.code))


def _place(model: TopologyModel, position: Position) -> tuple[bool, str, int, int]:
    """Return what places are sorted by: the file itself first, then those that it includes."""
    return position.file in model.included, position.file, position.line, position.column


def _ignored(line: str) -> set[str]:
    match = _IGNORED.search(line)
    return {code.strip() for code in match[1].split(",")} if match else set()
