"""Writes the code of sources: for each topic a loop over the columns of a batch that decodes only the parts that nodes read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.code import (
    NONE,
    TRUE,
    Code,
    all_of,
    attribute,
    call,
    is_not_none,
    list_of,
    literal,
    method,
    negated,
    symbol,
    tuple_of,
    unless_none,
)
from streamkit.compile.changed import split_changed
from streamkit.errors import SerdeError
from streamkit.operators.codegen.record_variables import RecordVariables, Slot
from streamkit.plan.model import SourceNode
from streamkit.serdes.serde import Serde

if TYPE_CHECKING:
    from streamkit.compile.generator import Generator

# The decoding of these serdes can't fail, so bytes that no node reads need no check.
TOTAL = ("string", "bytes")

COLUMNS = ("keys", "values", "timestamps", "headers", "offsets", "partition")
"""The parameters of a source's function (compile.bound_program.Run)."""
KEY, VALUE = symbol("kb"), symbol("vb")
"""The bytes of the record that a source reads."""
AGAIN = {"k": symbol("kw"), "v": symbol("vw")}
"""By the variable of a decoded value: that of the bytes that Java writes again."""


def emit_source(node: SourceNode, gen: Generator, topic: str | None) -> Code:
    """Write the factory of a source's loop for one topic (None: any topic of its pattern); return the factory's name."""
    keys, values = node.topic_serdes.get(topic or "", (node.key_serde, node.value_serde))
    factory = gen.var("source")
    with gen.function(factory, "topic"):
        run = symbol("run")
        with gen.function(run, *COLUMNS):
            gen.line("nonlocal kb, vb, o, here, batch, spot")
            lazy = _read_below(node, gen, keys, values)
            if _decodes_by_batch(node, values, lazy):
                gen.assign(symbol("decode"), call(gen.name_of(values.batch_decoder, "decoder"), symbol("values")))
            gen.assign(symbol("place"), tuple_of(symbol("topic"), symbol("partition")))
            gen.assign(symbol("rows"), tuple_of(symbol("offsets"), symbol("headers"), symbol("timestamps")))
            targets, columns = _columns(gen)
            if not gen.stepwise:
                _set_place(gen)
            with gen.each(targets, call("zip", *columns)):
                if gen.stepwise:
                    # Between two steps the loops of other topics process their records.
                    _set_place(gen)
                with gen.scope():
                    _body(node, gen, (keys, values), lazy)
                if gen.stepwise:
                    gen.line("yield")
        gen.returns(run)
    return factory


def _columns(gen: Generator) -> tuple[tuple[Code, ...], tuple[Code, ...]]:
    """Return the variables of a record that a loop sets, and the columns that it goes through.

    Where no node reads offsets, the place of the current record follows from how many timestamps are left.
    """
    found = {"t": "timestamps", "kb": "keys", "vb": "values", "c": "headers"}
    if gen.full_context:
        gen.assign(symbol("times"), NONE)
        found["o"] = "offsets"
    else:
        gen.assign(symbol("times"), call("iter", symbol("timestamps")))
        found["t"] = "times"
    return tuple(map(symbol, found)), tuple(map(symbol, found.values()))


def _set_place(gen: Generator) -> None:
    gen.assign_each(
        (symbol("here"), symbol("batch"), symbol("spot")), (symbol("place"), symbol("rows"), symbol("times"))
    )
    if gen.stepwise and any(gen.is_cached(store) for store in gen.sub_topology.stores):
        current = gen.prologue(("topic",), "current", attribute(symbol("rt"), "current_topic"))
        gen.assign(attribute(current, "size"), call("len", symbol("topic")))


def _read_below(node: SourceNode, gen: Generator, keys: Serde, values: Serde) -> RecordVariables:
    """Return the record of a first pass, whose code is discarded: its slots record which parts the nodes below read."""
    lazy = _encoded_record(node, keys, values)
    with gen.rehearsed():
        _children(node, gen, lazy)
    return lazy


def _decodes_by_batch(node: SourceNode, values: Serde, lazy: RecordVariables) -> bool:
    return values.batch_decoder is not None and node.value_kind == "plain" and lazy.value.var_used[0]


def _body(node: SourceNode, gen: Generator, serdes: tuple[Serde, Serde], lazy: RecordVariables) -> None:
    if gen.counts:
        gen.do(method(gen.budget(), "start"))
    keys, values = serdes
    by_batch = _decodes_by_batch(node, values, lazy)
    record = RecordVariables(
        _slot("k", KEY, keys, lazy.key), _slot("v", VALUE, values, lazy.value), symbol("t"), symbol("c")
    )
    with gen.attempt() as decoding:
        _decode(gen, "k", KEY, keys, lazy.key)
        if by_batch:
            gen.assign(symbol("v"), unless_none(VALUE, call("decode", VALUE)))
        elif node.value_kind == "plain":
            _decode(gen, "v", VALUE, values, lazy.value)
        elif node.value_kind == "changed":
            new, old = symbol("nb"), symbol("ob")
            gen.unpack((new, old), call(gen.name_of(split_changed, "split_changed"), VALUE))
            record.value = Slot(raw=new, serde=values)
            record.old = Slot(raw=old, serde=values)
        else:
            record.value = Slot(VALUE)
    if not decoding.empty:
        with gen.rescue():
            error = symbol("e")
            if by_batch:
                gen.assign(error, call(gen.name_of(values.explained, "explained"), error, VALUE))
            gen.do(call("undecodable", gen.index(node), error, symbol("t"), symbol("c")))
            if gen.stepwise:
                gen.line("yield")
            gen.line("continue")
    gen.count(node)
    if gen.full_context:
        gen.assign(symbol("c"), tuple_of(*map(symbol, ("c", "topic", "partition", "o"))))
    _children(node, gen, record)
    gen.fill_empty()


