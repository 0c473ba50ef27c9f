"""The JSON Schema of job files (draft 2020-12), for editors.

`python -m streamkit.runtime.spark.submission.job_schema` writes schemas/job.schema.json. `--check` exits with 1 if that file is
out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from streamkit.runtime.spark.job_options import (
    DECODED,
    ENGINES,
    FINAL,
    INPUT_SETTINGS,
    MODES,
    OF_LOG,
    OUTPUT_SETTINGS,
    UPDATES,
)
from streamkit.runtime.spark.submission.job_file import KEYS, ON_DATA_LOSS
from streamkit.spec.topology_schema import Schema, keep, object_of, optional

PATH = Path("schemas/job.schema.json")
TEXT: Schema = {"type": "string"}
SQL: Schema = {"type": ["string", "number"]}
SETTINGS: Schema = {"type": ["object", "null"], "additionalProperties": {"type": ["string", "number", "boolean"]}}
_LIST: Schema = {"type": "array", "items": SQL, "minItems": 1}
_FIELDS: Schema = {"type": "object", "additionalProperties": SQL, "minProperties": 1}
_PARTS: Schema = {"anyOf": [SQL, _LIST, _FIELDS]}
_INPUT: dict[str, Schema] = {
    "format": {**TEXT, "description": "json, parquet, table, csv, orc, avro, delta, iceberg or another Spark format."},
    "order": {**SQL, "description": "The column or expression that orders the rows: whole numbers, times or dates."},
    "key": {**_PARTS, "description": "A column or expression, a list of columns, or expressions by field; * for all."},
    "value": {
        **_PARTS,
        "description": "A column or expression, a list of columns, or expressions by field; * for all.",
    },
    "timestamp": {**SQL, "description": "A time, a date or milliseconds, also as text."},
    "headers": {"anyOf": [SQL, _FIELDS], "description": "A column of headers, or expressions by name."},
    "partition": {**SQL, "description": "Whole numbers from 0."},
    "offset": {**SQL, "description": "Whole numbers that order the rows of a partition."},
    "where": {**TEXT, "description": "Only rows for which this condition of Spark SQL is true."},
}
_OUTPUT: dict[str, Schema] = {
    "format": {
        **TEXT,
        "description": "json, parquet, orc, csv or another Spark format; table, iceberg or delta for a table.",
    },
    "columns": {"enum": [DECODED, OF_LOG], "description": "Keys and values as columns, or as the bytes of the log."},
    "key": {"anyOf": [TEXT, _FIELDS], "description": "A type of Spark, or types by field."},
    "value": {"anyOf": [TEXT, _FIELDS], "description": "A type of Spark, or types by field."},
    "mode": {"enum": list(MODES), "description": "How new rows are combined with the existing rows of a table."},
    "partition_by": {
        "anyOf": [TEXT, _LIST],
        "description": "Columns, transforms such as days(COLUMN), and for tables bucket(N,COLUMN).",
    },
    "sort_by": {"anyOf": [TEXT, _LIST], "description": "The columns that order the rows of a file."},
}
_WHERE: Schema = {
    "path": {**TEXT, "description": "A file, a directory or a pattern; relative to the job file."},
    "table": {**TEXT, "description": "A table of Spark's catalog."},
}
_EITHER = [{"required": ["path"]}, {"required": ["table"]}]


def _place(settings: dict[str, Schema], others: Schema) -> Schema:
    properties = {**_WHERE, **settings, **others}
    options = object_of({name: optional(schema) for name, schema in properties.items()})
    return {"anyOf": [TEXT, {**options, "oneOf": _EITHER}, {"type": "null"}]}


def build() -> Schema:
    """Return the schema."""
    assert (tuple(_INPUT), tuple(_OUTPUT)) == (INPUT_SETTINGS, OUTPUT_SETTINGS)
    source = _place(_INPUT, {"options": {**SETTINGS, "description": "Options of Spark's reader."}})
    files = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
    keys: Schema = {
        "topology": {**TEXT, "description": "The topology file, relative to this file."},
        "description": TEXT,
        "set": {**SETTINGS, "description": "Config values that override the topology's."},
        "inputs": {
            "type": "object",
            "additionalProperties": {"anyOf": [{"$ref": "#/$defs/input"}, {"type": "array", "items": {"$ref": "#/$defs/input"}}]},
            "description": "The place of a topic's records, or a list of places; empty for the log.",
        },
        "outputs": {
            "type": "object",
            "additionalProperties": {"$ref": "#/$defs/output"},
            "description": "The place to write a topic to; * is all other topics; empty for the log.",
        },
        "checkpoint": {**TEXT, "description": "The directory that keeps the state between runs."},
        "emit": {"enum": [UPDATES, FINAL], "description": "Every update, or the last of each key."},
        "engine": {"enum": list(ENGINES), "description": "Whether stages run as Spark SQL where that is exact, or all in Python."},
        "from": {**SQL, "description": "earliest, committed, a time as in consume, or a JSON file of offsets."},
        "until": {**SQL, "description": "latest, committed, a time as in consume, or a JSON file of offsets."},
        "on_data_loss": {"enum": list(ON_DATA_LOSS), "description": "What to do if retention has removed the beginning of the range."},
        "overwrite": {"type": "boolean", "description": "Replace directories that exist, and the rows of tables."},
        "shadow": {**TEXT, "description": "A suffix for the names of topics that are written to the log."},
        "compare": {**files, "description": "Topics on the log with which the result is compared."},
        "write_state": {"type": "boolean", "description": "Write the final stores as changelogs."},
        "parallelism": {"type": "integer", "minimum": 1, "description": "The minimum number of Spark tasks per stage."},
        "master": {**TEXT, "description": "local[*], spark://HOST:PORT, k8s://…, yarn or sc://HOST."},
        "spark": {**SETTINGS, "description": "Settings of Spark."},
        "py_files": {**files, "description": "Python files for the workers."},
        "archives": {**files, "description": "Archives for the workers."},
        "files": {**files, "description": "Data files that workers store beside the Python modules."},
    }  # fmt: skip
    assert tuple(keys) == KEYS
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "streamkit job",
        **object_of({name: optional(schema) for name, schema in keys.items()}, ("topology",)),
        "$defs": {"input": source, "output": _place(_OUTPUT, {})},
    }


def main(arguments: list[str]) -> int:
    """Write the schema, or with `--check` compare it; return the exit code."""
    return keep(PATH, build(), "streamkit.runtime.spark.submission.job_schema", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
