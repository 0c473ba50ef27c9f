"""Checks one setting by itself: its name, and its value's type."""

from __future__ import annotations

from streamkit.config.settings import ALIASES, REFUSED, SETTINGS, TOPIC_SETTINGS, SettingValue
from streamkit.config.values import as_text, convert
from streamkit.errors import ConfigError
from streamkit.suggestions import did_you_mean

PREFIXES = {
    "main.consumer.": "consumer",
    "restore.consumer.": "consumer",
    "global.consumer.": "consumer",
    "consumer.": "consumer",
    "producer.": "producer",
    "admin.": "admin",
}
"""Prefixes of client settings, with the role of the client."""
TOPIC_PREFIX = "topic."
TAG_PREFIX = "client.tag."


class UnknownSettingError(ConfigError):
    """A setting that streamkit does not have; the message names what to write in its place."""


def check(name: str, value: object) -> SettingValue:
    """Return the value of a setting as its type (int, bool, str, tuple of str).

    Raises UnknownSettingError for a name that `config` can't have, ConfigError for an impossible value.
    """
    setting = SETTINGS.get(ALIASES.get(name, name))
    if setting is not None:
        return convert(setting, value)
    if name in REFUSED:
        raise UnknownSettingError(f"{name} can't be set: {REFUSED[name]}")
    if name.startswith(TAG_PREFIX) and len(name) > len(TAG_PREFIX):
        return as_text(name, value)
    if name.startswith(TOPIC_PREFIX):
        return topic_value(name.removeprefix(TOPIC_PREFIX), value, name)
    return _client_value(name, value)


def split(name: str) -> tuple[str, str]:
    """Return the prefix of a client setting ("" without one) and the rest.

    >>> split("main.consumer.fetch.max.bytes")
    ('main.consumer.', 'fetch.max.bytes')
    """
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name


def _client_value(name: str, value: object) -> str:
    from streamkit.config import clients  # a large table, which only files with client settings need

    prefix, rest = split(name)
    if rest in clients.REFUSED:
        raise UnknownSettingError(f"{name} can't be set: {clients.REFUSED[rest]}")
    if prefix and rest == "bootstrap.servers":
        raise UnknownSettingError(f"{name} can't be set: all clients share bootstrap.servers")
    if rest == "auto.offset.reset" and prefix in ("restore.consumer.", "global.consumer."):
        raise UnknownSettingError(
            f"{name} can't be set: changelogs and global tables are read from their beginning; "
            f"write main.consumer.{rest}"
        )
    roles = clients.roles_of(rest)
    if not roles:
        known = clients.KNOWN if prefix else (*SETTINGS, *REFUSED, *clients.KNOWN)
        raise UnknownSettingError(f"There is no setting {name!r}{did_you_mean(rest, known, prefix=prefix)}")
    if prefix and PREFIXES[prefix] not in roles:
        listed = " and ".join(sorted(roles))
        raise UnknownSettingError(f"{name} can't be set: {rest} is a setting of {listed}")
    text = as_text(name, value)
    try:
        clients.translate(rest, text)
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error}") from error
    return text


def topic_value(name: str, value: object, given: str = "") -> str:
    """Return the value of a topic's setting as text.

    `given`: the name as the user wrote it. Raises UnknownSettingError and ConfigError.
    """

    if name not in TOPIC_SETTINGS:
        raise UnknownSettingError(
            f"There is no setting {given or name!r} of topics{did_you_mean(name, TOPIC_SETTINGS)}"
        )
    return as_text(given or name, value)
