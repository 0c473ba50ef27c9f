"""Serdes and rows as plain data, and whether one version reads the bytes of another."""

from __future__ import annotations

import hashlib
from enum import Enum

from streamkit import serdes
from streamkit.changes.finding import Verdict
from streamkit.changes.form import RowForm
from streamkit.serdes.formats.primitives import PRIMITIVES
from streamkit.serdes.formats.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamkit.serdes.plain import Json
from streamkit.serdes.schema_serde import FramedSerde, SchemaSerde
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import KINDS

_SCHEMAS = ("avro", "protobuf", "json_schema")


class Reads(Enum):
    """Whether a serde reads the bytes of another one."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def serde_form(serde: Serde | None) -> Json:
    """Return a serde as a JSON document; None: not known."""
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


def _schema(serde: SchemaSerde) -> dict[str, Json]:
    """Return the hash of a schema, or its subject if no file has its text."""
    if serde.schema is None:
        source = serde.source
        return {"subject": source.subject, "version": source.version}
    text = repr(serde.schema.__getstate__())
    return {"schema": hashlib.sha256(text.encode()).hexdigest()}


def shown(form: Json) -> str:
    """Return a serde's form for messages.

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


def reads(old: Json, new: Json) -> tuple[Reads, str]:
    """Return whether the new serde reads the bytes of the old one, and the reason if not; None is not known and compares equal.

    >>> reads("json", "string")
    (<Reads.NO: 'no'>, 'was json, is string')
    >>> reads("string", {"windowed": "string", "size": 60000})
    (<Reads.NO: 'no'>, 'was string, is windowed string of 60000 ms')
    """
    if old is None or new is None or old == new or _has_same_bytes(old, new):
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


def _has_same_bytes(old: Json, new: Json) -> bool:
    # A later version may have serdes that this one does not have.
    return (
        isinstance(old, str) and old in serdes.names() and old not in serdes.FORMS and new in serdes.parse(old).read_by
    )


def _is_foreign(form: Json) -> bool:
    """Return whether the serde is a called one or a plugin's, whose bytes cannot be compared."""
    if not isinstance(form, dict):
        return form not in (*PRIMITIVES, *serdes.FORMATS)
    return not any(name in form for name in ("windowed", "session_windowed", "csv", *_SCHEMAS))


def _schemas(form: str, old: dict[str, Json], new: dict[str, Json]) -> tuple[Reads, str]:
    if old.get("registry") != new.get("registry"):
        had, has = ("the", "no longer") if old.get("registry") else ("no", "now")
        return Reads.NO, f"had {had} framing of a schema registry, and has it {has}"
    if form == "avro" and not new.get("registry") and _has_schema(old[form]) and _has_schema(new[form]):
        # Avro's bytes can be read only with the schema that wrote them, and without a registry they have no schema id.
        return Reads.NO, "has another Avro schema, and without a registry bytes do not tell which schema wrote them"
    return Reads.UNKNOWN, f"has another {form} schema"


def _has_schema(document: Json) -> bool:
    return isinstance(document, dict) and "schema" in document


# Compares the rows of a changelog between two versions.


def has_same_layout(old: RowForm, new: RowForm) -> bool:
    """Return whether rows of one form are rows of the other one, but for their serdes."""
    same = old.kind == new.kind and old.window_size == new.window_size
    return same or (old.kind, new.kind) == ("key_value", "versioned")


def compare_rows(old: RowForm, new: RowForm) -> list[tuple[Verdict, str]]:
    """Return the differences between rows, each with a verdict: incompatible, unknown or restore."""
    if old.kind != new.kind:
        if (old.kind, new.kind) == ("key_value", "versioned"):
            return [
                *_sides(old, new),
                (Verdict.RESTORE, "it becomes versioned: its rows are the versions that its changelog still has"),
            ]
        return [(Verdict.INCOMPATIBLE, f"it held {_shown(old.kind)}, holds {_shown(new.kind)}")]
    differences = _sides(old, new)
    if None not in (old.window_size, new.window_size) and old.window_size != new.window_size:
        text = (
            f"its windows were of {old.window_size} ms, are of {new.window_size} ms: rows hold only the start of their "
            "window, so that old windows would be read with the new size and counted on"
        )
        differences.append((Verdict.INCOMPATIBLE, text))
    return differences


def _shown(kind: str) -> str:
    # The marks of a later version may have a kind that this one does not have.
    return KINDS[kind].rows if kind in KINDS else kind


def _sides(old: RowForm, new: RowForm) -> list[tuple[Verdict, str]]:
    differences = []
    for side, one, other in (
        ("key", old.key, new.key),
        ("value", old.value, new.value),
        ("right value", old.right, new.right),
    ):
        answer, why = reads(one, other)
        if answer is Reads.NO:
            differences.append((Verdict.INCOMPATIBLE, f"the {side} {why}"))
        elif answer is Reads.UNKNOWN:
            differences.append((Verdict.UNKNOWN, f"the {side} {why}"))
    return differences
