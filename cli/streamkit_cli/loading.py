"""Opens what a command works on: the topology file with its settings, and the log that it names.

Without typer, whose import takes as long as the validation of a file.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from typing import TYPE_CHECKING

from streamkit.distribution import install_command
from streamkit.errors import ConfigError, TopicError, UsageError
from streamkit_cli.guard import print_message

if TYPE_CHECKING:
    from streamkit.plan.model import ExternalTopic, Plan
    from streamkit.spec.topology_model import TopologyModel
    from streamkit.transport.log_interface import TopicInfo, Transport

STDIN = "-"
"""The name of the standard input as a topology file."""
SETTINGS = "STREAMKIT_SETTINGS"
"""The environment variable with the settings that a supervisor hands to its instances, as JSON."""


def load_plan(
    file: str, settings: list[str] | None, env_file: str | None, *, imports: bool = False, text: str | None = None
) -> Plan:
    """Return the plan of a topology file. Raises UsageError for no such file, TopologyError for its problems.

    imports: import the Python code that the file names, and check the calls of it, too. text: of the standard input, if it
    was read before.
    """
    from streamkit.plan import build

    variables = environment(env_file)
    model = load_model(file, variables, text)
    with wrong_settings():
        plan = build(model, overrides(settings), variables)
    if imports:
        from streamkit.spec.import_check import check_imports

        check_imports(model)
    return plan


def load_model(file: str, variables: Mapping[str, str], text: str | None = None) -> TopologyModel:
    """Return the model of a topology file, or of the standard input for `-`. Raises UsageError, TopologyError."""
    from streamkit import spec

    if file == STDIN:
        return spec.load_text(stdin_text() if text is None else text, "stdin", environment=variables)
    require_file(file)
    return spec.load(file, environment=variables)


def stdin_text() -> str:
    """Return the text of the standard input. Raises TopologyError if it is not UTF-8."""
    from streamkit import spec

    return spec.decode(sys.stdin.buffer.read(), "stdin")


def refuse_stdin(file: str) -> None:
    """Raise UsageError if the topology would come from the standard input, which holds the command's records."""
    if file == STDIN:
        raise UsageError("the topology can't come from stdin, where the records come from")


def require_file(file: str) -> None:
    """Raise UsageError unless the file exists and is one that can be read at all."""
    if not os.path.exists(file):
        hint = f"; an address begins with http://: http://{file}" if re.fullmatch(r"[\w.-]+:[0-9]+", file) else ""
        raise UsageError(f"{file}: no such file{hint}")
    if os.path.isdir(file):
        raise UsageError(f"{file}: is a directory, not a topology file")


@cache
def _handed_once() -> str:
    # Programs that the application starts do not inherit it.
    return os.environ.pop(SETTINGS, "{}")


def _handed() -> dict[str, str]:
    settings: dict[str, str] = json.loads(_handed_once())
    return settings


def overrides(settings: list[str] | None) -> dict[str, str]:
    """Return the pairs of `--set`, and those that a supervisor has handed to this process. Raises UsageError.

    >>> overrides(["a.b=c=d"])
    {'a.b': 'c=d'}
    """
    values = _handed()
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            # What follows the name may be a secret.
            begin = re.match(r"[\w.-]*", setting)
            raise UsageError(f"--set {begin[0] if begin else ''}: expected KEY=VALUE")
        values[name.strip()] = value
    return values


@contextmanager
def wrong_settings() -> Iterator[None]:
    """Raise an error about a setting of `--set` as a UsageError."""
    try:
        yield
    except ConfigError as error:
        if str(error).startswith("--set: "):
            raise UsageError(str(error)) from error
        raise


def environment(env_file: str | None) -> Mapping[str, str]:
    """Return the variables that a topology may use; variables of the process override those of the file."""
    if env_file is None:
        return os.environ
    from streamkit.config import read_env_file

    return {**read_env_file(env_file), **os.environ}


def start_language_server(env_file: str | None = None) -> None:
    """Serve an editor over the standard streams. Raises UsageError if pygls is not installed."""
    try:
        from streamkit.editor.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol", "cattrs"):
            raise
        raise UsageError(f"the language server needs pygls: {install_command('lsp')}") from error
    serve(env_file)


# The log that a topology names, opened for one command, and its topics.


SILENCE_S = 2.0
"""Seconds after which a log that does not answer is reported."""


@contextmanager
def opened(plan: Plan, *, creates: bool = True) -> Iterator[Transport]:
    """Open the log that `bootstrap.servers` names, and close it at the end. creates False: write nothing, not even a directory."""
    from streamkit.runtime.operations.opening import open_log

    if creates:
        announce(plan)
    with closing(open_log(plan, creates=creates)) as transport, silence_noticed(plan):
        yield transport


@contextmanager
def silence_noticed(plan: Plan) -> Iterator[None]:
    """Print after 2 s what was tried, if no broker answers; the clients wait longer before they give up.

    `run` logs this itself (runtime.local.client.StartRetries).
    """
    from streamkit.runtime.operations.opening import address

    if address(plan).startswith("embedded"):
        yield
        return
    ended = threading.Event()
    threading.Thread(target=_notice_silence, args=(plan, ended), name="silence", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _notice_silence(plan: Plan, ended: threading.Event) -> None:
    from streamkit.runtime.operations.opening import address, silence_of

    if ended.wait(SILENCE_S):
        return
    tried = silence_of(plan)
    if tried is not None and not ended.is_set():
        print_message(f"no answer from {address(plan)} yet; tried {tried}")


def announce(plan: Plan) -> None:
    """Print once where the embedded log is kept, unless the user has chosen the place."""
    from streamkit.runtime.operations.opening import address

    config = plan.config
    place = config.state_dir
    if address(plan) == "embedded" and config.origin("state.dir") == "default" and not os.path.exists(place):
        print_message(f"the log and the state are kept in {place} (state.dir)")


def existing_topic(transport: Transport, plan: Plan, topic: ExternalTopic) -> TopicInfo:
    """Return a topic as it exists, created if it is missing and declared. Raises TopicError for a missing one.

    The embedded log has no administrator who could make a topic beforehand, so there one partition is the default.
    """
    from streamkit.runtime.operations.opening import address
    from streamkit.transport.log_interface import NewTopic

    partitions = topic.partitions or (1 if address(plan).startswith("embedded") else None)
    with closing(transport.admin()) as admin:
        existing = admin.topics([topic.name])
        if topic.name not in existing and partitions:
            new = NewTopic(topic.name, partitions, topic.config, topic.replication_factor or -1)
            admin.create_topics([new])
            existing = admin.topics([topic.name])
    if topic.name not in existing:
        raise TopicError(
            f"topic {topic.name} does not exist at {address(plan)}; it is created where `partitions` is declared"
        )
    return existing[topic.name]
