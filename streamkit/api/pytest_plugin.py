"""The pytest plugin: tests in YAML (`*.test.yaml`) are collected, and `topology_driver` gives test drivers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from streamkit.api.topology_driver import TopologyDriver
    from streamkit.testing.case_runner import Outcome
    from streamkit.testing.cases import Case

SUFFIXES = (".test.yaml", ".test.yml")


class CaseFailed(Exception):
    """A case has failed; the text is that of `streamkit test`."""


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the cases of a test file."""
    if not file_path.name.endswith(SUFFIXES):
        return None
    return TestFile.from_parent(parent, path=file_path)


class TestFile(pytest.File):
    """A file of tests in YAML."""

    __test__ = False

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the cases; mistakes in the file are errors of the collection, with their places."""
        from streamkit.errors import StreamkitError
        from streamkit.testing.case_file import load
        from streamkit.testing.suite import Plans, Session

        plans = Plans(os.environ, {})
        try:
            case_file = load(self.path, plans)
        except StreamkitError as error:
            raise self.CollectError(str(error)) from error
        session = Session(plans)
        for case in case_file.cases:
            yield TestCase.from_parent(
                self, name=case.name, case=case, run=partial(session.outcome_of, case_file, case)
            )


class TestCase(pytest.Item):
    """One case of a file."""

    __test__ = False

    def __init__(self, *, case: Case, run: Callable[[], Outcome], **options: Any):  # those of pytest.Item
        super().__init__(**options)
        self._case = case
        self._run = run

    def runtest(self) -> None:
        """Run the case on the driver of `streamkit try`."""
        from streamkit.testing.failure_report import text

        failures = self._run().failures
        if failures:
            raise CaseFailed("\n".join(map(text, failures)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the differences, without a traceback of the plugin."""
        if isinstance(excinfo.value, CaseFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the place of the case."""
        return self.path, self._case.position.line - 1, f"{self.path.name}: {self.name}"


@pytest.fixture
def topology_driver(request: pytest.FixtureRequest) -> Iterator[Callable[..., TopologyDriver]]:
    """A function (path or text of a topology, settings) that returns a test driver, closed after the test.

    A relative path is taken from the folder of the test. Raises TopologyError.
    """
    from streamkit.api.topology import load

    with ExitStack() as opened:

        def driver(source: str | Path, settings: Mapping[str, object] | None = None) -> TopologyDriver:
            if isinstance(source, Path) or "\n" not in source:
                source = request.path.parent / source
            return opened.enter_context(load(source, settings).driver())

        yield driver
