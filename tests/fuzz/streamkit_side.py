"""The one place that calls streamkit: its answer to a case, in this process."""

from __future__ import annotations

import contextlib
import io
import json
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fuzz.compare import HELD, Answer


def answer(folder: Path) -> Answer:
    """Describe the topology of a folder and run it over the folder's input."""
    from streamkit.errors import StreamkitError
    from streamkit.plan import load
    from streamkit.plan.describe import describe_text
    from streamkit.runtime.driver import run_lines

    result = Answer()
    stage = "build"
    try:
        plan = load(folder / "topology.yaml", env={})
        result.describe = describe_text(plan)
        stage = "run"
        lines = (folder / "input.jsonl").read_text(encoding="utf-8").splitlines()
        # `print` steps write to stderr.
        with contextlib.redirect_stderr(io.StringIO()), _driver(plan, folder) as driver:
            # Records and rows as JSON text has them, so that both sides compare as the same kind of thing.
            result.records = json.loads(json.dumps(list(run_lines(driver, lines))))
            result.changelogs = _changelogs(driver)
            result.dropped = None if _is_kept(plan) else driver.dropped
            result.stores = json.loads(json.dumps(driver.stores(), default=_internal))
            # Windows that have expired leave memory together here, each by itself in Java.
            stores = driver.opened().items()
            result.keys = {name: store.measure().rows for name, store in stores if not store.definition.kind.windowed}
    except StreamkitError as error:
        result.stage, result.error = stage, str(error)
    except Exception:
        # Anything but a StreamkitError is a defect; at this stage it can never pass for a refusal like Java's.
        result.stage, result.error = "crash", traceback.format_exc()
    return result


def _driver(plan: Any, folder: Path) -> Any:
    """A driver; for a held case one that commits only when the wall clock is advanced (Held.java)."""
    from streamkit.runtime.driver import CONTROL, Driver

    class Fed(Driver):
        def pipe(self, record: Mapping[str, Any]) -> list[dict]:
            """Take also a record with bytes in hexadecimal digits, for what no serde gives."""
            raw = record.get("raw")
            if raw is None:
                return super().pipe(record)
            row = list(
                self._json.encode({name: record[name] for name in record if name != "raw"}, self.clock, self._reads)
            )
            for at, side in enumerate(("key", "value"), 1):
                row[at] = bytes.fromhex(raw[side]) if side in raw else row[at]
            self._pipe(tuple(row))
            return self.printed()

    class Held(Fed):
        _holds = False

        def pipe(self, record: Mapping[str, Any]) -> list[dict]:
            self._holds = CONTROL not in record
            return super().pipe(record)

        def _commit(self) -> None:
            if not self._holds:
                super()._commit()

    return Held(plan) if (folder / HELD).exists() else Fed(plan)


def _is_kept(plan: Any) -> bool:
    """Whether a store of the file is kept from a topic: in Java by a processor of the test, which counts no records without a key."""
    return any(store.options.get("read_only") for store in plan.stores.values())


def _changelogs(driver: Any) -> list[list]:
    """What stores logged; the driver keeps source topics that serve as changelogs beside it."""
    stores = driver.plan.stores.values()
    return [
        [topic, key.hex(), None if value is None else value.hex(), time, _texts(headers)]
        for topic in {driver.plan.changelog_name(store.name) for store in stores if store.source_topic is None}
        for topic, key, value, time, headers, _ in driver.remains.changelogs.get(topic, ())
    ]


def _texts(headers: Any) -> list[list]:
    return [[name, None if value is None else value.decode("latin-1")] for name, value in headers or ()]


def _internal(value: object) -> str:
    """Rows of internal stores hold what has no JSON form; Java's answer leaves those stores out."""
    return repr(value)
