"""What every test may use: the real broker, started once a session when a test asks for it."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests.broker.kafka_broker import Broker
from tests.marking import starts_processes
from tests.requirements import MissingTool, may_skip, refuse_processes, refusing, require
from tests.spark import archive

# Applications log their starts and ends; these lines would stand between those that tests compare.
os.environ.setdefault("STREAMKIT_LOG_LEVEL", "warning")
# A client of kafka-python whose broker was ended warns until it is closed: its lines would stand in other tests' logs.
logging.getLogger("kafka").setLevel(logging.CRITICAL)
archive.configure()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running Kafka broker; `broker.address` is its bootstrap address."""
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def java() -> None:
    """Java programs can be run: tests that run one take this fixture."""
    require("java", "javac")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    """Skip what a missing tool keeps from running; show the end of the broker's log with a failure of a test that used it."""
    if call.excinfo is not None and isinstance(call.excinfo.value, MissingTool) and may_skip():
        skipped = pytest.skip.Exception(str(call.excinfo.value), _use_item_location=True)
        call.excinfo = pytest.ExceptionInfo.from_exception(skipped.with_traceback(call.excinfo.tb))
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    used = getattr(item, "funcargs", {}).get("broker")
    if report.failed and isinstance(used, Broker):
        report.sections.append(("broker log", used.log_tail()))


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without collections of garbage, and leave what is there then out of all later ones.

    Modules and tests are 200,000 objects that live to the end: going through them again and again is a sixth of
    the CPU time of tests that compile topologies.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


_SPARK = "tests/spark/"
_SLOWEST_FIRST = ("spark", "fuzz", "broker", "chaos", "runtime", "state", "contracts")
# What a test uses besides Python, by the fixture that gives it.
_MARKERS = {
    "broker": "broker",
    "java": "java",
    "registry": "java",
    "browser": "browser",
}
_NOT_FAST = {
    "broker": "uses a real Kafka broker (java and Maven)",
    "java": "runs Java programs, a schema registry or Spark",
    "browser": "uses a real browser",
    "process": "starts processes, such as commands of streamkit",
    "slow": "takes more than two seconds for a reason of its own",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they use.

    The slowest folders begin first, so that all processes end at about the same time.
    """
    for item in items:
        for fixture in _MARKERS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(_MARKERS[fixture])
        if starts_processes(item):
            item.add_marker("process")
        if not any(mark.name in _NOT_FAST for mark in item.iter_markers()):
            item.add_marker("fast")
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    folder = item.path.parent.name
    return _SLOWEST_FIRST.index(folder) if folder in _SLOWEST_FIRST else len(_SLOWEST_FIRST)


class Groups(LoadFileScheduling):
    """Runs each file in one process, so that its fixtures are made once, and all files of Spark in the same one."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return _SPARK if file.startswith(_SPARK) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups | None:
    """Group tests where `--dist loadfile` asks for groups of files.

    `--dist loadgroup` and its marker group nothing with pytest 9.2 and xdist 3.8.
    """
    return Groups(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers; an example of Hypothesis has no limit of time, which a slow machine would pass."""
    sys.addaudithook(refuse_processes)
    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")
    for name, meaning in _NOT_FAST.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    config.addinivalue_line("markers", "fast: has none of the other markers (set by tests/conftest.py; make test-fast)")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Make a fast test fail where it starts a process."""
    with refusing() if item.get_closest_marker("fast") else nullcontext():
        yield


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Count at the very end, below the lines of `-rs` for each test, what was skipped, by reason."""
    yield
    reasons = Counter(str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []))
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} tests were not run: {reason.removeprefix('Skipped: ')}")
