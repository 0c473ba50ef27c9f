"""What the rows of changelogs are, as the version that wrote them left it in the state directory.

A log does not tell how its bytes are to be read, and neither does a topic's configuration: this file does, on each machine
that has run the application. Where it is missing nothing is known, and nothing is concluded.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from streamkit.changes.finding import Verdict
from streamkit.changes.form import RowForm
from streamkit.changes.of_plan import rows_of
from streamkit.changes.rows import compare_rows
from streamkit.errors import IncompatibleStateError
from streamkit.plan.model import Plan
from streamkit.state.mark import translated, write_whole

log = logging.getLogger(__name__)

_FILE = ".streamkit-changelogs"
_FORMAT = 1


@dataclass(frozen=True)
class Mark:
    """The rows of a store's changelog; topic_id: what the log called the topic, empty where it has no ids."""

    rows: RowForm
    topic_id: str = ""


def read_marks(plan: Plan) -> dict[str, Mark]:
    """Return what this machine knows of changelogs, by store; nothing where a file is missing, damaged or newer."""
    path = _path(plan)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != _FORMAT:
            return {}
        return {name: Mark(RowForm(**each["rows"]), each["topic_id"]) for name, each in data["stores"].items()}
    except OSError:
        # A state directory that can't be used at all is reported by what takes it.
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # What it would forbid is not known then; the file is written again at the start.
        log.warning("%s can't be read (%s): changelogs are not checked", path, error)
        return {}


def write_marks(plan: Plan, topic_ids: Mapping[str, str]) -> None:
    """Note how this version reads its changelogs, where that is not noted; what is known of others stays.

    topic_ids: what the log calls changelogs, by name. Raises StateError.
    """
    known = read_marks(plan)
    marks = dict(known)
    for name, rows in _logged(plan).items():
        marks[name] = Mark(rows, topic_ids.get(plan.changelog_name(name) or "", ""))
    path = _path(plan)
    if marks == known and path.exists():
        return  # a write that outlasts a loss of power takes time at each start
    text = json.dumps({"format": _FORMAT, "stores": {name: asdict(mark) for name, mark in marks.items()}}, indent=1)
    with translated(path):
        write_whole(path, text)


def check_marks(plan: Plan, topic_ids: Mapping[str, str]) -> None:
    """Raise IncompatibleStateError where a changelog on the log has rows that this version would misread.

    topic_ids: of the changelogs that exist. One that was deleted and made again is not the one that is known.
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
            f"state of {plan.application} would be misread: {'. '.join(found)}. Give the store another name, set the "
            "application back with `streamkit reset-offsets`, or start with --force"
        )


def _path(plan: Plan) -> Path:
    return Path(plan.config["state.dir"]) / plan.application / _FILE


def _logged(plan: Plan) -> dict[str, RowForm]:
    return {name: rows for name, rows in rows_of(plan).items() if plan.stores[name].changelog_topic is not None}
