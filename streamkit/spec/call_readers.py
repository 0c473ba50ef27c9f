"""Parses calls of Python: `{call: module:object, with: {…}, batch: N, as: FORM}`, checked by the source of the module."""

from __future__ import annotations

import json

from streamkit.errors import Position
from streamkit.expressions.calls import Argument, Misfit, Usage, load_object, misfits, signature_of, source_signature
from streamkit.operators.core import fields
from streamkit.operators.core.parsed_values import BatchCall, CallRef
from streamkit.spec import yaml_reader
from streamkit.spec.topology_model import CallSite
from streamkit.spec.yaml_nodes import Node
from streamkit.spec.yaml_reader import BAD, Bad, Reader


def is_call(node: Node) -> bool:
    """Return whether a node is `{call: …}`, with only the keys of a call."""
    if node.kind != "mapping":
        return False
    keys = [key.value for key, _ in node.value]
    return "call" in keys and all(key in fields.CALL_KEYS for key in keys)


def call_ref(reader: Reader, node: Node, what: str, usage: Usage | None) -> CallRef | Bad:
    """Return the CallRef of `module:object` or of `{call: module:object, with: {…}}`.

    Arguments are checked if the module is beside the file; `usage`: the other arguments that the construct passes.
    """
    target, arguments = node, None
    if node.kind == "mapping":
        options = reader.options(node, what, ("call", "with"), ("call",))
        if "call" not in options:
            return BAD
        target, arguments = options["call"], options.get("with")
    return _checked_ref(reader, target, what, arguments, usage or Usage())


def _checked_ref(reader: Reader, target: Node, what: str, with_: Node | None, usage: Usage) -> CallRef | Bad:
    text = reader.text(target, what)
    if text is BAD:
        return BAD
    reader.use("callable", text, target)
    if target.ref is None and not yaml_reader.CALLABLE.fullmatch(text):
        written = ":".join(text.rsplit(".", 1))
        hint = f"; write {written}" if yaml_reader.CALLABLE.fullmatch(written) else ""
        form = "of the form package.module:callable"
        return reader.report(target, f"{what} must be {form}, not {reader.kind(target)}{hint}")
    module, _, attribute = text.partition(":")
    entries = reader.entries(with_, "'with'") if with_ is not None else {}
    arguments = tuple(
        Argument(name, json.dumps(reader.data(value)), key.position) for name, (key, value) in entries.items()
    )
    if target.ref is None:
        ref = CallRef(module, attribute, reader.folder_of(target), arguments, target.position)
    else:
        ref = passed_ref(reader, target.ref, target.position, arguments)
    places = {argument.name: argument.position for argument in arguments}
    problems = [
        reader.report(places.get(misfit.argument or "") or target.position, f"{what}: {misfit}")
        for misfit in source_misfits(ref, usage)
    ]
    if problems:
        return BAD
    reader.calls.append(CallSite(ref, usage, what))
    return ref


def passed_ref(reader: Reader, ref: CallRef, position: Position, arguments: tuple[Argument, ...] = ()) -> CallRef:
    """Return the reference to an object that a topology in Python passes, with a name that no other object of the topology has."""
    attribute = ref.attribute
    if ref.target is not None:
        others = reader.objects.setdefault((ref.module, attribute), [])
        number = next((index for index, known in enumerate(others) if known is ref.target.value), len(others))
        if number == len(others):
            others.append(ref.target.value)
        attribute += f"_{number + 1}" if number else ""
    return CallRef(ref.module, attribute, ref.folder, arguments, position, ref.target)


def called_options(reader: Reader, options: dict[str, Node], usage: Usage) -> CallRef | Bad:
    """Return the CallRef of the options `call` and `with` among others."""
    if "call" not in options:
        return BAD
    return _checked_ref(reader, options["call"], "'call'", options.get("with"), usage)


def source_misfits(ref: CallRef, usage: Usage) -> list[Misfit]:
    """Return what is wrong with a reference according to its object, or to the source of its module if that is beside the file."""
    try:
        target = load_object(ref) if ref.target is not None else None
        signature = (
            signature_of(target) if callable(target) else source_signature(ref.folder, ref.module, ref.attribute)
        )
    except Misfit as error:
        return [error]
    if signature is None:
        return []
    return list(misfits(signature, {argument.name: argument.value for argument in ref.arguments}, usage))


def batch_call(reader: Reader, kind: fields.Expr, node: Node, what: str) -> BatchCall | Bad:
    """Return the BatchCall of `{call: …, batch: N, as: FORM}`."""
    options = reader.options(node, what, fields.CALL_KEYS, ("call", "batch"))
    if "call" not in options or "batch" not in options:
        return BAD
    size = reader.integer(options["batch"], f"'batch' of {what}", 1)
    form = reader.choice(options["as"], f"'as' of {what}", fields.COLUMN_FORMS) if "as" in options else "list"
    passed = tuple(f"{name}s" for name in kind.arguments)
    ref = _checked_ref(reader, options["call"], what, options.get("with"), Usage(passed))
    return BAD if ref is BAD or size is BAD or form is BAD else BatchCall(ref, size, form, passed)
