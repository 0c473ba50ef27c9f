"""What Spark's page shows of the jobs in a block, by its REST API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import urlopen

UI = {"spark.ui.enabled": "true", "spark.ui.port": "0"}


class SparkPage:
    """The page of a session, which has the settings UI."""

    def __init__(self, spark: Any):
        self._context = spark.sparkContext
        self.jobs: list[dict] = []
        """The jobs of the last block, in the order in which they began."""
        self.stages: list[dict] = []
        """The stages of it that ran."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note the jobs and stages of the block."""
        before = len(self.read("jobs"))
        yield
        self.jobs = sorted(self.read("jobs"), key=lambda job: job["jobId"])[before:]
        own = {number for job in self.jobs for number in job["stageIds"]}
        found = [stage for stage in self.read("stages") if stage["stageId"] in own and stage["status"] != "SKIPPED"]
        self.stages = sorted(found, key=lambda stage: stage["stageId"])

    @property
    def names(self) -> list[str]:
        """The names of the stages that ran."""
        return [stage["name"] for stage in self.stages]

    def read(self, what: str) -> list[dict]:
        """Read a list of the application's, once the page has all that happened."""
        self._context._jsc.sc().listenerBus().waitUntilEmpty(60_000)
        address = f"{self._context.uiWebUrl}/api/v1/applications/{self._context.applicationId}/{what}"
        with urlopen(address) as answer:
            found: list[dict] = json.load(answer)
        return found
