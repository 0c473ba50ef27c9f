"""The pytest plugin: tests in YAML (`*.test.yaml`) are collected, and `topology_driver` gives test drivers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from streamkit.api.driver import TopologyDriver
    from streamkit.testing.model import Case
    from streamkit.testing.run import Outcome

SUFFIXES = (".test.yaml", ".test.yml")


class CaseFailed(Exception):
    """A case did not do what it says; the text is what `streamkit test` shows."""


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the cases of a test file."""
    if not file_path.name.endswith(SUFFIXES):
        return None
    return TestFile.from_parent(parent, path=file_path)  # type: ignore[no-any-return]


class TestFile(pytest.File):
    """A file of tests in YAML."""

    __test__ = False

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the cases; mistakes in the file are errors of the collection, with their places."""
        from streamkit.errors import StreamkitError
        from streamkit.testing.find import Plans
        from streamkit.testing.load import load
        from streamkit.testing.session import Session

        plans = Plans(os.environ, {})
        try:
            found = load(self.path, plans)
        except StreamkitError as error:
            raise self.CollectError(str(error)) from error
        session = Session(plans)
        for case in found.cases:
            yield TestCase.from_parent(self, name=case.name, case=case, run=partial(session.outcome_of, found, case))


class TestCase(pytest.Item):
    """One case of a file."""

    __test__ = False

    def __init__(self, *, case: Case, run: Callable[[], Outcome], **options: Any):
        super().__init__(**options)
        self._case = case
        self._run = run

    def runtest(self) -> None:
        """Run the case on the driver of `streamkit try`."""
        from streamkit.testing.report import text

        failures = self._run().failures
        if failures:
            raise CaseFailed("\n".join(map(text, failures)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show what is different, without a traceback of the plugin."""
        if isinstance(excinfo.value, CaseFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return where the case stands."""
        return self.path, self._case.position.line - 1, f"{self.path.name}: {self.name}"


@pytest.fixture
def topology_driver(request: pytest.FixtureRequest) -> Iterator[Callable[..., TopologyDriver]]:
    """A function (path or text of a topology, settings) that returns a test driver, closed after the test.

    A relative path is taken from the folder of the test. Raises TopologyError.
    """
    from streamkit.api.topology import load

    with ExitStack() as opened:

        def driver(source: str | Path, settings: dict[str, Any] | None = None) -> TopologyDriver:
            if isinstance(source, Path) or "\n" not in source:
                source = request.path.parent / source
            return opened.enter_context(load(source, settings).driver())

        yield driver
