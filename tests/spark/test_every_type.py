"""A table of 30 column types through serdes: read, written as columns, read again, and written once more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from streamkit.plan import load
from streamkit.runtime.spark.job_options import JobOptions, parse_place
from streamkit.runtime.spark.submission.submit_job import submit

TYPES = {
    "boolean": ("true", "false"),
    "tinyint": ("-128Y", "127Y"),
    "smallint": ("-32768S", "32767S"),
    "int": ("-2147483648", "2147483647"),
    "bigint": ("-9223372036854775808L", "9223372036854775807L"),
    "float": ("0.1F", "-3.4028234E38F"),
    "double": ("0.1D", "5E-324D"),
    "decimal(9,2)": ("0.10BD", "-9999999.99BD"),
    "decimal(15,4)": ("0.1234BD", "99999999999.9999BD"),
    "decimal(18,0)": ("0BD", "-999999999999999999BD"),
    "decimal(38,10)": ("0.0000000001BD", "9999999999999999999999999999.9999999999BD"),
    "string": ("'a \"b\"\\n,ä😀'", "''"),
    "char(4)": ("'ab'", "'abcd'"),
    "varchar(9)": ("'ab '", "''"),
    "date": ("date'1582-10-15'", "date'9999-12-31'"),
    "timestamp": ("timestamp'1969-12-31 23:59:59.999999Z'", "timestamp'9999-12-31 00:00:00Z'"),
    "timestamp_ntz": ("timestamp_ntz'2026-03-29 02:30:00.5'", "timestamp_ntz'0001-01-01 00:00:00'"),
    # Spark breaks Base64 into lines of 76 characters.
    "binary": ("cast(repeat('ä', 50) as binary)", "X''"),
    "array<int>": ("array(1, null)", "array()"),
    "array<string>": ("array('', 'b')", "array(cast(null as string))"),
    "array<date>": ("array(date'2024-02-29')", "array()"),
    "array<decimal(9,2)>": ("array(1.50BD)", "array(-0.01BD, null)"),
    "array<array<bigint>>": ("array(array(9007199254740993L), array())", "array()"),
    "array<struct<n:int,s:string>>": ("array(struct(1, 'x'))", "array(struct(null, ''))"),
    "map<string,int>": ("map('a', 1, 'b', null)", "map()"),
    "map<string,timestamp>": ("map('', timestamp'2026-01-01 00:00:00.000001Z')", "map()"),
    "map<string,array<string>>": ("map('k', array('v'))", "map('k', array())"),
    "map<string,struct<b:boolean>>": ("map('k', struct(true))", "map()"),
    "struct<n:int,d:date>": ("struct(1, date'2026-01-31')", "struct(null, null)"),
    "struct<deep:struct<x:double,tags:array<string>>>": (
        "struct(struct(1.5D, array('t')))",
        "struct(struct(null, null))",
    ),
}
"""By type: its values in two rows, as Spark writes them. A third row has nulls."""
NAMES = {kind: f"c{number}" for number, kind in enumerate(TYPES)}
FLAT = [kind for kind in TYPES if "<" not in kind]
WITHOUT_FORM = {
    "json": ("decimal(38,10)", "binary"),
    "schema": ("decimal(38,10)", "binary"),
    "avro": (),
    "protobuf": ("array<array<bigint>>", "map<string,array<string>>"),
    "csv": ("binary", *(kind for kind in TYPES if kind not in FLAT)),
}
"""By serde: the types that its objects have no exact form for."""
AVRO = {
    "boolean": "boolean",
    **dict.fromkeys(("tinyint", "smallint", "int"), "int"),
    **dict.fromkeys(("bigint", "decimal(18,0)"), "long"),
    "float": "float",
    **dict.fromkeys(("double",), "double"),
    **{
        f"decimal({precision},{scale})": {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": precision,
            "scale": scale,
        }
        for precision, scale in ((9, 2), (15, 4), (38, 10))
    },
    "binary": "bytes",
}
"""The types of Avro's fields; those of the other columns of one value are text."""
PROTOBUF = {
    "boolean": "bool",
    **dict.fromkeys(("tinyint", "smallint", "int"), "int32"),
    **dict.fromkeys(("bigint", "decimal(18,0)"), "int64"),
    **{kind: kind for kind in ("float", "double")},
    "binary": "bytes",
}
"""The types of Protobuf's fields; others are text."""
CSV = {
    "boolean": "boolean",
    **dict.fromkeys(("tinyint", "smallint", "int"), "integer"),
    **dict.fromkeys(("bigint", "decimal(18,0)"), "long"),
    **{kind: kind for kind in ("float", "double")},
}
"""The types of columns of CSV; others are text."""
KEYS = {"json": "string", "schema": "long", "avro": "double", "protobuf": "integer", "csv": "short"}
KEY_OF = {
    "json": "cast(at as string)",
    "schema": "at",
    "avro": "at + 0.5D",
    "protobuf": "cast(at as int)",
    "csv": "cast(at as smallint)",
}


