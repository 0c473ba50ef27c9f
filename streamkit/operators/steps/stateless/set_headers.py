"""`set_headers`: adds, replaces or removes record headers."""

from __future__ import annotations

from typing import ClassVar

from streamkit.code import call, literal, tuple_of
from streamkit.errors import StreamkitError
from streamkit.expressions import Expression
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.core.fields import NAME, Field, HeaderMap
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, Operator, Stream, add_stream_node
from streamkit.operators.core.parsed_values import Step
from streamkit.record import Headers, Value


@frozen
class SetHeaders(Processor):
    """Changes headers: (name, Expression) sets a header, (name, None) removes all headers of that name."""

    headers: tuple[tuple[str, Expression | None], ...]

    def emit(self, node: Node, gen: CodeWriter) -> None:
        context = gen.var("c")
        with gen.guard(node):
            names = tuple(name for name, _ in self.headers)
            added = [tuple_of(literal(name), gen.expr(value)) for name, value in self.headers if value is not None]
            replaced = call(gen.name_of(with_headers, "headers"), gen.headers(), literal(names), tuple_of(*added))
            gen.assign(context, gen.with_headers(replaced))
        gen.forward(node, context=context)


class SetHeadersOperator(Operator[Stream]):
    """`set_headers` (KStream.processValues with a processor that changes headers)."""

    name: ClassVar[str] = "set_headers"
    fields = (
        Field("headers", HeaderMap(), "Headers by name: an expression, or null to remove it.", required=True),
        NAME,
    )
    summary = (
        "Sets record headers: each expression returns text or bytes; null removes the header. An existing header of "
        "that name is replaced; others, the key and the value do not change. If an expression returns None, the "
        "header has no value, like `new RecordHeader(name, null)` in Java."
    )

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        name = step.get("name") or builder.graph.names.processor("KSTREAM-PROCESSVALUES-")
        return add_stream_node(upstream, builder, name, SetHeaders(tuple(step.options["headers"])))


def with_headers(
    headers: Headers | None, replaced: tuple[str, ...], added: tuple[tuple[str, Value], ...]
) -> Headers | None:
    """Return headers without the names in `replaced`, and with `added` at the end; None if no header is left.

    Values are text (written as UTF-8), bytes or None. Raises StreamkitError for others.
    """
    kept = [header for header in headers or () if header[0] not in replaced]
    for name, value in added:
        if isinstance(value, str):
            value = value.encode()
        elif value is not None and not isinstance(value, bytes):
            raise StreamkitError(f"header {name} must be text, bytes or null, not {type(value).__name__}")
        kept.append((name, value))
    return kept or None
