"""What an operator is (a step of the language), and what a processor is (the work of one node)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from streamkit.errors import Position, Problem, StreamkitError
from streamkit.operators.fields import Field, Step
from streamkit.operators.frozen import frozen

if TYPE_CHECKING:
    from streamkit.operators.context import Context
    from streamkit.operators.typing import Types, Typing
    from streamkit.operators.writer import CodeWriter
    from streamkit.plan.model import ProcessorNode


class BuildError(StreamkitError):
    """A mistake of meaning in a step; without problems where a mistake elsewhere is the cause (TopologyException)."""

    def __init__(self, position: Position | None = None, message: str = ""):
        self.problems = [Problem(position, message)] if position is not None else []
        super().__init__("\n".join(map(str, self.problems)))


@frozen
class Example:
    """A runnable example: a whole topology file, its input and what comes out, as JSON Lines (checked by a test)."""

    topology: str
    input: str
    output: str


class Operator(ABC):
    """One step of the language; stateless, one instance registered in `operators/__init__.py`."""

    name: ClassVar[str]
    main: ClassVar[str | None] = None
    """The field that a plain value after the step's name fills, if any."""
    fields: ClassVar[tuple[Field, ...]] = ()
    """All options but `on_error`, which every step takes. `name` is listed where the DSL call takes one."""
    accepts: ClassVar[tuple[str, ...]] = ("stream",)
    """Kinds of upstream: stream, table, global_table, grouped_stream, grouped_table, windowed_stream (…), cogrouped."""
    summary: ClassVar[str]
    """A paragraph of Markdown for the language reference."""
    example: ClassVar[Example]

    def check(self, step: Step) -> Iterable[Problem]:
        """Return what is wrong with the step's options taken together, whatever it stands on."""
        return ()

    @abstractmethod
    def build(self, step: Step, upstream: Any, builder: Context) -> Any:
        """Make the DSL call on `upstream` and return what the next step stands on.

        Raises BuildError for a user's mistake.
        """

    def types(self, hand: Typing) -> Types:
        """Check the fields that the step's expressions name, and return what is known of what the next step stands on.

        Here: keys and values stay as they are.
        """
        return hand.kept()


@frozen
class Processor:
    """The work of one node, as immutable data; picklable. Subclasses add fields and know how to write their code."""

    def emit(self, node: ProcessorNode, gen: CodeWriter) -> None:
        """Write the code of `node` for the current record."""
        raise StreamkitError(f"{node.name}: there is no code for {type(self).__name__}")
