"""The state of a task beside its stores that a restart of a live task loses, as in Java, and a batch job keeps between runs."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

Values = dict[str, list[int]]
"""The values of `volatile` attributes, by the name of a store or of an object of the program."""


def save(objects: Mapping[str, object]) -> Values:
    """Return the values of the attributes that the classes of objects list in `volatile`."""
    return {
        name: [attrgetter(attribute)(each) for attribute in attributes]
        for name, each in objects.items()
        if (attributes := getattr(each, "volatile", ()))
    }


def load(objects: Mapping[str, object], saved: Values) -> None:
    """Set the attributes that `save` returned; objects that have no saved values stay as they are."""
    for name, values in saved.items():
        if name not in objects:
            continue
        for attribute, value in zip(getattr(objects[name], "volatile", ()), values, strict=True):
            *path, last = attribute.split(".")
            setattr(attrgetter(".".join(path))(objects[name]) if path else objects[name], last, value)
