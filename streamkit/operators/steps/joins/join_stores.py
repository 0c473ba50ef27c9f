"""The stores of a join of two streams (StreamJoined)."""

from __future__ import annotations

from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import BuildError
from streamkit.operators.core.parsed_values import Step, StoreOptions
from streamkit.operators.core.step_serdes import required_serde
from streamkit.operators.core.step_stores import with_type
from streamkit.operators.core.upstream import Stream
from streamkit.state.definitions import StoreDef

_SIDES = ("this_store", "other_store")


@frozen
class JoinStores:
    """The options of a join's stores. common: for all of them, with the prefix of their names; sides: for one side each;
    in_memory: the default of stores without a `type`.

    The options of a side stand for a WindowBytesStoreSupplier: such a store always has a changelog.
    """

    step: Step
    common: StoreOptions
    sides: tuple[StoreOptions | None, StoreOptions | None]
    in_memory: bool

    @classmethod
    def of(cls, step: Step, in_memory: bool) -> JoinStores:
        """Return the stores of a join. Raises BuildError for options that StreamJoined does not have."""
        _refuse(step, "store", "caching", "retention", "segment_interval", "versioned", "ttl")
        for side in _SIDES:
            _refuse(step, side, "caching", "logging", "config", "retention", "versioned", "ttl")
            _check_supplier(step, side)
        sides = (step.get(_SIDES[0]), step.get(_SIDES[1]))
        return cls(step, step.get("store") or StoreOptions(), sides, in_memory)

    @property
    def base(self) -> str | None:
        """The prefix that replaces generated names of stores (StreamJoined.withStoreName)."""
        return self.common.name

    def window(self, index: int, name: str, side: Stream, times: tuple[int, int]) -> StoreDef:
        """Return the store of one side; `name`: its default name; times: size of the window and grace, in ms."""
        own = self.sides[index]
        options = own or with_type(self.common, self.in_memory)
        name = own.name or name if own is not None else name
        logging = own is not None or self.common.logging is not False
        size, grace = times
        # Several rows have one key and start: compaction would lose all but one. Java does not set this with a supplier.
        config = {} if own is not None else {**dict(self.common.config), "cleanup.policy": "delete"}
        return StoreDef(
            name=name,
            type="join_window",
            key_serde=required_serde(side.key_serde, "key", self.step, "the join's window"),
            value_serde=required_serde(side.value_serde, "value", self.step, "the join's window"),
            persistent=options.persistent is not False,
            caching=False,
            logging=logging,
            retention=size + grace,
            segment_interval=options.segment_interval,
            window_size=size,
            topic_config=config,
            changelog_topic=f"{name}-changelog" if logging else None,
        )

    def shared(self, this_name: str, kind: str, stores: tuple[StoreDef, ...]) -> StoreDef:
        """Return the store of unmatched records of both sides; its generated name has the index of the left side's node.

        It has the type of the join's stores, by default that of the left side's store (OuterStreamJoinStoreFactory).
        """
        this = self.sides[0]
        suffix = "-outer-shared-join" if kind == "outer" else "-left-shared-join"
        named = this.name if this is not None else self.base
        name = (named + suffix if named is not None else "KSTREAM-OUTERSHARED-" + this_name[-10:]) + "-store"
        logging = self.common.logging is not False
        typed_by = self.common if self.common.persistent is not None or this is None else this
        persistent = with_type(typed_by, self.in_memory and this is None).persistent
        return StoreDef(
            name=name,
            type="outer_join",
            key_serde=stores[0].key_serde,
            value_serde=stores[0].value_serde,
            persistent=persistent is not False,
            caching=False,
            logging=logging,
            topic_config=dict(self.common.config),
            changelog_topic=f"{name}-changelog" if logging else None,
            options={"right_serde": stores[1].value_serde},
        )


def _refuse(step: Step, option: str, *names: str) -> None:
    options: StoreOptions | None = step.get(option)
    if options is None:
        return
    for name in names:
        if getattr(options, name) not in (None, ()):
            position = options.position or step.at(option)
            raise BuildError(position, f"{step.operator}: `{option}` of a join of two streams takes no `{name}`")


def _check_supplier(step: Step, option: str) -> None:
    options: StoreOptions | None = step.get(option)
    if options is None:
        return
    position = options.position or step.at(option)
    if options.name is None:
        raise BuildError(position, f"{step.operator}: `{option}` needs a `name`")
    if options.segment_interval is not None and options.persistent is False:
        raise BuildError(position, f"{step.operator}: `segment_interval` is for persistent stores")
