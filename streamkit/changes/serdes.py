"""Serdes as plain data, and whether one reads what another has written."""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Any

from streamkit.serdes.base import Serde
from streamkit.serdes.primitives import PRIMITIVES
from streamkit.serdes.schema_serde import FramedSerde, SchemaSerde
from streamkit.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde

_SCHEMAS = ("avro", "protobuf", "json_schema")
_SAME_BYTES = {("uuid", "string")}
"""Serdes of other names with the same bytes and values: a UUID is its text (UUIDSerializer)."""


class Reads(Enum):
    """Whether a serde reads what another one wrote."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def serde_form(serde: Serde | None) -> Any:
    """Return a serde as data that JSON can hold; None: not known."""
    if serde is None:
        return None
    if isinstance(serde, TimeWindowedSerde):
        return {"windowed": serde_form(serde.inner), "size": serde.size}
    if isinstance(serde, SessionWindowedSerde):
        return {"session_windowed": serde_form(serde.inner)}
    if isinstance(serde, FramedSerde):
        return {serde.plain.kind.form: _schema(serde.plain), "registry": True}
    if isinstance(serde, SchemaSerde):
        return {serde.kind.form: _schema(serde), "registry": False}
    return serde.spec


def _schema(serde: SchemaSerde) -> dict[str, Any]:
    """Return what is known of a schema: the subject where no file gives its text."""
    if serde.schema is None:
        source = serde.source
        return {"subject": source.subject, "version": source.version}
    text = repr(serde.schema.__getstate__())
    return {"schema": hashlib.sha256(text.encode()).hexdigest()}


def shown(form: Any) -> str:
    """Return a serde's form as a message names it.

    >>> shown({"windowed": "string", "size": 60000})
    'windowed string of 60000 ms'
    """
    if not isinstance(form, dict):
        return str(form)
    if "windowed" in form:
        return f"windowed {shown(form['windowed'])} of {form['size']} ms"
    if "session_windowed" in form:
        return f"session-windowed {shown(form['session_windowed'])}"
    name = next(iter(form))
    if name in _SCHEMAS:
        return f"{name} with a registry" if form.get("registry") else name
    return f"{name} {form[name]}" if name == "call" else name


def reads(old: Any, new: Any) -> tuple[Reads, str]:
    """Return whether the new serde reads what the old one wrote, and why not; forms that are None are not known.

    >>> reads("json", "string")
    (<Reads.NO: 'no'>, 'was json, is string')
    """
    if old is None or new is None or old == new or (isinstance(old, str) and (old, new) in _SAME_BYTES):
        return Reads.YES, ""
    changed = f"was {shown(old)}, is {shown(new)}"
    if not isinstance(old, dict) or not isinstance(new, dict):
        return (Reads.UNKNOWN if _is_foreign(old) or _is_foreign(new) else Reads.NO), changed
    for form in ("windowed", "session_windowed"):
        if form in old and form in new:
            inner, why = reads(old[form], new[form])
            sizes = old.get("size"), new.get("size")
            if inner is not Reads.NO and sizes[0] != sizes[1]:
                return (
                    Reads.NO,
                    f"had windows of {sizes[0]} ms, has windows of {sizes[1]} ms, and bytes hold only the start",
                )
            return inner, why
    for form in _SCHEMAS:
        if form in old and form in new:
            return _schemas(form, old, new)
    return (Reads.UNKNOWN if _is_foreign(old) and _is_foreign(new) else Reads.NO), changed


def _is_foreign(form: Any) -> bool:
    """Tell whether only code that is not streamkit's knows the bytes: of a called serde or of a plugin."""
    if isinstance(form, str):
        return form not in (*PRIMITIVES, "json", "lines")
    return not any(name in form for name in ("windowed", "session_windowed", "csv", *_SCHEMAS))


def _schemas(form: str, old: Any, new: Any) -> tuple[Reads, str]:
    if old.get("registry") != new.get("registry"):
        had, has = ("the", "no longer") if old.get("registry") else ("no", "now")
        return Reads.NO, f"had {had} framing of a schema registry, and has it {has}"
    if form == "avro" and not new.get("registry") and "schema" in old[form] and "schema" in new[form]:
        # Avro's bytes can only be read with the schema that wrote them, and without a registry they do not name it.
        return Reads.NO, "has another Avro schema, and without a registry bytes do not tell which schema wrote them"
    return Reads.UNKNOWN, f"has another {form} schema"
