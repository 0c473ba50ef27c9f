"""Settings from environment variables: `STREAMKIT_` and the name in capitals, `_` for every `.` and `-`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from streamkit.config.check import PREFIXES, TAG_PREFIX, TOPIC_PREFIX
from streamkit.config.settings import ALIASES, REFUSED, SETTINGS, TOPIC_SETTINGS
from streamkit.errors import ConfigError, UsageError

PREFIX = "STREAMKIT_"
OPTIONS = frozenset(
    {
        "STREAMKIT_HTTP_TOKEN",
        "STREAMKIT_LIFELINE",
        "STREAMKIT_LOG_FORMAT",
        "STREAMKIT_LOG_LEVEL",
        "STREAMKIT_NATIVE",
        "STREAMKIT_SETTINGS",
    }
)
"""Variables that are options of commands and of the process, not settings."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def variable(name: str) -> str:
    """Return the environment variable of a setting.

    >>> variable("num.stream.threads")
    'STREAMKIT_NUM_STREAM_THREADS'
    """
    return PREFIX + name.replace(".", "_").replace("-", "_").upper()


def from_environment(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the settings by name, and the variables that begin with STREAMKIT_ and are no setting."""
    found: dict[str, str] = {}
    unknown = []
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in OPTIONS:
            continue
        setting = _setting(name)
        if setting is None:
            unknown.append(name)
        else:
            found[setting] = environment[name]
    return found, unknown


def _setting(name: str) -> str | None:
    """Return the setting of a variable, or None."""
    for setting in (*SETTINGS, *ALIASES, *REFUSED):
        if variable(setting) == name:
            return setting
    from streamkit.config import clients

    for prefix in ("", *PREFIXES):
        if name.startswith(variable(prefix)):
            rest = name.removeprefix(variable(prefix))
            for setting in (*clients.KNOWN, *clients.REFUSED):
                if variable(setting).removeprefix(PREFIX) == rest.removeprefix(PREFIX):
                    return prefix + setting
    for setting in TOPIC_SETTINGS:
        if variable(TOPIC_PREFIX + setting) == name:
            return TOPIC_PREFIX + setting
    if name.startswith(variable(TAG_PREFIX)):
        return TAG_PREFIX + name.removeprefix(variable(TAG_PREFIX)).lower()
    return None


def read_env_file(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the variables of a file of `NAME=value` lines; `#` begins a comment, `export` and quotes are allowed.

    Raises UsageError when it can't be read, ConfigError for a line of another form.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"{os.fspath(path)}: {getattr(error, 'strerror', None) or error}") from error
    found = {}
    for number, line in enumerate(lines, 1):
        line = line.strip().removeprefix("export ").strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not _NAME.fullmatch(name.strip()):
            raise ConfigError(f"{os.fspath(path)}:{number}:1: expected NAME=value")
        found[name.strip()] = _unquoted(value.strip())
    return found


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value.split(" #", 1)[0].rstrip()


_PROPERTY = re.compile(r"([^=:\s]+)\s*[=:]?\s*(.*)")


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the settings of a properties file, as Kafka's tools take it (java.util.Properties, without its escapes).

    `#` and `!` begin comments, a `\\` at the end of a line continues it. Raises UsageError when it can't be read.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, ValueError) as error:
        raise UsageError(f"{os.fspath(path)}: {getattr(error, 'strerror', None) or error}") from error
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    matches = (_PROPERTY.fullmatch(line.strip()) for line in lines if not line.lstrip().startswith(("#", "!")))
    return {match[1]: match[2] for match in matches if match}
