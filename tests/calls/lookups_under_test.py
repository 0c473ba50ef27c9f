"""A topology with one `enrich`, the functions that it calls, and what it gives."""

from __future__ import annotations

import json
from pathlib import Path

from streamkit.runtime.execution.task import Task
from tests.calls.support import outcome, write

MODULE = """
    import asyncio
    import threading

    from streamkit import RetriableError, errors

    CALLS = []

    async def later(value):
        CALLS.append(value)
        # The first calls answer last.
        for _ in range(50 - value):
            await asyncio.sleep(0)
        return value * 10

    def in_thread(value):
        assert "calls" in threading.current_thread().name
        return value * 10

    async def lists(values):
        CALLS.append(len(values))
        return [ValueError("seven") if value == 7 else value * 10 for value in values]

    async def busy(value):
        CALLS.append(value)
        if CALLS.count(value) <= value % 3:
            raise RetriableError("busy")
        return value

    async def fails(value):
        CALLS.append(value)
        raise ValueError("no")

    KEPT = ValueError("kept")

    async def raises_kept(value):
        raise KEPT

    def returns_kept(*values):
        return [KEPT] * len(values[0])

    def raises_of_kept(*value):
        try:
            raise KEPT
        except ValueError as error:
            raise ValueError("another") from error

    async def slow(value):
        await asyncio.sleep(0.002)
        return value

    async def never(value):
        await asyncio.Event().wait()

    RELEASE, LATE = threading.Event(), threading.Event()

    def stuck(value):
        if value == 2:
            RELEASE.wait()
            LATE.set()
            return "late"
        if value == 3:
            # The answer of the call that was given up comes while this one has none.
            RELEASE.set()
            LATE.wait()
        return value

    async def stops_loop(value):
        asyncio.get_running_loop().stop()
        await asyncio.Event().wait()

    async def exits(value):
        raise SystemExit(3)

    async def cancels(value):
        raise asyncio.CancelledError

    async def cancels_task(value):
        if value == 20:
            asyncio.current_task().cancel()
        return value

    async def cancels_and_waits(value):
        if value == 20:
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        return value

    async def cancels_all(value):
        if value == 20:
            for task in asyncio.all_tasks():
                task.cancel()
        await asyncio.sleep(0)
        return value

    async def raises(value):
        raise getattr(errors, NAME)("from elsewhere")

    NAME = ""

    def yields(value):
        yield value

    async def yields_async(value):
        yield value

    def generated(values):
        return (value if value != 20 else {}["none"] for value in values)

    def array(key, value):
        import numpy
        found = numpy.zeros(2000, int)
        found[1000] = value
        return found

    def total(array):
        return int(array.sum())

    async def few(values):
        return values[1:]

    class Session:
        def __init__(self, mark: str):
            self.mark = mark

        async def init(self, context):
            self.loop, self.context = asyncio.get_running_loop(), context

        async def __call__(self, value):
            assert self.loop is asyncio.get_running_loop()
            return f"{self.mark}{value}"

        async def close(self):
            CALLS.append("closed")
"""
HEAD = """\
streamkit: 1
application: app
config: {CONFIG}
topics:
  in: {value: integer}
  out: {value: json}
  beside: {value: json}
  lost: {key: bytes, value: bytes}
pipelines:
"""
RECORDS = [(f"k{n % 3}".encode(), n.to_bytes(4, "big"), n) for n in range(40)]


def one_step(folder: Path, options: str, config: str = "client.id: a", step: str = "enrich") -> Path:
    rest = f"  p: {{stream: in, steps: [{{{step}: {{{options}}}}}], to: out}}\n"
    return write(folder, HEAD.replace("CONFIG", config) + rest, MODULE)


def calls(file: Path) -> list[object]:
    from streamkit.expressions import load_object
    from streamkit.operators.core.parsed_values import CallRef

    found = load_object(CallRef("user_code", "CALLS", str(file.parent)))
    assert isinstance(found, list)
    return found


def values(file: Path, length: int = 40) -> list[object]:
    return [json.loads(row[2]) for row in outcome(file, RECORDS, length).get("out", [])]


def metrics(task: Task) -> dict[str, float]:
    return {each.name: each.count if each.kind == "timer" else each.number for each in task.metrics.view()}
