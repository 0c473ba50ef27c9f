"""What changes sub-topologies and tasks: pipelines, inputs, partitions, the application."""

from __future__ import annotations

from tests.changes.versions import (
    EXPLICIT,
    NAMED,
    TABLES,
    TOTALS,
    TWO,
    Pair,
    pair,
)

_SECOND = "  b:\n    stream: b\n    steps: [group_by_key, {count: b-store}, to_stream]\n    to: b-counts\n"
_FIRST = "  a:\n    stream: a\n    steps: [group_by_key, {count: a-store}, to_stream]\n    to: a-counts\n"
TASKS: list[Pair] = [
    # Tasks
    pair(
        "pipeline-added-behind",
        TWO.replace(_SECOND, ""),
        (_FIRST, _FIRST + _SECOND),
        expect="stop: sub-topology 1",
        notes=("store b-store is new and starts empty",),
    ),
    pair(
        "pipeline-added-in-front",
        TWO.replace(_FIRST, ""),
        (_SECOND, _FIRST + _SECOND),
        expect="restore: sub-topology 1\nstop: sub-topology 0",
    ),
    pair(
        "pipeline-removed-behind", TWO, (_SECOND, ""), expect="stop: sub-topology 1", notes=("store b-store is gone",)
    ),
    pair("pipeline-removed-in-front", TWO, (_FIRST, ""), expect="restore: sub-topology 0\nstop: sub-topology 0"),
    pair(
        "pipelines-swapped",
        TWO,
        (_FIRST + _SECOND, _SECOND + _FIRST),
        expect="restore: sub-topology 0\nrestore: sub-topology 1",
    ),
    pair(
        "input-added",
        TWO,
        ("stream: a\n", "stream: [a, c]\n"),
        ("a: {value", "c: {value: string}, a: {value"),
        expect="stop: sub-topology 0",
    ),
    pair(
        "input-replaced",
        TWO,
        ("stream: a\n", "stream: c\n"),
        ("a: {value", "c: {value: string}, a: {value"),
        expect="stop: sub-topology 0",
    ),
    pair(
        "global-table-added",
        TABLES,
        ("  users:\n", "  more: {global_table: more}\n  users:\n"),
        ("table: users\n", "table: users\n    store: users-STATE-STORE-0000000000\n"),
        expect="restore: sub-topology 1",
    ),
    pair(
        "sub-topologies-join",
        TWO,
        (
            "{count: b-store}, to_stream]",
            "{count: b-store}, {join: {with: a-table, value: left + right, value_serde: long}}, to_stream]",
        ),
        (
            "  a:\n    stream: a\n    steps: [group_by_key, {count: a-store}, to_stream]",
            "  a-table:\n    stream: a\n    steps: [group_by_key, {count: a-store}]\n  a:\n    from: a-table\n    steps: [to_stream]",
        ),
        expect="restore: store b-store\nstop: sub-topology 0\nstop: sub-topology 1",
    ),
    # Partitions
    pair(
        "partitions-of-an-input-with-state",
        TOTALS,
        ("partitions: 2", "partitions: 4"),
        expect="incompatible: store totals\nincompatible: topic sales",
    ),
    pair(
        "partitions-of-an-input-without-state",
        TWO.replace("a: {value: string}", "a: {value: string, partitions: 2}", 1)
        .replace("group_by_key, {count: a-store}, to_stream", "peek: len(value)")
        .replace("a-counts: {value: long}", "a-counts: {value: string}"),
        ("partitions: 2", "partitions: 3"),
        expect="stop: topic a",
    ),
    pair(
        "partitions-of-a-repartition",
        EXPLICIT,
        ("partitions: 2", "partitions: 3"),
        expect="incompatible: topic spread-repartition",
    ),
    # The application
    pair(
        "another-application", NAMED, ("application: pair", "application: other"), expect="renamed: application other"
    ),
    pair(
        "application-and-store",
        NAMED,
        ("application: pair", "application: other"),
        ("count: counts", "count: totals"),
        expect="renamed: application other\nrenamed: store totals",
    ),
    pair(
        "state-directory",
        NAMED,
        ("application: pair\n", "application: pair\nconfig: {state.dir: /elsewhere}\n"),
        expect="restore: setting state.dir",
    ),
    pair(
        "state-engine",
        NAMED,
        ("application: pair\n", "application: pair\nconfig: {state.engine: rocksdb}\n"),
        expect="restore: setting state.engine",
    ),
    pair(
        "input-serde",
        TABLES.replace("clicks: {value: string}", "clicks: {value: uuid}"),
        ("clicks: {value: uuid}", "clicks: {value: string}"),
    ),
    pair(
        "input-serde-other-bytes",
        TABLES,
        ("clicks: {value: string}", "clicks: {value: long}"),
        ("left + right", "right"),
        expect="unknown: topic clicks",
    ),
    pair(
        "output-goes",
        NAMED,
        ("      - to_stream\n    to: counts\n", "      - to_stream\n"),
    ),
    pair(
        "output-replaced",
        NAMED,
        ("to: counts", "to: totals"),
        ("counts: {value", "totals: {value: long}, counts: {value"),
    ),
]
