"""`streamkit dev`: a topology that runs while its files change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from streamkit.errors import StreamkitError
from streamkit.runtime.local.instance.supervisor import LIFELINE
from streamkit_cli.guard import call, print_message
from streamkit_cli.loading import SETTINGS, load_plan
from streamkit_cli.logs import opened
from streamkit_cli.problems import CheckOptions, validate_files

if TYPE_CHECKING:
    from streamkit.plan.model import Plan

_WATCHED = {".yaml", ".yml", ".py", ".json", ".avsc", ".proto"}
_PASSED_OVER = {"node_modules", "__pycache__"}
_END_SECONDS = 60.0
"""How long a process may commit and close its stores before it is killed."""

_Files = dict[str, tuple[int, int]]


class Change(StrEnum):
    """What a look at the files led to."""

    STARTED = "started"
    RESTARTED = "restarted"
    MISTAKES = "mistakes"
    ENDED = "ended"
    NOTHING = "nothing"


class Options(NamedTuple):
    """The options of the command.

    settings: pairs of --set with those of development. rate None: no generators. creates_topics: topics of the file that do
    not exist are created, with one partition where it declares none.
    """

    settings: dict[str, str]
    env_file: str | None
    http: str | None
    rate: str | None
    creates_topics: bool = False


class Development:
    """The processes of one topology, `run` and `generate`: they start again after each change that is valid."""

    def __init__(self, file: str, options: Options):
        self._file = file
        self._options = options
        self._pairs = [f"{name}={value}" for name, value in options.settings.items()]
        self._seen: _Files = {}
        self._included: Sequence[str] = ()
        self._application: subprocess.Popen[bytes] | None = None
        self._generator: subprocess.Popen[bytes] | None = None
        # Children see the end of this process however it ends.
        self._lifeline, self._lifeline_writer = os.pipe()

    def look(self) -> Change:
        """Look once whether files have changed or the application has ended, and act on it."""
        files = self._files()
        if files != self._seen:
            first, self._seen = not self._seen, files
            options = CheckOptions(excerpt=None, settings=self._pairs, env_file=self._options.env_file)
            if call(lambda: validate_files([self._file], options)):
                what = "the version before it keeps running" if self._application else "it starts when they are mended"
                print_message(f"{self._file} has mistakes; {what}")
                return Change.MISTAKES
            self._restart()
            return Change.STARTED if first else Change.RESTARTED
        if self._application is not None and self._application.poll() is not None:
            code, self._application = self._application.returncode, None
            self._stop()
            print_message(f"{self._file} has ended with exit code {code}; it starts again after the next change")
            return Change.ENDED
        return Change.NOTHING

    def close(self) -> None:
        """End the processes in order."""
        self._stop()
        os.close(self._lifeline_writer)
        os.close(self._lifeline)

    @property
    def process(self) -> int | None:
        """The id of the application's process; None while it does not run."""
        return self._application.pid if self._application else None

    def _restart(self) -> None:
        again = self._application is not None
        self._stop()
        plan = load_plan(self._file, self._pairs, self._options.env_file)
        self._included = plan.included
        if self._options.creates_topics:
            _create_topics(plan)
        shared = ("--env-file", self._options.env_file) if self._options.env_file else ()
        http = ("--http", self._options.http) if self._options.http else ()
        self._application = self._start("run", self._file, "--no-live", *http, *shared)
        if plan.generators and self._options.rate is not None:
            self._generator = self._start("generate", self._file, "--rate", self._options.rate, *shared)
        print_message(f"{self._file} {'is restarted' if again else 'runs'}{self._summary()}")

    def _summary(self) -> str:
        page = f"; its page: http://{self._options.http}" if self._options.http else ""
        return f"{page}; its generators write {self._options.rate}" if self._generator else page

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment: Mapping[str, str] = {
            **os.environ,
            SETTINGS: json.dumps(self._options.settings),
            LIFELINE: str(self._lifeline),
        }
        return subprocess.Popen(
            [sys.executable, "-m", "streamkit_cli", *arguments],
            stdin=subprocess.DEVNULL,
            env=environment,
            pass_fds=(self._lifeline,),
        )

    def _stop(self) -> None:
        # The generator first: what it has written can be processed.
        for process in (self._generator, self._application):
            if process is not None:
                process.terminate()
                try:
                    process.wait(_END_SECONDS)
                except BaseException as error:
                    # A second interrupt, too.
                    process.kill()
                    process.wait()
                    if not isinstance(error, subprocess.TimeoutExpired):
                        raise
        self._generator = self._application = None

    def _files(self) -> _Files:
        """Return the time and size of each file that the topology may depend on: those of its folder, and included ones."""
        found: _Files = {}
        for folder, folders, names in os.walk(Path(self._file).resolve().parent):
            folders[:] = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
            for name in names:
                if os.path.splitext(name)[1] in _WATCHED:
                    _note(found, os.path.join(folder, name))
        for path in (self._file, *self._included):
            _note(found, os.path.realpath(path))
        return found


def _note(found: _Files, path: str) -> None:
    # Editors replace files: one may be missing for a moment.
    with suppress(OSError):
        state = os.stat(path)
        found[path] = (state.st_mtime_ns, state.st_size)


def _create_topics(plan: Plan) -> None:
    from streamkit.transport.log_interface import NewTopic

    with opened(plan) as log:
        admin = log.admin()
        try:
            existing = admin.topics([*plan.external_topics])
            missing = [topic for name, topic in plan.external_topics.items() if name not in existing]
            # One broker holds one replica, whatever the file asks of others.
            admin.create_topics([NewTopic(topic.name, topic.partitions or 1, topic.config) for topic in missing])
        finally:
            admin.close()


def development_folder(file: str, *, kafka: bool) -> Path:
    """Return where a run in development keeps its log and its state; those of a broker are apart from the embedded log's."""
    return Path(file).resolve().parent / ".streamkit" / ("dev-kafka" if kafka else "dev")


def development_settings(file: str, pairs: dict[str, str], broker: str | None = None) -> dict[str, str]:
    """Return the settings of a run in development: a log and a state of its own beside the file, and frequent commits.

    broker: HOST:PORT of a broker for development, which has one node and no security.
    """
    of_broker = {"security.protocol": "PLAINTEXT", "replication.factor": "1"} if broker else {}
    return {
        "bootstrap.servers": broker or "embedded",
        "state.dir": str(development_folder(file, kafka=broker is not None)),
        "commit.interval.ms": "1000",
        **of_broker,
        **pairs,
    }


def require_valid_options(file: str, options: Options) -> None:
    """Raise the error of a wrong --set or --env-file, which no change of a file mends."""
    try:
        load_plan(file, [f"{name}={value}" for name, value in options.settings.items()], options.env_file)
    except StreamkitError as error:
        if error.exit_code == 2:
            raise
