"""A topology with everything that a test may look at, and the results of test files written for it."""

from __future__ import annotations

from pathlib import Path

from streamkit.testing.case_file import load
from streamkit.testing.failure_report import text
from streamkit.testing.suite import FileResult, Plans, Session, find

TOPOLOGY = """\
streamkit: 1
application: shop
topics:
  orders: {topic: shop.orders, value: json, partitions: 2}
  large: {value: json}
  totals: {key: string, value: long}
  per-minute: {key: {windowed: string, size: 1m}, value: long}
  broken: {value: bytes}
pipelines:
  orders:
    stream: orders
    steps:
      - filter: {if: value.cents > 0, on_error: {dead_letter: broken}}
  large:
    from: orders
    steps:
      - branch:
          when:
            large: {if: value.cents > 1000, to: large}
            refund: {if: value.cents < -1000, to: large}
  totals:
    from: orders
    steps:
      - group_by_key
      - aggregate: {initial: 0, add: aggregate + value.cents, store: totals, value_serde: long}
      - to_stream
    to: totals
  per-minute:
    from: orders
    steps:
      - group_by_key
      - window: {tumbling: 1m, grace: 0}
      - count: minutes
      - to_stream
    to: per-minute
"""


def write(folder: Path, tests: str, topology: str = TOPOLOGY) -> Path:
    """Write a topology and its test file; return the latter's path."""
    (folder / "topology.yaml").write_text(topology, encoding="utf-8")
    path = folder / "topology.test.yaml"
    path.write_text(tests, encoding="utf-8")
    return path


def run(folder: Path, tests: str, update: bool = False, topology: str = TOPOLOGY, **options: str) -> FileResult:
    """Run one test file over a topology, with settings in `options`."""
    path = write(folder, tests, topology)
    session = Session(Plans({}, options), update=update)
    [result] = session.run(find([str(path)]))
    return result


def failures(folder: Path, tests: str, topology: str = TOPOLOGY, **options: str) -> list[str]:
    """Return the failures and problems of a test file as texts, without its path."""
    result = run(folder, tests, topology=topology, **options)
    found = [text(failure) for outcome in result.outcomes for failure in outcome.failures]
    place = str(folder / "topology.test.yaml:")
    return [each.replace(place, "") for each in [*found, *map(str, result.problems)]]


def rewritten(folder: Path, tests: str, topology: str = TOPOLOGY) -> str:
    """Return the text of a test file after --update; every test in it passes then."""
    result = run(folder, tests, update=True, topology=topology)
    assert not result.failed, [text(failure) for outcome in result.outcomes for failure in outcome.failures]
    again = (folder / "topology.test.yaml").read_text(encoding="utf-8")
    assert load(result.path, Plans({}, {})).cases
    assert failures(folder, again, topology) == []
    return again


def case(body: str) -> str:
    """Return a test file of one test with this body, which is indented here; its first line is line 3."""
    return "tests:\n  t:\n" + "".join(f"    {line}\n" if line else "\n" for line in body.strip("\n").split("\n"))