def _encoded_record(node: SourceNode, keys: Serde, values: Serde) -> RecordVariables:
    record = RecordVariables(Slot(raw=KEY, serde=keys), Slot(raw=VALUE, serde=values), symbol("t"), symbol("c"))
    if node.value_kind == "changed":
        record.old = Slot(raw=symbol("ob"), serde=values)
    elif node.value_kind != "plain":
        record.value = Slot(VALUE)
    return record


def _slot(variable: str, raw: Code, serde: Serde, seen: Slot) -> Slot:
    if not seen.var_used[0]:
        return Slot(raw=raw, serde=serde, unchecked=_is_total(serde, raw))
    if seen.raw_used[0] and serde.well_formed_source(raw) is not None:
        return Slot(symbol(variable), AGAIN[variable], serde)
    return Slot(var=symbol(variable), source_bytes=(raw, serde))


def _is_always_canonical(serde: Serde, raw: Code) -> bool:
    canonical = serde.canonical_source(raw)
    return canonical is not None and canonical.source == TRUE.source


def _is_total(serde: Serde, raw: Code) -> bool:
    """Return whether bytes need no check here, but one where they are written."""
    return serde.spec in TOTAL and not _is_always_canonical(serde, raw)


def _decode(gen: Generator, variable: str, raw: Code, serde: Serde, seen: Slot) -> None:
    """Write the decoding that Java does here; where no node reads the value, only the part that gives the bytes that Java writes again."""
    value = symbol(variable)
    if seen.var_used[0]:
        gen.assign_decoded(value, serde, raw, AGAIN[variable] if seen.raw_used[0] else None)
        return
    if _is_always_canonical(serde, raw) or serde.spec in TOTAL:
        return
    canonical = serde.canonical_source(raw)
    # Names are made in the order in which the code reads them.
    again = gen.encoded(serde, value)
    gen.namespace.update(serde.inline_globals)
    present = is_not_none(raw)
    with gen.when(present if canonical is None else all_of(present, negated(canonical))):
        gen.assign(value, gen.decoded(serde, raw, never_none=True))
        if seen.raw_used[0]:
            gen.assign(raw, again)


def _children(node: SourceNode, gen: Generator, record: RecordVariables) -> None:
    gen.record = record
    gen.forward(node)


def emit_extractor(node: SourceNode, gen: Generator, topic: str) -> Code | None:
    """Write the function that extracts timestamps from a topic's records; None where the entry has no expression."""
    expression = node.timestamps.get(topic)
    if expression is None or isinstance(expression, str):
        return None
    keys, values = node.topic_serdes.get(topic, (node.key_serde, node.value_serde))
    extract, found, error = gen.var("extract"), symbol("found"), symbol("e")
    columns = {"timestamp": "t", "headers": "h", "topic": "topic", "partition": "partition", "offset": "o"}
    bindings = {name: symbol(variable) for name, variable in columns.items()}
    with gen.function(extract, *COLUMNS):
        gen.assign(symbol("topic"), literal(topic))
        gen.assign(found, list_of())
        with gen.each(tuple(map(symbol, ("kb", "vb", "t", "h", "o"))), call("zip", *map(symbol, COLUMNS[:5]))):
            if gen.counts:
                gen.do(method(gen.budget(), "start"))
            with gen.attempt():
                for name, variable, raw, serde in (("key", "k", KEY, keys), ("value", "v", VALUE, values)):
                    if name in expression.names:
                        bindings[name] = symbol(variable)
                        gen.assign(bindings[name], gen.decoded(serde, raw))
                gen.do(method(found, "append", gen.expr(expression, **bindings)))
            with gen.rescue():
                why = call(gen.name_of(Decoding(keys, values), "decoding"), error, KEY, VALUE)
                gen.do(method(found, "append", why))
        gen.returns(found)
    return extract


class Decoding:
    """Distinguishes a record that does not decode from a timestamp that fails: Java decodes key and value first."""

    def __init__(self, keys: Serde, values: Serde):
        self._sides = keys, values

    def __call__(self, error: Exception, key: bytes | None, value: bytes | None) -> Exception:
        """Return the error of decoding key or value where one does not decode, else the error of the expression."""
        for serde, data in zip(self._sides, (key, value), strict=True):
            try:
                if data is not None:
                    serde.decode(data)
            except SerdeError as reason:
                return reason
            except Exception:
                break  # a registry that does not answer, for example, which may be the cause of `error`
        return error
