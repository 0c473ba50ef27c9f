"""`branch`: sends each record to the first branch whose predicate holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from streamkit.code import compare, either, literal
from streamkit.errors import Problem
from streamkit.expressions import Expression
from streamkit.graph.physical_topology import ProcessorGraphNode
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.core import fields
from streamkit.operators.core.fields import NAME, Field
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import (
    Branches,
    BuildError,
    Context,
    Operator,
    PassThrough,
    Stream,
    TypeInference,
    Types,
    Upstream,
    serde_or_none,
)
from streamkit.operators.core.parsed_values import BranchSpec, Step


@frozen
class Branch(Processor):
    """Forwards to the child of the first predicate that holds, else to the default, if any (KStreamBranch)."""

    predicates: tuple[Expression, ...]
    targets: tuple[str, ...]
    """The child node of each predicate."""
    default: str | None

    def emit(self, node: Node, gen: CodeWriter) -> None:
        number, chosen = gen.var("branch"), literal(-1)
        with gen.guard(node):
            # Predicates are written in file order; the parts of the record that they read are decoded before them.
            tests = [gen.expr(predicate) for predicate in self.predicates]
            for i, test in reversed(list(enumerate(tests))):
                chosen = either(test, literal(i), chosen)
            gen.assign(number, chosen)
        targets = list(enumerate(self.targets))
        if self.default is not None:
            targets.append((-1, self.default))
        for i, target in targets:
            test = compare(number, "==", literal(i))
            with gen.when(test) if target == targets[0][1] else gen.otherwise(test):
                gen.forward_to(node, target)

    def why_nothing(self) -> str:
        return "no branch takes it, and there is no default"


class BranchOperator(Operator[Stream]):
    """`branch` (KStream.split and BranchedKStream)."""

    name: ClassVar[str] = "branch"
    fields = (
        Field(
            "when",
            fields.Branches(),
            "Branches by name, or a list of branches without names: a predicate, or `if` with `steps` and ends.",
            required=True,
        ),
        Field(
            "default",
            fields.DefaultBranch(),
            "The name of the branch for records that match no predicate; `true`: a branch without a name.",
        ),
        NAME,
    )
    summary = (
        "Sends each record to the first branch whose predicate holds, in the order of `when`. If none holds, the record "
        "goes to the `default` branch; without one, it is dropped. The step ends its pipeline; other pipelines continue "
        "from a branch with `from: PIPELINE.BRANCH`. The name of a branch's node is the step's name (`name`, or else the "
        "generated one) followed by the branch's name. In a list, a branch without `name` is named by its position, "
        "counted from 1, and `default: true` is named 0: `from: PIPELINE.1`. All branches are created first, and then "
        "the nodes below each branch, in the order of `when`. With `chained: true`, a branch's steps and ends are created "
        "with the branch itself, as with `Branched.withFunction` and `withConsumer`; this affects indices, never records."
    )

    def check(self, step: Step) -> Iterable[Problem]:
        default = step.get("default")
        if default is not None and any(spec.name == default for spec in step.get("when") or ()):
            yield Problem(
                step.at("default"), f"branch: `default` must have a different name; {default} is already in `when`"
            )

    def types(self, inference: TypeInference) -> Types:
        for branch in inference.step.options["when"]:
            inference.type_of(branch.predicate)
        return inference.upstream_types

    def build(self, step: Step, upstream: Stream, builder: Context) -> Branches:
        specs: list[BranchSpec] = list(step.options["when"])
        default = step.get("default")
        graph = builder.graph
        splitter = graph.names.named(step.get("name"), "KSTREAM-BRANCH-")
        targets = tuple(splitter + spec.name for spec in specs)
        default_target = splitter + default if default is not None else None
        work = Branch(tuple(spec.predicate for spec in specs if spec.predicate is not None), targets, default_target)
        serdes = (serde_or_none(upstream.key_serde), serde_or_none(upstream.value_serde))
        node = ProcessorGraphNode(splitter, work)
        node.serdes = serdes
        graph.add(upstream.node, node)
        if default is not None:
            specs.append(BranchSpec(default, None))
        if len({spec.name for spec in specs}) < len(specs):
            raise BuildError(step.position, "branch: every branch needs a name of its own")
        streams: dict[str, Stream] = {}
        results: dict[str, Upstream | None] = {}
        for spec in specs:
            target = splitter + spec.name
            graph.names.processor(target)
            child = ProcessorGraphNode(target, PassThrough())
            child.serdes = serdes
            graph.add(node, child)
            streams[spec.name] = upstream.below(target, child)
            if spec.chained:
                results[spec.name] = builder.build_branch(streams[spec.name], spec)
        for spec in specs:
            if not spec.chained:
                results[spec.name] = builder.build_branch(streams[spec.name], spec)
        return Branches({spec.name: results[spec.name] for spec in specs})
