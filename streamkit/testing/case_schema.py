"""The JSON Schema of test files (draft 2020-12), for editors.

`python -m streamkit.testing.case_schema` writes schemas/test.schema.json; `--check` exits 1 when that file is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from streamkit.spec.topology_schema import Schema, keep, object_of, ref
from streamkit.testing.case_file import CASE_KEYS, FILE_KEYS
from streamkit.testing.cases import ALL, COMPARED, FAULTS, MATCHES, Simulation

PATH = Path("schemas/test.schema.json")
ANY: Schema = {}
TEXT: Schema = {"type": "string"}
SETTING: Schema = {"type": ["string", "number", "boolean", "null"]}


def _map_of(schema: Schema, description: str) -> Schema:
    return {"type": ["object", "null"], "additionalProperties": schema, "description": description}


def _record_fields() -> Schema:
    header = {"type": "array", "prefixItems": [TEXT, ANY], "minItems": 2, "maxItems": 2}
    return {
        "key": {"description": "In the JSON form of the key's serde."},
        "value": {"description": "In the JSON form of the value's serde."},
        "timestamp": ref("instant", "Event time."),
        "headers": {"type": ["array", "null"], "items": header, "description": "[[name, text or {base64: …}], …]"},
    }


def _generate() -> Schema:
    options: Schema = {
        "count": {"type": "integer", "minimum": 0, "description": "The total number of records of all topics."},
        "seed": {
            "type": "integer",
            "minimum": 0,
            "description": "A different number gives different records; the default is 0.",
        },
        "start": ref("instant", "The time of the first records; the default is 2025-01-01T00:00Z."),
        "topics": {
            "type": "array",
            "items": TEXT,
            "description": "The topics, by the names of their entries; all by default.",
        },
    }
    return object_of(options, ("count",), "Records of the topology's generators.")


def _sample() -> Schema:
    options: Schema = {
        "job": {**TEXT, "description": "The job file with the inputs."},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "description": "The number of records of each topic; the default is 100.",
        },
    }
    return object_of(options, ("job",), "The first records of the inputs of a job file, which Spark reads.")


def _given() -> Schema:
    record = object_of(_record_fields())
    items = [
        object_of({"topic": {**TEXT, "description": "The topic's entry."}, **_record_fields()}, ("topic",)),
        object_of({"advance_wall_clock": ref("duration", "Advances the wall clock.")}, ("advance_wall_clock",)),
        object_of({"restart": {"type": "boolean", "description": "Restarts from the changelogs."}}, ("restart",)),
        object_of({"generate": _generate()}, ("generate",)),
        object_of({"sample": _sample()}, ("sample",)),
        object_of({"file": {**TEXT, "description": "Records as JSON Lines."}}, ("file",)),
    ]
    return {
        "description": "What happens, in order: records, clock advances, restarts; or records by topic.",
        "anyOf": [
            {"type": "array", "items": {"anyOf": items}},
            {"type": "object", "additionalProperties": {"type": "array", "items": record}},
            {"type": "null"},
        ],
    }


def _expectation(record: Schema) -> Schema:
    records = {"type": ["array", "null"], "items": record}
    options = {
        "match": {"enum": list(MATCHES), "description": "contains: further records are allowed."},
        "partial": {"type": "boolean", "description": "Compare only the given fields, also inside objects."},
        "records": records,
        "file": {**TEXT, "description": "Records as JSON Lines."},
    }
    return {"anyOf": [records, object_of(options)]}


def _phase() -> Schema:
    row = object_of({"key": ANY, "value": ANY}, ("key",))
    store = _expectation(row)
    store["anyOf"].append({"type": "object", "description": "Rows by key."})
    return {
        "given": ref("given"),
        "expect": _map_of(_expectation(object_of(_record_fields())), "The expected output, by topic."),
        "stores": _map_of(store, "The expected rows of stores, by name."),
        "error": {**TEXT, "description": "Text in the message with which processing must fail."},
        "dropped": {"type": "integer", "minimum": 0, "description": "The number of dropped records."},
    }


def _simulate() -> Schema:
    def number(default: int, text: str) -> Schema:
        return {"type": "integer", "minimum": 1, "maximum": 1000, "default": default, "description": text}

    default = Simulation()
    options: Schema = {
        "partitions": number(default.partitions, "The partitions of each topic."),
        "instances": number(default.instances, "Instances of the application."),
        "threads": number(default.threads, "Stream threads of each instance."),
        "faults": {
            "type": ["array", "null"],
            "items": {"enum": list(FAULTS)},
            "description": "By default restart and rebalance, and with exactly_once_v2 also crash.",
        },
        "compare": {"enum": list(COMPARED), "default": ALL, "description": "all records of a key, or the last one."},
        "accept": {
            "type": ["array", "null"],
            "items": TEXT,
            "description": "Steps, as PIPELINE.STEP, whose output may depend on the order of records.",
        },
    }
    return object_of(options, (), "What `streamkit test --simulate` varies.")


def build() -> Schema:
    """Return the schema."""
    settings = _map_of(SETTING, "Config values that override those of the topology.")
    case = {
        "description": {"type": ["string", "null"]},
        "set": settings,
        "clock": ref("instant", "The initial time of the wall clock; the default is 0."),
        "describe": {**TEXT, "description": "The text of `streamkit describe`, or the name of its file."},
        "steps": {
            "type": "array",
            "items": object_of(_phase()),
            "description": "Several rounds of input and expected output.",
        },
        **_phase(),
    }
    file = {
        "topology": {**TEXT, "description": "The topology's file; the one beside this file by default."},
        "description": {"type": ["string", "null"]},
        "environment": _map_of(SETTING, "Variables for ${NAME} in the topology."),
        "set": settings,
        "simulate": _simulate(),
        "tests": {"type": "object", "minProperties": 1, "additionalProperties": object_of(case)},
    }
    assert (tuple(file), set(case)) == (FILE_KEYS, set(CASE_KEYS))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "streamkit tests of a topology",
        **object_of(file, ("tests",)),
        "$defs": {
            "given": _given(),
            "duration": {"type": ["integer", "string"]},
            "instant": {
                "type": ["integer", "string", "null"],
                "description": "Milliseconds, a duration since 0 such as 90s, or a time such as 2025-01-31T08:00:00Z.",
            },
        },
    }


def main(arguments: list[str]) -> int:
    """Write the schema, or with `--check` compare it; return the exit code."""
    return keep(PATH, build(), "streamkit.testing.case_schema", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
