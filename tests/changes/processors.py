"""A processor with a store, for the pairs."""

from __future__ import annotations


def Once(record, context):
    if context.store("seen").put_if_absent(record.key, 1) is None:
        yield record
