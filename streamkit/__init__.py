"""streamkit: Kafka Streams topologies in YAML, run by Python.

The public names are imported on first use, so that `import streamkit` takes little time.

>>> import streamkit
>>> topology = streamkit.load('''
... streamkit: 1
... application: upper
... topics: {words: {value: string}, loud: {value: string}}
... pipelines:
...   shout:
...     stream: words
...     steps: [{map_values: {value: value.upper(), value_serde: string}}]
...     to: loud
... ''')
>>> with topology.driver() as driver:
...     driver.pipe("words", key="a", value="hello", timestamp=5)
...     driver.read("loud")
[Record(key='a', value='HELLO', timestamp=5, headers=())]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamkit.api.application import Application as Application
    from streamkit.api.application import Store as Store
    from streamkit.api.protocols import BatchFunction as BatchFunction
    from streamkit.api.protocols import BatchProcessor as BatchProcessor
    from streamkit.api.protocols import KeyValueStore as KeyValueStore
    from streamkit.api.protocols import Lookup as Lookup
    from streamkit.api.protocols import Processor as Processor
    from streamkit.api.protocols import ProcessorContext as ProcessorContext
    from streamkit.api.protocols import Serde as Serde
    from streamkit.api.protocols import SessionStore as SessionStore
    from streamkit.api.protocols import Timer as Timer
    from streamkit.api.protocols import Transformer as Transformer
    from streamkit.api.protocols import VersionedStore as VersionedStore
    from streamkit.api.protocols import WindowStore as WindowStore
    from streamkit.api.protocols import processor as processor
    from streamkit.api.topology import Topology as Topology
    from streamkit.api.topology import load as load
    from streamkit.api.topology_driver import TopologyDriver as TopologyDriver
    from streamkit.errors import ConfigError as ConfigError
    from streamkit.errors import DeserializationError as DeserializationError
    from streamkit.errors import Position as Position
    from streamkit.errors import Problem as Problem
    from streamkit.errors import ProcessingError as ProcessingError
    from streamkit.errors import QueryError as QueryError
    from streamkit.errors import RetriableError as RetriableError
    from streamkit.errors import SerdeError as SerdeError
    from streamkit.errors import StateError as StateError
    from streamkit.errors import StreamkitError as StreamkitError
    from streamkit.errors import TopologyError as TopologyError
    from streamkit.errors import TransportError as TransportError
    from streamkit.errors import UsageError as UsageError
    from streamkit.record import Record as Record
    from streamkit.record import WindowedKey as WindowedKey
    from streamkit.spec.recorded_calls import Branch as Branch
    from streamkit.spec.recorded_calls import call as call
    from streamkit.spec.streams import CogroupedStream as CogroupedStream
    from streamkit.spec.streams import GlobalTable as GlobalTable
    from streamkit.spec.streams import GroupedStream as GroupedStream
    from streamkit.spec.streams import GroupedTable as GroupedTable
    from streamkit.spec.streams import Stream as Stream
    from streamkit.spec.streams import Table as Table
    from streamkit.spec.streams import WindowedCogroup as WindowedCogroup
    from streamkit.spec.streams import WindowedStream as WindowedStream

    __version__: str

_NAMES = {
    "streamkit.api.application": ("Application", "Store"),
    "streamkit.api.topology_driver": ("TopologyDriver",),
    "streamkit.api.protocols": (
        *(
            "BatchFunction",
            "BatchProcessor",
            "KeyValueStore",
            "Lookup",
            "Processor",
            "ProcessorContext",
            "Serde",
            "SessionStore",
        ),
        *("Timer", "Transformer", "VersionedStore", "WindowStore", "processor"),
    ),
    "streamkit.api.topology": ("Topology", "load"),
    "streamkit.errors": (
        *("ConfigError", "DeserializationError", "Position", "Problem", "ProcessingError", "QueryError", "SerdeError"),
        *("RetriableError", "StateError", "StreamkitError", "TopologyError", "TransportError", "UsageError"),
    ),
    "streamkit.record": ("Record", "WindowedKey"),
    "streamkit.spec.recorded_calls": ("Branch", "call"),
    "streamkit.spec.streams": (
        *("CogroupedStream", "GlobalTable", "GroupedStream", "GroupedTable", "Stream", "Table"),
        *("WindowedCogroup", "WindowedStream"),
    ),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [*_MODULES, "__version__"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from streamkit.distribution import installed_version

        return installed_version()
    if name not in _MODULES:
        raise AttributeError(f"module 'streamkit' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
