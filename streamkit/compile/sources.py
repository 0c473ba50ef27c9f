"""Writes sources: for each topic a loop over the columns of a batch, decoding only what the code below it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.compile.changed import split_changed
from streamkit.operators.hand import Hand, Slot
from streamkit.plan.model import SourceNode
from streamkit.serdes.base import Serde

if TYPE_CHECKING:
    from streamkit.compile.generator import Generator

# Their decoding can't fail, so bytes that nobody reads need no check.
TOTAL = ("string", "bytes")


def emit_source(node: SourceNode, gen: Generator, topic: str | None) -> str:
    """Write the factory of a source's loop for one topic (None: any topic of its pattern); return the factory's name."""
    keys, values = node.topic_serdes.get(topic or "", (node.key_serde, node.value_serde))
    name = gen.var("source")
    gen.line(f"def {name}(topic):")
    with gen.indented():
        gen.line("def run(keys, values, timestamps, headers, offsets, partition):")
        with gen.indented():
            gen.line("nonlocal kb, vb, o, here, batch")
            gen.line("here = (topic, partition)")
            gen.line("batch = (offsets, headers)")
            lazy = _read_below(node, gen, keys, values)
            if _decodes_by_batch(node, values, lazy):
                gen.line(f"decode = {gen.name_of(values.batch_decoder, 'decoder')}(values)")
            gen.line("for kb, vb, t, c, o in zip(keys, values, timestamps, headers, offsets):")
            with gen.indented():
                _body(node, gen, (keys, values), lazy)
        gen.line("return run")
    return name


def _read_below(node: SourceNode, gen: Generator, keys: Serde, values: Serde) -> Hand:
    """Return the hand that tells which parts are read below the source: of a first pass, whose lines are thrown away."""
    start, depth = len(gen.lines), gen.depth
    lazy = _lazy_hand(node, keys, values)
    _children(node, gen, lazy)
    del gen.lines[start:]
    gen.depth = depth
    return lazy


def _decodes_by_batch(node: SourceNode, values: Serde, lazy: Hand) -> bool:
    return values.batch_decoder is not None and node.value_kind == "plain" and lazy.value.requested[0]


def _body(node: SourceNode, gen: Generator, serdes: tuple[Serde, Serde], lazy: Hand) -> None:
    keys, values = serdes
    by_batch = _decodes_by_batch(node, values, lazy)
    hand = Hand(_slot("k", "kb", keys, lazy.key), _slot("v", "vb", values, lazy.value), "t", "c")
    gen.line("try:")
    with gen.indented():
        before = len(gen.lines)
        _decode(gen, "k", "kb", keys, lazy.key)
        if by_batch:
            gen.line("v = None if vb is None else decode(vb)")
        elif node.value_kind == "plain":
            _decode(gen, "v", "vb", values, lazy.value)
        elif node.value_kind == "changed":
            gen.line(f"nb, ob = {gen.name_of(split_changed, 'split_changed')}(vb)")
            hand.value = Slot(raw="nb", serde=values)
            hand.old = Slot(raw="ob", serde=values)
        else:
            hand.value = Slot("vb")
        empty = len(gen.lines) == before
    if empty:
        del gen.lines[-2:]
    else:
        gen.line("except Exception as e:")
        with gen.indented():
            if by_batch:
                gen.line(f"e = {gen.name_of(values.explained, 'explained')}(e, vb)")
            gen.line(f"undecodable({gen.index(node)}, e, t, c)")
            gen.line("continue")
    gen.count(node)
    if gen.full_context:
        gen.line("c = (c, topic, partition, o)")
    _children(node, gen, hand)
    gen.fill_empty()


def _lazy_hand(node: SourceNode, keys: Serde, values: Serde) -> Hand:
    hand = Hand(Slot(raw="kb", serde=keys), Slot(raw="vb", serde=values), "t", "c")
    if node.value_kind == "changed":
        hand.old = Slot(raw="ob", serde=values)
    elif node.value_kind != "plain":
        hand.value = Slot("vb")
    return hand


def _slot(var: str, raw: str, serde: Serde, seen: Slot) -> Slot:
    if seen.requested[0]:
        return Slot(var=var, wire=(raw, serde))
    return Slot(raw=raw, serde=serde)


def _decode(gen: Generator, var: str, raw: str, serde: Serde, seen: Slot) -> None:
    """Write the decoding that Java would do here, or only what makes the bytes what Java would write again."""
    if seen.requested[0]:
        gen.line(f"{var} = {gen.decoded(serde, raw)}")
        return
    canonical = serde.canonical_source(raw)
    if canonical == "True" or (not seen.raw_used[0] and serde.spec in TOTAL):
        return
    again = f"{raw} = {gen.encoded(serde, var, never_none=False)}"
    test = f"if {raw} is not None:" if canonical is None else f"if {raw} is not None and not ({canonical}):"
    gen.namespace.update(serde.inline_globals)
    gen.line(test)
    with gen.indented():
        gen.line(f"{var} = {gen.decoded(serde, raw, never_none=True)}")
        if seen.raw_used[0]:
            gen.line(again)


def _children(node: SourceNode, gen: Generator, hand: Hand) -> None:
    gen.hand = hand
    gen.forward(node)


def emit_extractor(node: SourceNode, gen: Generator, topic: str) -> str | None:
    """Write the function that takes timestamps from a topic's records; None where the entry has no expression."""
    expression = node.timestamps.get(topic)
    if expression is None or isinstance(expression, str):
        return None
    keys, values = node.topic_serdes.get(topic, (node.key_serde, node.value_serde))
    name = gen.var("extract")
    gen.line(f"def {name}(keys, values, timestamps, headers, offsets, partition):")
    with gen.indented():
        gen.line(f"topic = {topic!r}")
        gen.line("found = []")
        gen.line("for kb, vb, t, h, o in zip(keys, values, timestamps, headers, offsets):")
        with gen.indented():
            gen.line("try:")
            with gen.indented():
                bindings = {"timestamp": "t", "headers": "h", "topic": "topic", "partition": "partition", "offset": "o"}
                if "key" in expression.names:
                    gen.line(f"k = {gen.decoded(keys, 'kb')}")
                    bindings["key"] = "k"
                if "value" in expression.names:
                    gen.line(f"v = {gen.decoded(values, 'vb')}")
                    bindings["value"] = "v"
                gen.line(f"found.append({gen.expr(expression, **bindings)})")
            gen.line("except Exception as e:")
            with gen.indented():
                gen.line("found.append(e)")
        gen.line("return found")
    return name
