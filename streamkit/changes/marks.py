"""Marks in the state directory: the form of the rows of each changelog, from the version that wrote them.

Neither a log nor the settings of a topic have this form; the marks do, on each machine that has run the application.
Changelogs without a mark are not checked.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from streamkit.changes.finding import Verdict
from streamkit.changes.form import RowForm
from streamkit.changes.of_plan import rows_of
from streamkit.changes.serde_forms import compare_rows
from streamkit.errors import IncompatibleStateError
from streamkit.plan.model import Plan
from streamkit.state.directory import sealed, translated, unsealed, write_atomically

log = logging.getLogger(__name__)

_FILE = ".streamkit-changelogs"
_FORMAT = 1


@dataclass(frozen=True)
class Mark:
    """The rows of a store's changelog; topic_id: the id of the topic on the log, empty if topics have no ids."""

    rows: RowForm
    topic_id: str = ""


def read_marks(plan: Plan) -> dict[str, Mark]:
    """Return the marks of this machine by store; none if the file is missing, damaged or of a newer format."""
    path = _path(plan)
    try:
        data = unsealed(path.read_text(encoding="utf-8"))
        if data["format"] != _FORMAT:
            return {}
        return {name: Mark(RowForm(**each["rows"]), each["topic_id"]) for name, each in data["stores"].items()}
    except OSError:
        # The start reports a state directory that can't be used.
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # The start continues without a check, and writes the file again.
        log.warning("%s can't be read (%s): changelogs are not checked", path, error)
        return {}


def write_marks(plan: Plan, topic_ids: Mapping[str, str]) -> None:
    """Write the marks of this version's changelogs; keep the marks of other stores.

    topic_ids: the ids of changelogs on the log, by name. Raises StateError.
    """
    known = read_marks(plan)
    marks = dict(known)
    for name, rows in _logged(plan).items():
        marks[name] = Mark(rows, topic_ids.get(plan.changelog_name(name) or "", ""))
    path = _path(plan)
    if marks == known and path.exists():
        return  # a write with fsync takes time at each start
    text = sealed({"format": _FORMAT, "stores": {name: asdict(mark) for name, mark in marks.items()}})
    with translated(path):
        write_atomically(path, text)


def check_marks(plan: Plan, topic_ids: Mapping[str, str]) -> None:
    """Raise IncompatibleStateError if a changelog on the log has rows that this version would misread.

    topic_ids: of the changelogs that exist. A topic that was deleted and created again has another id and is not checked.
    """
    marks, found = read_marks(plan), []
    for name, rows in _logged(plan).items():
        topic, mark = plan.changelog_name(name) or "", marks.get(name)
        if mark is None or topic not in topic_ids or mark.topic_id != topic_ids[topic]:
            continue
        bad = [why for verdict, why in compare_rows(mark.rows, rows) if verdict is Verdict.INCOMPATIBLE]
        if bad:
            found.append(f"store {name}: {'; '.join(bad)} (changelog {topic})")
    if found:
        raise IncompatibleStateError(
            f"state of {plan.application} would be misread: {'. '.join(found)}. Give the store another name, reset "
            "the application with `streamkit reset-offsets`, or start with --force; `streamkit diff OLD NEW` shows all changes "
            "between two versions"
        )


def _path(plan: Plan) -> Path:
    return Path(plan.config.state_dir) / plan.application / _FILE


def _logged(plan: Plan) -> dict[str, RowForm]:
    return {name: rows for name, rows in rows_of(plan).items() if plan.stores[name].changelog_topic is not None}
