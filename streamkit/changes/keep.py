"""Suggests options that keep the present name of a store or a topic."""

from __future__ import annotations

import re

from streamkit.changes.forms.form import Form, Place, StoreForm, TopicForm

_ENDINGS = {
    "join_window": (
        ("-outer-this-join-store", "store"),
        ("-outer-other-join-store", "store"),
        ("-this-join-store", "store"),
        ("-other-join-store", "store"),
    ),
    "outer_join": (("-left-shared-join-store", "store"), ("-outer-shared-join-store", "store")),
    "suppress": (("-store", "name"),),
    "subscription": (("-subscription-store", "name"),),
    "join_grace": (("-Buffer", "name"),),
}
"""Suffixes of store names that a step derives from an option, and that option, by kind of store."""
_TOPIC_ENDINGS = (
    ("-subscription-registration-topic", "name"),
    ("-subscription-response-topic", "name"),
    ("-left-repartition", "name"),
    ("-right-repartition", "name"),
)
_SECTION = ("process", "process_values", "global_store", "read_only_store")
"""Steps whose stores have their names in the section `stores`."""
_GROUPED = ("count", "reduce", "aggregate")
_GENERATED = (
    "no option gives it this generated name: keep as many steps before it as there were, for example by putting new "
    "pipelines at the end of the file"
)


def keep_store(new: Form, store: StoreForm, name: str) -> str:
    """Return the option that gives a store of the new version the name `name`."""
    kind = store.rows.kind if store.rows is not None else ""
    step = store.place.step
    if not step:
        return f"give it the name {name} (Materialized.as), and run diff again"
    if step in _SECTION:
        return f"call it `{name}` in the section `stores`, and where steps name it"
    if kind in _ENDINGS:
        for ending, option in _ENDINGS[kind]:
            if name.endswith(ending):
                return _write(store.place, f"{option}: {name.removesuffix(ending)}")
        if kind != "join_window":
            return _GENERATED
        return _write(store.place, f"{_side(new, store)}: {{name: {name}}}")
    return _write(store.place, f"store: {name}")


def keep_topic(topic: TopicForm, name: str) -> str:
    """Return the option that gives an internal topic of the new version the name `name`."""
    step = topic.place.step
    for ending, option in _TOPIC_ENDINGS:
        if name.endswith(ending) and step.endswith("join"):
            return _write(topic.place, f"{option}: {name.removesuffix(ending)}")
    base = name.removesuffix("-repartition")
    if (
        not step
        or base == name
        or (step.endswith("join") and topic.name.endswith(("-left-repartition", "-right-repartition")))
    ):
        return _GENERATED
    if step in _GROUPED:
        return f"write `name: {base}` in the group_by or group_by_key before {_shown(topic.place)}"
    return _write(topic.place, f"name: {base}")


def _write(place: Place, option: str) -> str:
    if place.step in ("table", "global_table"):
        return f"write `{option}` beside `{place.step}:` in line {place.position.line}"
    return f"write `{option}` in the step {_shown(place)}"


def _shown(place: Place) -> str:
    return f"{place.pipeline}.{place.step} (line {place.position.line})"


def _side(new: Form, store: StoreForm) -> str:
    """Return the option of a join's own store: by its generated name, else the left side's comes first."""
    if re.search(r"THIS-|-this-", store.name):
        return "this_store"
    if re.search(r"OTHER-|-other-", store.name):
        return "other_store"
    same = [each.name for each in new.stores.values() if each.place == store.place]
    return "this_store" if same.index(store.name) == 0 else "other_store"
