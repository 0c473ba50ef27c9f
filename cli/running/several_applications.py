"""`run` with several topologies: separate applications in one process, which end together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamkit.errors import Problem, StreamkitError, TopologyError, UsageError
from streamkit_cli.loading import STDIN, load_plan

if TYPE_CHECKING:
    from streamkit.config import Config
    from streamkit.http.overview import Served
    from streamkit.plan.model import Plan
    from streamkit_cli.running.serving import HttpOptions

RunOne = Callable[["Plan", str | None, list["Served"]], None]
"""Runs one application until its end: (plan, address of its server, where it notes what is served)."""


def load_plans(files: list[str], settings: list[str] | None, env_file: str | None) -> list[Plan]:
    """Return the plans of topologies. Raises TopologyError with the problems of all, UsageError where ids are equal."""
    if len(files) > 1 and STDIN in files:
        raise UsageError("stdin holds one topology; several are files")
    plans: list[Plan] = []
    problems: list[Problem] = []
    for file in files:
        try:
            plans.append(load_plan(file, settings, env_file, imports=True))
        except TopologyError as error:
            problems += error.problems
    if problems:
        raise TopologyError(problems)
    known: dict[str, Plan] = {}
    for plan in plans:
        if plan.application in known:
            first = known[plan.application].file
            raise UsageError(
                f"{first} and {plan.file} are one application, {plan.application}; give each a name of its own"
            )
        known[plan.application] = plan
    return plans


def run_together(plans: list[Plan], http: HttpOptions, run_one: RunOne, stop_requested: threading.Event) -> None:
    """Run applications, each in a thread, until all have ended; the failure of one ends the others in order.

    Raises the error of the first that failed.
    """
    served: list[Served] = []
    errors: list[BaseException] = []

    def run(plan: Plan, address: str | None) -> None:
        try:
            run_one(plan, address, served)
        except BaseException as error:
            if isinstance(error, StreamkitError):
                error.add_note(f"the application {plan.application} has failed, and the others end with it")
            errors.append(error)
            stop_requested.set()

    with _overview(http, served, plans[0].config):
        threads = [
            threading.Thread(target=run, args=(plan, _port_of(http.address, number)), name=plan.application)
            for number, plan in enumerate(plans, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def _port_of(http: str | None, number: int) -> str | None:
    """Return the address of one application's server: that of the overview, with a port that is `number` higher."""
    if http is None:
        return None
    from streamkit.http.server.http_server import parse_address

    host, port = parse_address(http)
    if port + number > 65535:
        raise UsageError(f"--http {http}: each application takes a port of its own, the next ones up")
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port + number if port else 0}"


@contextmanager
def _overview(http: HttpOptions, served: list[Served], config: Config) -> Iterator[None]:
    server = http.bind()
    if server is None:
        yield
        return
    try:
        server.start_overview(lambda: list(served), config)
        yield
    finally:
        server.close()
