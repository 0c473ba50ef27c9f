"""The code that changes entries of a store's cache in place (state/stores/cache.py): the hottest path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamkit.code import NONE, Code, all_of, any_of, attribute, call, compare, is_none, item, negated, symbol
from streamkit.extension import native
from streamkit.state.stores.cache import CONTEXT, DATA, PUT, TIME, TOPIC, USED, VALUE

if TYPE_CHECKING:
    from streamkit.operators.codegen.code_writer import CodeWriter

RT = symbol("rt")

_COUNT: Callable[..., bool] | None = native("count_in_entry", None)
"""The extension's function that counts in an entry; its code without the extension is inline, since a call would cost more."""


def cache_functions(gen: CodeWriter, name: str) -> tuple[Code, Code, Code]:
    """Return the function of a store's cache that gets an entry, the piece of the next stamp, and the function that renews an entry."""
    return (
        gen.prologue(("entries", name), "entry_of", attribute(gen.store(name), "entries", "get")),
        call("next", _ticks(gen, name)),
        gen.prologue(("renew", name), "renew", attribute(gen.store(name), "cache", "renew")),
    )


def has_no_value(entry: Code) -> Code:
    """Return the test that a key has no entry, or that of a deletion."""
    return any_of(is_none(entry), is_none(item(entry, VALUE)))


def counted(gen: CodeWriter, name: str, key: Code) -> Code | None:
    """Return the extension's call that counts in a key's entry, which is false where it has changed nothing; None for no such call."""
    if _COUNT is None or not gen.reads_one_topic():
        return None
    entries = gen.prologue(("all entries", name), "entries", attribute(gen.store(name), "entries"))
    record = gen.record
    return call(gen.name_of(_COUNT, "count"), entries, key, record.time, record.context, _ticks(gen, name))


@contextmanager
def unless_counted(gen: CodeWriter, name: str, key: Code) -> Iterator[None]:
    """Write what counts in Python around the block: all of it without the extension, else what the extension leaves."""
    by_extension = counted(gen, name, key)
    if by_extension is None:
        yield
        return
    with gen.when(negated(by_extension)):
        yield


def mark_updated(gen: CodeWriter, entry: Code, renew: Code, key: Code, tick: Code | None = None) -> None:
    """Write the other changes of a cache entry with a new value; `tick`: where its read set no stamp."""
    record = gen.record
    gen.assign(item(entry, DATA), NONE)
    with gen.when(compare(record.time, ">", item(entry, TIME))):
        gen.assign(item(entry, TIME), record.time)
    # The entry's size stays if it has an update that is not flushed, with this context and a topic of this length.
    same = [item(entry, PUT), compare(record.context, "is", item(entry, CONTEXT))]
    if not gen.reads_one_topic():
        current = gen.prologue(("topic",), "current", attribute(RT, "current_topic"))
        same.append(compare(item(entry, TOPIC), "==", attribute(current, "size")))
    with gen.when(all_of(*same)):
        if tick is None:
            gen.assign(item(entry, PUT), item(entry, USED))
        else:
            gen.assign_all((item(entry, PUT), item(entry, USED)), tick)
    with gen.otherwise():
        gen.do(call(renew, key, entry, record.context))


def _ticks(gen: CodeWriter, name: str) -> Code:
    return gen.prologue(("ticks", name), "ticks", attribute(gen.store(name), "cache", "ticks"))
