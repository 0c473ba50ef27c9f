"""The functions of an aggregation in generated code: its initial value, and what adds, subtracts and merges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.code import (
    NONE,
    Code,
    any_of,
    attribute,
    binary,
    call,
    compare,
    either,
    is_none,
    list_of,
    literal,
    symbol,
)

if TYPE_CHECKING:
    from streamkit.operators.codegen.code_writer import CodeWriter, Node
    from streamkit.operators.steps.aggregations.aggregate_node import Aggregation
    from streamkit.record import Key, RecordContext, Value

ONE = literal(1)


def emit_rank(aggregation: Aggregation, node: Node, gen: CodeWriter) -> Code | None:
    """Write code that drops the records that `top` can't rank, and return the variable of the rank; None for others."""
    if aggregation.limit is None:
        return None
    assert aggregation.add is not None
    rank = gen.var("rank")
    with gen.guard(node):
        gen.assign(rank, gen.expr(aggregation.add))
    # NaN is the one number that does not equal itself.
    gen.drop_where(any_of(is_none(rank), compare(rank, "!=", rank)))
    return rank


def initial_value(aggregation: Aggregation, gen: CodeWriter) -> Code:
    """Return the piece of the aggregate before the first value."""
    if aggregation.kind == "count":
        return literal(0)
    if aggregation.limit is not None:
        return list_of()
    return NONE if aggregation.initial is None else gen.expr(aggregation.initial)


def added(aggregation: Aggregation, gen: CodeWriter, old: Code, value: Code | None = None) -> Code:
    """Return the piece of the aggregate with a value in it, by default that of the current record."""
    if aggregation.kind == "count":
        return binary(old, "+", ONE)
    assert aggregation.add is not None
    return gen.expr(aggregation.add, aggregate=old, value=value or gen.object_of(gen.record.value))


def subtracted(aggregation: Aggregation, gen: CodeWriter, old: Code, value: Code) -> Code:
    """Return the piece of the aggregate without a value that has left the group."""
    if aggregation.kind == "count":
        return binary(old, "-", ONE)
    assert aggregation.subtract is not None
    return gen.expr(aggregation.subtract, aggregate=old, value=value)


def zero_count() -> int:
    """Return the initial value of a count."""
    return 0


def no_aggregate() -> None:
    """Return the initial value of a reduce."""
    return None


def count_one(k: Key, v: Value, aggregate: int, t: int, c: RecordContext) -> int:
    """Return a count that is one higher."""
    return aggregate + 1


def sum_counts(k: Key, left: int, right: int) -> int:
    """Return the count of two merged sessions."""
    return left + right


def aggregated_value(aggregation: Aggregation, gen: CodeWriter) -> Code:
    """Return the piece of the record's value for a kernel."""
    # A count does not read the value, so it need not be decoded.
    return NONE if aggregation.kind == "count" else gen.object_of(gen.record.value)


def window_functions(aggregation: Aggregation, gen: CodeWriter) -> tuple[Code, Code]:
    """Return the names of the functions `initial()` and `add(k, v, aggregate, t, c)`."""
    if aggregation.kind == "count":
        return gen.name_of(zero_count, "zero"), gen.name_of(count_one, "count_one")
    if aggregation.limit is not None:
        return gen.name_of(list, "list"), attribute(_top_list(aggregation, gen), "add")
    names = {"key": "k", "value": "v", "aggregate": "aggregate"}
    assert aggregation.add is not None
    if aggregation.initial is not None:
        return gen.callable_of(aggregation.initial, {}), gen.callable_of(aggregation.add, names, "t", "c")
    reduce = gen.callable_of(aggregation.add, names, "t", "c")

    def write(name: Code) -> None:
        aggregate, value = symbol("aggregate"), symbol("v")
        with gen.function(name, "k", "v", "aggregate", "t", "c"):
            combined = call(reduce, symbol("k"), value, aggregate, symbol("t"), symbol("c"))
            gen.returns(either(is_none(aggregate), value, combined))

    return gen.name_of(no_aggregate, "nothing"), gen.deferred_function(("reduce", reduce), "reduce", write)


def _top_list(aggregation: Aggregation, gen: CodeWriter) -> Code:
    """Return the variable of the functions of `top`."""
    assert aggregation.add is not None
    rank = gen.callable_of(aggregation.add, {"key": "k", "value": "v"})
    made = call(gen.kernel("extensions.top_list", "TopList"), literal(aggregation.limit), rank)
    return gen.instance(("top", rank.source, aggregation.limit), "top", made)


def merge_function(aggregation: Aggregation, gen: CodeWriter) -> Code:
    """Return the name of the function `(key, left, right)` that returns the aggregate of two sessions."""
    if aggregation.kind == "count":
        return gen.name_of(sum_counts, "both")
    if aggregation.limit is not None:
        return attribute(_top_list(aggregation, gen), "merge")
    if aggregation.merge is not None:
        return gen.callable_of(aggregation.merge, {"key": "k", "left": "left", "right": "right"})
    reduce = window_functions(aggregation, gen)[1]

    def write(name: Code) -> None:
        with gen.function(name, "k", "left", "right"):
            gen.returns(call(reduce, *map(symbol, ("k", "right", "left")), literal(-1), gen.empty_context()))

    return gen.deferred_function(("merge", reduce), "merge", write)
