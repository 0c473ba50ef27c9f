"""Rows with a time to live are those of a model, on every engine, with and without a cache, through restarts and crashes."""

from __future__ import annotations

import tempfile
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamkit.runtime.execution import task
from streamkit.state.engines.overlay import METADATA_KEY
from tests.state.expiring import AWKWARD, Kept, Model, end_all
from tests.state.support import VARIANTS, Variant

KEYS = st.sampled_from([b"", b"a", b"ab", b"b", b"\xff", b"\xff" * 40, *AWKWARD])
TIMES = st.integers(-1_500, 1_500) | st.integers(0, 30)
STEPS = st.tuples(
    st.sampled_from(["write", "write", "add", "add", "commit", "restart", "crash"]),
    KEYS,
    st.none() | st.integers(0, 9),
    TIMES,
    st.booleans(),
)


COMMIT = ("commit", b"", None, 0, False)
RESTART = ("restart", b"", None, 0, False)
CRASH = ("crash", b"", None, 0, False)
COMMIT_BETWEEN = [
    *[("write", b"", None, 0, False)] * 3,
    ("write", b"", 0, 0, False),
    ("write", b"a", 0, 0, False),
    ("add", b"a", None, 4, False),
    ("write", b"ab", None, 1006, True),
]
"""A row that has changed in place is written by a commit between two deletions."""
BACK_AT_ONCE = [
    ("write", b"a", 0, 1, False),
    RESTART,
    ("write", b"b", 0, 1_000, False),
    ("write", b"a", 0, 0, False),
    ("write", b"b", 0, 1_000, False),
]
"""A row that only the map has is written again while its deletion waits in the cache."""
BACK_IN_THE_MAP = [*BACK_AT_ONCE[:4], COMMIT, BACK_AT_ONCE[4]]
EARLIER = [
    ("write", b"a", 0, 501, False),
    COMMIT,
    ("write", b"a", 0, -500, False),
    COMMIT,
    ("write", b"b", 0, 500, False),
]
"""A row is written with an earlier timestamp than it had."""
NEW_BETWEEN = [
    ("write", b"a", 0, 1, False),
    ("write", b"ab", 0, 0, False),
    COMMIT,
    ("write", b"b", 0, 500, False),
    ("write", b"\xff", 0, 500, True),
    ("write", b"a", 0, 600, False),
]
"""A commit between two deletions writes the first entry of a row."""
CRASH_BETWEEN = [*NEW_BETWEEN[:5], CRASH, NEW_BETWEEN[5]]
CRASH_AFTER = [*BACK_AT_ONCE[:3], CRASH, ("write", b"b", 0, 1_000, False)]
"""A row that was deleted is back after a crash, and is deleted again."""


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=60, deadline=None)
@example(steps=COMMIT_BETWEEN)
@example(steps=BACK_AT_ONCE)
@example(steps=BACK_IN_THE_MAP)
@example(steps=EARLIER)
@example(steps=NEW_BETWEEN)
@example(steps=CRASH_BETWEEN)
@example(steps=CRASH_AFTER)
@given(steps=st.lists(STEPS, max_size=25))
def test_rows_are_deleted_as_the_model_does(variant: Variant, steps: list[tuple]) -> None:
    before = task._AT_ONCE, task._LOOK_AFTER
    task._AT_ONCE, task._LOOK_AFTER = 2, 1
    model = Model()
    try:
        with tempfile.TemporaryDirectory() as directory:
            kept = Kept(variant, Path(directory))
            saved = deepcopy(model)
            for step, key, value, offset, commit in steps:
                before_step = kept.committed
                if step == "commit":
                    kept.commit()
                elif step == "restart":
                    kept.restart(model.time)
                elif step == "crash":
                    if variant.engine is not None:
                        model = deepcopy(saved)
                        kept.crash(model.time)
                else:
                    # A record may be late, and a table's row as old as its record.
                    timestamp = max(0, model.time + offset)
                    if step == "add":
                        count, latest = model.rows.get(key, (0, 0))
                        value = count + 1
                        kept.add(key, timestamp)
                        model.write(key, value, max(latest, timestamp))
                    else:
                        kept.store.put(key, value, timestamp)
                        model.write(key, value, timestamp)
                    model.pass_time(timestamp)
                    kept.pass_time(model.time, commit)
                if kept.committed is not before_step:
                    saved = deepcopy(model)
                expected = [(key, *row) for key, row in sorted(model.rows.items())]
                assert list(kept.store.all()) == expected
                assert [row[0] for row in kept.store.range(b"a", METADATA_KEY + b"\x01", reverse=True)] == [
                    key for key in sorted(model.rows, reverse=True) if b"a" <= key <= METADATA_KEY + b"\x01"
                ]
                assert kept.store.get(key) == model.rows.get(key)
            kept.commit()
            assert kept.restored() == list(kept.store.all())
            if not variant.cached:
                tombstones = [(key, time) for key, value, time, _ in kept.changelog.logged if value is None]
                deleted = iter(tombstones)
                # Those of the records that delete stand between them.
                assert [each for each in model.deleted if each not in deleted] == []
            end_all(kept.store)
            kept.store.close()
    finally:
        task._AT_ONCE, task._LOOK_AFTER = before
