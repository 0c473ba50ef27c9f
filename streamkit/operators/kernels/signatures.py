"""The types of the functions that generated code passes to kernels; times are milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from streamkit.record import Key, RecordContext, Value

Forward: TypeAlias = Callable[[Key, Value, int, RecordContext], None]
"""(key, value, timestamp, context): forwards a record to the children of a node."""

ForwardChange: TypeAlias = Callable[[Key, Value, Value, int, RecordContext, bool], None]
"""(key, new value, old value, timestamp, context, whether it is the latest): forwards a change of a table."""

Lookup: TypeAlias = Callable[[bytes], tuple[Value, int] | None]
"""(key bytes) to the value and timestamp of a table's row, None where there is no row."""

Joiner: TypeAlias = Callable[[Key, Value, Value], Value]
"""(key, left, right) to the joined value."""

DecodeKey: TypeAlias = Callable[[bytes], Key]