def avro_of(kind: Any, numbers: Iterator[int]) -> Any:
    """Return the type of Avro for one of Spark, each part of which may be null. numbers: for the names of records."""
    from pyspark.sql import types

    found: Any = AVRO.get(kind.simpleString(), "string")
    if isinstance(kind, types.ArrayType):
        found = {"type": "array", "items": avro_of(kind.elementType, numbers)}
    elif isinstance(kind, types.MapType):
        found = {"type": "map", "values": avro_of(kind.valueType, numbers)}
    elif isinstance(kind, types.StructType):
        fields = [{"name": each.name, "type": avro_of(each.dataType, numbers)} for each in kind.fields]
        found = {"type": "record", "name": f"r{next(numbers)}", "fields": fields}
    return ["null", found]


def protobuf_of(name: str, fields: Any, messages: list[str]) -> str:
    """Return a message for the fields of an object. messages: gets those for objects in it."""
    from pyspark.sql import types

    def inner(kind: Any) -> str:
        if not isinstance(kind, types.StructType):
            return PROTOBUF.get(kind.simpleString(), "string")
        at = len(messages)
        messages.append("")
        messages[at] = protobuf_of(f"{name}{at}", kind.fields, messages)
        return f"{name}{at}"

    lines = []
    for number, field in enumerate(fields, 1):
        kind = field.dataType
        if isinstance(kind, types.ArrayType):
            written = f"repeated {inner(kind.elementType)}"
        elif isinstance(kind, types.MapType):
            written = f"map<string, {inner(kind.valueType)}>"
        else:
            written = f"optional {inner(kind)}"
        lines.append(f"  {written} {field.name} = {number};\n")
    return f"message {name} {{\n{''.join(lines)}}}\n"


def protobuf_form(column: str, kind: str) -> str:
    """Return a column as Protobuf can hold it: no list and no map is null, and nothing in them."""
    if kind.startswith("array"):
        return f"coalesce(filter({column}, each -> each is not null), array())"
    if kind.startswith("map"):
        return f"coalesce(map_filter({column}, (name, each) -> each is not null), map())"
    if "tags" in kind:
        deep = f"struct({column}.deep.x, coalesce({column}.deep.tags, array()) as tags) as deep"
        return f"if({column} is null, null, struct({deep}))"
    return column


