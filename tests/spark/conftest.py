"""One Spark session for all tests here: starting one takes longer than most jobs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from streamkit.distribution import install_command
from streamkit.runtime.spark.spark_session import Cluster, open_session
from streamkit_cli.command_line import application
from tests.cli.support import Done
from tests.requirements import MissingTool, require
from tests.spark import archive
from tests.spark.incremental_runs import TOPOLOGY
from tests.spark.spark_page import UI
from tests.spark.support import SETTINGS


@pytest.fixture(autouse=True, scope="session")
def java() -> None:
    """Spark runs on the JVM, so that every test of this folder is marked."""
    require("java")
    if find_spec("pyspark") is None:
        raise MissingTool(f"needs Spark: {install_command('spark')}, which make test does where there is a java")
    archive.make()


@pytest.fixture(scope="session")
def spark() -> Iterator:
    """A session on local[2] with Spark's page."""
    session = open_session(Cluster("local[2]", SETTINGS | UI), "tests")
    yield session
    session.stop()


@pytest.fixture
def own_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of this process run in the session of all tests, and leave it open."""
    monkeypatch.setattr(spark, "stop", lambda: None)


@pytest.fixture
def streamkit_here(own_session: None, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """A function that runs a command in this process: the start of another JVM takes longer than the commands.

    Those of test_job_file.py and test_samples.py, among others, start their own.
    """

    def run(*arguments: object) -> Done:
        words = [*map(str, arguments)]
        capsys.readouterr()
        before = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.raises(SystemExit) as ended:
                application(words)(args=words, prog_name="streamkit")
        finally:
            # A command leaves it ignored, also for processes that later tests start and terminate.
            signal.signal(signal.SIGTERM, before)
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def counting(tmp_path: Path) -> Path:
    """The file of a topology that counts words, with and without windows."""
    found = tmp_path / "topology.yaml"
    found.write_text(TOPOLOGY, encoding="utf-8")
    return found
