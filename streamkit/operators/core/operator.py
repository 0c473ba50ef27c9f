"""The base classes of operators (steps of the language) and of processors (the work of nodes)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from streamkit.errors import Position, Problem, StreamkitError
from streamkit.operators.core.fields import Field
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.parsed_values import Step

if TYPE_CHECKING:
    from streamkit.operators.codegen.code_writer import CodeWriter
    from streamkit.operators.core.build_context import Context
    from streamkit.operators.core.processor_node import ProcessorNode
    from streamkit.operators.core.step_types import TypeInference, Types
    from streamkit.operators.core.upstream import Upstream

UpstreamT = TypeVar("UpstreamT", bound="Upstream")


class BuildError(StreamkitError):
    """A mistake of the user in a step (TopologyException); without problems where a mistake elsewhere is the cause."""

    def __init__(self, position: Position | None = None, message: str = ""):
        self.problems = [Problem(position, message)] if position is not None else []
        super().__init__("\n".join(map(str, self.problems)))


@frozen
class Example:
    """A runnable example: a complete topology file, its input and its output as JSON Lines (checked by a test)."""

    topology: str
    input: str
    output: str
    files: Mapping[str, str] = field(default_factory=dict)
    """The Python modules beside the file: their text by name, such as `words.py`."""


class Operator(ABC, Generic[UpstreamT]):
    """One step of the language, stateless, with one instance in `operators.OPERATORS`.

    `UpstreamT`: the classes of the upstreams that it accepts.
    """

    name: ClassVar[str]
    main: ClassVar[str | None] = None
    """The field that a plain value after the step's name fills, if any."""
    fields: ClassVar[tuple[Field, ...]] = ()
    """All options but `on_error`, which every step takes. `name` is listed where the DSL call takes one."""
    is_extension: ClassVar[bool] = False
    """Whether the step is streamkit's own: the DSL of Kafka Streams has none like it."""
    accepts: ClassVar[tuple[str, ...]] = ("stream",)
    """The kinds of upstream that the step stands on: `kind` of the classes in `upstream`."""
    summary: ClassVar[str]
    """A paragraph of Markdown for the language reference."""
    example: ClassVar[Example]

    def check(self, step: Step) -> Iterable[Problem]:
        """Return the problems of the step's options in combination, independent of its upstream."""
        return ()

    @abstractmethod
    def build(self, step: Step, upstream: UpstreamT, builder: Context) -> Upstream:
        """Make the DSL call on `upstream` and return its result, the upstream of the next step.

        `upstream` has one of the kinds in `accepts`. Raises BuildError for a user's mistake.
        """

    def types(self, inference: TypeInference) -> Types:
        """Check the fields in the step's expressions, and return the types of the step's keys and values.

        By default, those of its upstream.
        """
        return inference.unchanged_types()


AnyOperator: TypeAlias = Operator[Any]
"""An operator of any kinds of upstream: `accepts` has them at run time."""


@frozen
class Processor:
    """The work of one node, as immutable data; picklable. Subclasses add fields and write their code."""

    def emit(self, node: ProcessorNode, gen: CodeWriter) -> None:
        """Write the code of `node` for the current record."""
        raise StreamkitError(f"{node.name}: there is no code for {type(self).__name__}")

    def why_nothing(self) -> str:
        """Return why a record of which the node forwards nothing goes no further, for traces."""
        return "the step forwards nothing for it"
