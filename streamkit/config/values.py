"""Checks settings, and converts texts and YAML values to their types, with a message for values that do not fit."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

from streamkit import durations
from streamkit.config.settings import (
    ALIASES,
    CONSUMER_SETTINGS,
    REFUSED,
    SETTINGS,
    TOPIC_SETTINGS,
    Setting,
    SettingValue,
)
from streamkit.errors import ConfigError
from streamkit.suggestions import did_you_mean

SECRET_PARTS = (
    "password",
    "secret",
    "jaas",
    "passphrase",
    "credential",
    "token",
    "ssl.key",
    "ssl.keystore.key",
    "private.key",
    "user.info",
    "access.key",
    "account.key",
    "api.key",
)
MASK = "********"
_HOST_NAME = re.compile(r"(\*\.)?(?![\d.]+$)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")


def is_secret(name: str) -> bool:
    """Return whether the value of a setting must not be shown.

    >>> is_secret("ssl.key.password"), is_secret("fs.s3a.secretKey"), is_secret("num.stream.threads")
    (True, True, False)
    """
    # Settings of Spark and Hadoop are written in camel case too.
    name = re.sub("(?<=[a-z0-9])(?=[A-Z])|[_-]", ".", name).lower()
    if name.endswith((".location", ".url", ".file", ".type", ".source")):
        return False
    return any(part in name for part in SECRET_PARTS)


def shown(name: str, value: object) -> str:
    """Return a value for a message; secrets are masked."""
    text = MASK if is_secret(name) else repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:59] + "…"


def convert(setting: Setting[SettingValue], value: object) -> SettingValue:
    """Return the typed value of a setting: int, bool, str or a tuple of str. Raises ConfigError."""
    return _CONVERT[setting.kind](setting, value)


def _fail(setting: Setting[SettingValue], expected: str, value: object) -> ConfigError:
    return ConfigError(f"{setting.name} must be {expected}, not {shown(setting.name, value)}")


def _integer(setting: Setting[SettingValue], value: object) -> int:
    number = value
    if isinstance(value, str):
        digits = value.strip()
        # Java's parser takes a sign and digits only: no 1_000 and no blanks.
        number = (
            int(digits) if len(digits) < 21 and digits.lstrip("+-").isdecimal() and digits[1:].count("-") == 0 else None
        )
    if not isinstance(number, int) or isinstance(number, bool):
        raise ConfigError(f"{_fail(setting, 'a whole number', value)}{_in_milliseconds(setting, value)}")
    if number < setting.minimum:
        raise _fail(setting, f"at least {setting.minimum}", value)
    if number > setting.maximum:
        raise _fail(setting, f"at most {setting.maximum}", value)
    return number


def _in_milliseconds(setting: Setting[SettingValue], value: object) -> str:
    try:
        return f"; in milliseconds this is {durations.parse(value)}" if setting.name.endswith(".ms") else ""
    except ConfigError:
        return ""


def _boolean(setting: Setting[SettingValue], value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise _fail(setting, "true or false", value)


_ENDPOINT = re.compile(r"(?:[\w.%-]*://)?\[?[\w.:%-]+\]?:\d{1,9}", re.ASCII)
"""An address from which Java reads host and port, after a scheme that it ignores (Utils.getHost, Utils.getPort; KIP-1245)."""


def _text(setting: Setting[SettingValue], value: object) -> str:
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise _fail(setting, "text", value)
    text = str(value)
    if setting.name.endswith(".subject.name.strategy"):
        text = text.rpartition(".")[2]  # Java names the class
    if setting.name == "dsl.store.suppliers.class":
        text = text.rpartition(".")[2].rpartition("$")[2]
    if setting.name == "application.server" and text and not _ENDPOINT.fullmatch(text):
        raise _fail(setting, "host:port", value)
    if setting.name == "dsl.store.format":
        text = text.upper()  # Java ignores the case of this enumeration only
    if setting.name == "default.interactive.query.isolation.level":
        text = text.upper()
    if setting.words and text not in setting.words:
        raise _fail(setting, f"one of {', '.join(setting.words)}", value)
    return text


def _list(setting: Setting[SettingValue], value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, (str, int)) for part in parts):
        raise _fail(setting, "a list, or text with commas", value)
    items = tuple(part for part in (str(part).strip() for part in parts) if part)
    for item in items:
        if setting.words and item not in setting.words:
            raise _fail(setting, f"made of {', '.join(setting.words)}", item)
    if setting.longest is not None and len(items) > setting.longest:
        raise _fail(setting, f"at most {setting.longest} entries long", value)
    if setting.name == "topology.optimization" and len(items) > 1 and {"none", "all"} & set(items):
        raise _fail(setting, "none or all alone, or a list of optimizations", ", ".join(items))
    if setting.name == "bootstrap.servers" and not _are_addresses(items):
        raise _fail(setting, "brokers as host:port, or embedded", value)
    if setting.name == "http.peers":
        for item in items:
            if not _is_peer(item):
                raise _fail(setting, "made of networks (10.0.0.0/8), addresses and host names without a port", item)
    return items


def _is_peer(item: str) -> bool:
    """Return whether a text is a network, an address, a host name, or `*.` and a domain."""
    try:
        ipaddress.ip_network(item)
    except ValueError:
        return _HOST_NAME.fullmatch(item) is not None
    return True


def _are_addresses(items: tuple[str, ...]) -> bool:
    """Return whether texts are broker addresses that Kafka's ClientUtils accepts, or the name of the embedded log."""
    if items and (items[0] == "embedded" or items[0].startswith("embedded:")):
        return True
    return bool(items) and all(re.search(r":[0-9]{1,5}$", address, re.ASCII) for address in items)


def _handler(setting: Setting[SettingValue], value: object) -> str:
    name = value.rsplit(".", 1)[-1] if isinstance(value, str) and value.startswith("org.apache.kafka.") else value
    actions = ("fail", "continue")
    for action, known in zip((*actions, *actions), (*actions, *setting.classes), strict=False):
        if name == known:
            return action
    raise _fail(setting, f"one of {', '.join((*actions, *setting.classes))}", value)


_CONVERT: dict[str, Callable[[Setting[SettingValue], object], SettingValue]] = {
    "int": _integer,
    "bool": _boolean,
    "text": _text,
    "list": _list,
    "handler": _handler,
}


def as_text(name: str, value: object) -> str:
    """Return the value of a client or topic setting as text. Raises ConfigError for mappings and null."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, (list, tuple)) and all(isinstance(part, (str, int, float)) for part in value):
        return ",".join(as_text(name, part) for part in value)
    raise ConfigError(f"{name} must be text, a number, a boolean or a list of them")


# Checks one setting by itself: its name, and its value's type.

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
        if rest in CONSUMER_SETTINGS:
            convert(CONSUMER_SETTINGS[rest], text)
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error}") from error
    return text


def topic_value(name: str, value: object, written: str = "") -> str:
    """Return the value of a topic's setting as text.

    `written`: the name as the user wrote it. Raises UnknownSettingError and ConfigError.
    """
    if name not in TOPIC_SETTINGS:
        raise UnknownSettingError(
            f"There is no setting {written or name!r} of topics{did_you_mean(name, TOPIC_SETTINGS)}"
        )
    return as_text(written or name, value)