def write_topology(folder: Path, spark: Any) -> Path:
    """Write a topology that copies a topic for each serde of objects, and the schemas beside it."""
    numbers = count()
    fields = [
        {"name": field.name, "type": avro_of(field.dataType, numbers)}
        for field in spark.table("every_type").schema
        if field.name != "at"
    ]
    (folder / "row.avsc").write_text(json.dumps({"type": "record", "name": "Row", "fields": fields}))
    (folder / "row.json").write_text('{"type": "object"}')
    messages: list[str] = []
    row = protobuf_of("Row", spark.table("of_protobuf").drop("at").schema.fields, messages)
    (folder / "row.proto").write_text('syntax = "proto3";\n' + row + "".join(messages))
    texts = ", ".join(f"{column}: {CSV.get(kind, 'string')}" for column, kind in columns("csv").items())
    values = {
        "json": "json",
        "schema": "{json_schema: row.json}",
        "avro": "{avro: row.avsc}",
        "protobuf": "{protobuf: row.proto}",
        "csv": f"{{csv: {{fields: {{{texts}}}, 'null': 'NULL'}}}}",
    }
    topics = "".join(
        f"  {way}_{name}: {{key: {KEYS[name]}, value: {values[name]}}}\n" for name in KEYS for way in ("from", "to")
    )
    pipelines = "".join(f"  {name}: {{stream: from_{name}, to: to_{name}}}\n" for name in KEYS)
    path = folder / "topology.yaml"
    path.write_text(f"streamkit: 1\napplication: types\ntopics:\n{topics}pipelines:\n{pipelines}")
    return path


def columns(name: str) -> dict[str, str]:
    """The columns that a serde takes, with their types."""
    return {NAMES[kind]: kind for kind in TYPES if kind not in WITHOUT_FORM[name]}


def copy(spark: Any, path: Path, inputs: dict[str, str], out: Path) -> None:
    """Run the topology from inputs to Parquet with the types of the table."""
    places, outputs = {}, {}
    for name, text in inputs.items():
        topic, place = parse_place(f"from_{name}={text}", "--input")
        assert place is not None
        places[topic] = (place,)
        types = ",".join(f"{column} {'string' if 'char' in kind else kind}" for column, kind in columns(name).items())
        topic, outputs_place = parse_place(f"to_{name}={out / name},format=parquet,value={types}", "--output")
        outputs[topic] = outputs_place
    submit(load(path), JobOptions(places, outputs), spark)


def contents(frame: Any, prefix: str, names: Any) -> list[str]:
    """The rows of some columns as JSON, in which binary values are Base64."""
    found = frame.selectExpr(*(f"{prefix}{name} as {name}" for name in names), "timestamp as at")
    rows = found.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false')) as row").collect()
    return sorted(row.row for row in rows)


def test_read_written_and_read_again(spark: Any, tmp_path: Path) -> None:
    assert len(TYPES) == 30
    ddl = ", ".join(f"{NAMES[kind]} {kind}" for kind in TYPES)
    spark.sql(f"CREATE TABLE every_type ({ddl}, at bigint) USING parquet LOCATION '{tmp_path}/lake'")
    try:
        rows = [[*(texts[row] for texts in TYPES.values()), str(row)] for row in (0, 1)] + [
            ["null"] * len(TYPES) + ["2"]
        ]
        spark.sql("INSERT INTO every_type VALUES " + ", ".join(f"({', '.join(row)})" for row in rows))
        for name in KEYS:
            form = protobuf_form if name == "protobuf" else lambda column, kind: column
            chosen = [f"{form(column, kind)} as {column}" for column, kind in columns(name).items()]
            spark.table("every_type").selectExpr(*chosen, "at").createOrReplaceTempView(f"of_{name}")
        path = write_topology(tmp_path, spark)
        first = {
            name: f"of_{name},format=table,timestamp=at,key={KEY_OF[name]},value={','.join(columns(name))}"
            for name in KEYS
        }
        copy(spark, path, first, tmp_path / "first")
        again = {
            name: f"{tmp_path}/first/{name},key=key,timestamp=timestamp,value=struct("
            + ",".join(f"value_{column} as {column}" for column in columns(name))
            + ")"
            for name in KEYS
        }
        copy(spark, path, again, tmp_path / "second")
        for name in KEYS:
            expected = contents(spark.table(f"of_{name}").withColumnRenamed("at", "timestamp"), "", columns(name))
            for place in ("first", "second"):
                frame = spark.read.parquet(str(tmp_path / place / name))
                times = frame.selectExpr("* except (timestamp)", "unix_millis(timestamp) timestamp")
                assert contents(times, "value_", columns(name)) == expected
    finally:
        spark.sql("DROP TABLE every_type")
