"""The optional extension `streamkit._native`: whether it is in use, and clients that are created with it.

The extension is a plug-in of the librdkafka bundled with confluent-kafka. A client created with it has a link to the extension;
confluent-kafka keeps everything else about the client. If anything is not as expected, streamkit uses confluent-kafka alone and
logs the reason once.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Mapping
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, cimpl

from streamkit.errors import ConfigError
from streamkit.extension import AUTO, OFF, SWITCH, switch

if TYPE_CHECKING:
    from streamkit import _native

log = logging.getLogger(__name__)

Settings = Mapping[str, object]
Client = TypeVar("Client")
Link = TypeVar("Link")

_PLUGINS = "plugin.library.paths"
_NOT_BUILT = "it was not built; building it at installation needs a C compiler and the Python headers"


class _Use:
    """Whether new clients are created with the extension; after the first failure they are not."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.refused = ""

    def end(self, reason: str) -> None:
        """Stop creating clients with the extension; log the reason once."""
        with self._lock:
            if self.refused:
                return
            self.refused = reason
        log.warning("records go through confluent-kafka alone, without the native extension: %s", reason)


_use = _Use()


def create_consumer(settings: Settings, logger: logging.Logger) -> tuple[Consumer, _native.Consumer | None]:
    """Create a consumer of confluent-kafka, and its link; None without the extension. Raises KafkaException."""
    client, has_plugin = _create(lambda client_settings: Consumer(client_settings, logger=logger), settings)
    if not has_plugin:
        return client, None
    from streamkit import _native

    return client, _linked(lambda: _native.Consumer(client))


def create_producer(
    settings: Settings, logger: logging.Logger | logging.LoggerAdapter[logging.Logger]
) -> tuple[Producer, _native.Producer | None]:
    """Create a producer of confluent-kafka, and its link; None without the extension. Raises KafkaException."""
    client, has_plugin = _create(lambda client_settings: Producer(client_settings, logger=logger), settings)
    if not has_plugin:
        return client, None
    from streamkit import _native

    return client, _linked(lambda: _native.Producer(client))


def new_client(make: Callable[[], Client]) -> Client:
    """Return a new librdkafka client, after a garbage collection if the process has no key for thread-local storage left.

    A client holds a key until it is freed, and closed clients form cycles with their callbacks, which Python rarely
    collects.
    """
    try:
        return make()
    except RuntimeError:
        gc.collect()
        return make()


def missing() -> str:
    """Return why clients are created without the extension; empty if they have it. Raises ConfigError."""
    chosen = switch()
    if chosen not in (AUTO, OFF):
        raise ConfigError(f"{SWITCH} takes {AUTO} or {OFF}, not {chosen!r}")
    return f"{SWITCH} is {OFF}" if chosen == OFF else _use.refused or _load()


def _create(make: Callable[[dict[str, object]], Client], settings: Settings) -> tuple[Client, bool]:
    """Create a client; return it and whether it has the extension as its plug-in."""
    return new_client(lambda: _create_once(make, settings))


def _create_once(make: Callable[[dict[str, object]], Client], settings: Settings) -> tuple[Client, bool]:
    if not missing():
        from streamkit import _native

        try:
            # No topology may use this setting (streamkit.config.clients), because it would load native code.
            return make({**settings, _PLUGINS: str(_native.__file__)}), True
        except KafkaException as error:
            # Its text names the plug-in or the setting, unless a long path leaves it no room; other errors come from the user's settings.
            if not any(word in str(error) for word in ("plugin", "dlopen()")):
                raise
            _use.end(f"librdkafka refuses it ({error})")
    return make(dict(settings)), False


def _linked(link: Callable[[], Link]) -> Link | None:
    try:
        return link()
    except LookupError as error:
        _use.end(str(error))
        return None


@cache
def _load() -> str:
    """Connect the extension with librdkafka; return what is missing."""
    try:
        from streamkit import _native
    except ImportError:
        return _NOT_BUILT
    try:
        _native.load(cimpl.__file__)
    except ImportError as error:
        _use.end(f"librdkafka can't be used: {error}")
    return _use.refused
