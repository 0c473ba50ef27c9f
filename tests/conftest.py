"""What every test may use: the real broker, started once a session when a test asks for it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.broker.kafka_broker import Broker
from tests.requirements import MissingTool, may_skip

# What applications say of their starts and ends would stand between what tests compare.
os.environ.setdefault("STREAMKIT_LOG_LEVEL", "warning")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running Kafka broker; `broker.address` is its bootstrap address."""
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


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


_SLOWEST_FIRST = ("spark", "fuzz", "broker", "chaos")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run in several processes, have each file in one of them, and all of Spark: a session takes long to start.

    What takes longest begins first, so that all processes end at about the same time.
    """
    for item in items:
        folder = item.path.parent.name
        item.add_marker(pytest.mark.xdist_group("spark" if folder == "spark" else str(item.path)))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    folder = item.path.parent.name
    return _SLOWEST_FIRST.index(folder) if folder in _SLOWEST_FIRST else len(_SLOWEST_FIRST)


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers."""
    config.addinivalue_line("markers", "broker: needs a real Kafka broker (java and Maven)")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Count at the very end, below the lines of `-rs` for each test, what was skipped, by reason."""
    yield
    reasons = Counter(str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []))
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} tests were not run: {reason.removeprefix('Skipped: ')}")
