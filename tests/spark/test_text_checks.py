"""Text that Spark's readers pass over in part, refused by file and line, and text that looks like it and is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import TransportError
from streamkit.runtime.spark.spark_session import changed_settings
from tests.spark.test_tables import copied


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('{"n":2}{"n":3}', '{"n":2}{"n":3}'),
        ('{"n":2} {"n":3', '{"n":2} {"n":3'),
        ('{"n":2} garbage', "garbage"),
        ('{"n":2}] garbage', "] garbage"),
        ('{"n":2}} garbage', "} garbage"),
        ('{"n":2},', '{"n":2},'),
        ('{"n":2', '{"n":2'),
        ("garbage", "garbage"),
    ],
)
def test_a_line_of_json_is_one_value(line: str, shown: str, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"n":0}\n')
    (tmp_path / "in" / "b.jsonl").write_text(f'{{"n":1}}\n\n{line}\n{{"n":4}}\n')
    with pytest.raises(TransportError, match=rf"/in/b\.jsonl:3: expected one value of JSON: .*{re.escape(shown)}"):
        copied(spark, f"{tmp_path}/in,value=*,timestamp=0", tmp_path)


def test_lines_of_json_in_the_forms_that_spark_takes(spark: Any, tmp_path: Path) -> None:
    lines = ['\ufeff{"n":1}', "", " \t", "  {'n': 2 }\r", '{"n":3,"x":NaN}', '[{"n":4},{"n":5}]', '{"s":"}{\\u0000]"}']
    (tmp_path / "in.jsonl").write_bytes("\n".join(lines).encode())
    found = copied(spark, f"{tmp_path}/in.jsonl,value=coalesce(s, string(n)),timestamp=0", tmp_path, value="string")
    assert [record["value"] for record in found] == ["1", "2", "3", "4", "5", "}{\0]"]
    (tmp_path / "in.jsonl").write_text("{n: 1} // one\n{n: 2} /* two */\n")
    options = "options.allowUnquotedFieldNames=true,options.allowComments=true"
    found = copied(spark, f"{tmp_path}/in.jsonl,value=n,timestamp=0,{options}", tmp_path)
    assert [record["value"] for record in found] == [1, 2]


def test_a_file_of_json_over_many_lines_is_one_value(spark: Any, tmp_path: Path) -> None:
    place = f"{tmp_path}/in,value=n,timestamp=0,options.multiLine=true"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('\ufeff[\n{"n": 1},\n{"n": 2}\n]\n')
    (tmp_path / "in" / "b.json").write_text('{\n"n":\n3}\n')
    assert [record["value"] for record in copied(spark, place, tmp_path)] == [1, 2, 3]
    (tmp_path / "in" / "c.json").write_text('{"n": 4}\n{"n": 5}\n')
    with pytest.raises(TransportError, match=r"/in/c\.json: with options.multiLine a JSON file is one value, .*: 4}"):
        copied(spark, place, tmp_path)
    # Spark takes the fields of b.json for those of this one.
    (tmp_path / "in" / "c.json").rename(tmp_path / "in" / "[b].json")
    with pytest.raises(TransportError, match=r"takes the name of .*/in/\[b\]\.json for a pattern; rename the file"):
        copied(spark, place, tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "options", "words"),
    [
        (
            "a.json",
            '{"n":{"a":1}}\n{"n":{"A":2}}\n',
            "",
            r"n\.A and n\.a differ only in case; --conf spark.sql.caseSens",
        ),
        ("a.json", '{"a":1}\n{"A":2}\n', "", "A and a differ only in case"),
        (
            "a.json",
            '{"n":[{"i":9007199254740993},{"i":0.5}]}\n',
            "",
            r"n\[\]\.i .*options.primitivesAsString=true reads text: .*93",
        ),
        ("a.json", '{"n":1}\n{"n":"x"}\n', "", "n has values of different types, .*primitivesAsString"),
        ("a.json", '{"l":[{"b":true},{"b":2}],"m":{"c":1}}\n', "", r"l\[\]\.b has values of different types"),
        ("a.json", '{"n":1234567890123456789012345678901234567890}\n', "", "n has fractions in some rows.*123456789"),
        ("a.csv", "n\n1d\n2f\n", ",options.inferSchema=true", "n has a text such as 7d .*inferSchema=false reads text"),
        (
            "a.csv",
            "n\n2026-01-01T00:00:00.0000001Z\n",
            ",options.inferSchema=true",
            "n has a time with more than six digits",
        ),
        (
            "a.json",
            '{"n":"2026-01-01T00:00:00.0000001Z"}\n',
            ",options.inferTimestamp=true",
            "primitivesAsString=true reads text",
        ),
        ("a.csv", "n\n9007199254740993\n0.5\n", ",options.inferSchema=true", "options.inferSchema=false reads text"),
    ],
)
def test_values_for_which_inferred_columns_have_no_place(
    name: str, text: str, options: str, words: str, spark: Any, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(TransportError, match=rf"{name}: .*{words}"):
        copied(spark, f"{tmp_path}/{name},value=*,timestamp=0{options}", tmp_path)


def test_whole_numbers_that_a_double_has(spark: Any, tmp_path: Path) -> None:
    lines = '{"n":9007199254740992,"id":9007199254740993}\n{"n":0.5,"id":1}\n'
    (tmp_path / "in.jsonl").write_text(lines)
    found = copied(spark, f"{tmp_path}/in.jsonl,value=*,timestamp=0", tmp_path)
    assert [record["value"] for record in found] == list(map(json.loads, lines.splitlines()))
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        (tmp_path / "in.jsonl").write_text('{"a":1}\n{"A":2}\n')
        found = copied(spark, f"{tmp_path}/in.jsonl,value=coalesce(A, a),timestamp=0", tmp_path)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert [record["value"] for record in found] == [1, 2]


@contextmanager
def small_blocks(spark: Any) -> Iterator[None]:
    """Let Spark read files in several blocks."""
    spark.conf.set("spark.sql.files.maxPartitionBytes", "8000")
    spark.conf.set("spark.sql.files.openCostInBytes", "1")
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")


def test_a_wrong_line_has_its_number_in_a_file_of_several_blocks(spark: Any, tmp_path: Path) -> None:
    lines = ['{"n": 1}'] * 3000
    lines[2100] = '{"n": 1} {"n": 2}'
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    with small_blocks(spark), pytest.raises(TransportError, match=r"/in\.jsonl:2101: expected one value"):
        copied(spark, f"{tmp_path}/in.jsonl,value=n,timestamp=0", tmp_path)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a,b\n1,"x\n2,y\n3,z\n', 2),
        ('a,b\n1,x\n2,"y""', 3),
        ('a,b\n1,"x\n2,"y\n3,z\n', 3),
        ('a,b\n1,"x"y\n2,z\n', 2),
    ],
)
def test_a_field_of_csv_that_begins_with_a_quote_ends_with_one(
    text: str, line: int, spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text('a,b\n0,"w"\n')
    (tmp_path / "in" / "b.csv").write_text(text)
    with pytest.raises(TransportError, match=rf"/in/b\.csv:{line}: a field that begins with a quote does not end with"):
        copied(spark, f"{tmp_path}/in,format=csv,value=*,timestamp=0", tmp_path)


@pytest.mark.parametrize(
    ("text", "options", "values"),
    [
        ('a,b\n1,5" pipe\n2,x"y"\n3, "z\n', "", ['5" pipe', 'x"y"', ' "z']),
        ('a,b\n1,"x ""q""\n\n,2"\n2,""""\n3,"z" \n', "", ['x "q"\n\n,2', '"', "z"]),
        ("a\tb\n1\t'x\ty'\n2\t\"z\n", ",options.sep=\\t,options.quote='", ["x\ty", '"z']),
        ('a,b\n1,"x \\" y"\n2,"z\\\\"\n', ",options.escape=\\", ['x " y', "z\\"]),
        ('a,b\n#",\n1,"x"\n', ",options.comment=#", ["x"]),
        ('a,b\n1,"x"\n2,"y"\n', ",options.multiLine=false", ["x", "y"]),
    ],
)
def test_fields_of_csv_in_the_forms_that_spark_takes(
    text: str, options: str, values: list[str], spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text(text)
    found = copied(spark, f"{tmp_path}/in.csv,value=b,timestamp=0{options}", tmp_path, value="string")
    assert [record["value"] for record in found] == values
    (tmp_path / "in.csv").write_bytes(text.encode("utf-16"))
    wide = f"{tmp_path}/in.csv,value=b,timestamp=0,options.encoding=UTF-16{options}"
    if "multiLine" not in options:  # Spark itself finds no lines then.
        assert copied(spark, wide, tmp_path, value="string") == found


def test_a_quote_that_is_open_has_its_line_in_a_file_of_several_blocks(spark: Any, tmp_path: Path) -> None:
    lines = ["a,b", *['1,"x\n"'] * 2000]
    lines[1200] = '1,"x\n'
    lines[1201:] = ["1,x"] * 4000
    (tmp_path / "in.csv").write_text("\n".join(lines))
    with small_blocks(spark), pytest.raises(TransportError, match=r"/in\.csv:2400: a field that begins"):
        copied(spark, f"{tmp_path}/in.csv,value=b,timestamp=0", tmp_path)


@pytest.mark.parametrize("options", ["", ",options.quote="])
def test_a_csv_that_is_not_utf_8_has_its_line(options: str, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes("a,b\n1,ä\n2,é\n".encode("latin-1"))
    place = f"{tmp_path}/in.csv,value=b,timestamp=0{options}"
    with pytest.raises(TransportError, match=r"/in\.csv:2: the text is not UTF-8; options\.encoding=NAME"):
        copied(spark, place, tmp_path, value="string")
    found = copied(spark, f"{place},options.encoding=ISO-8859-1", tmp_path, value="string")
    assert [record["value"] for record in found] == ["ä", "é"]


@pytest.fixture
def tables(spark: Any, tmp_path: Path) -> Iterator[Callable[[str, bytes, str], None]]:
    """Makes the table `written` of a format over a file, with a view `seen` of it."""

    def make(kind: str, text: bytes, options: str, type_of_v: str = "STRING") -> None:
        (tmp_path / "table").mkdir()
        (tmp_path / "table" / "a").write_bytes(text)
        spark.sql(
            f"CREATE TABLE written (n INT, v {type_of_v}) USING {kind} OPTIONS ({options}) LOCATION '{tmp_path}/table'"
        )
        spark.sql("CREATE VIEW seen AS SELECT * FROM written")

    yield make
    spark.sql("DROP VIEW IF EXISTS seen")
    spark.sql("DROP TABLE IF EXISTS written")


@pytest.mark.parametrize(
    ("kind", "text", "options", "words"),
    [
        ("csv", "1;ä\n2;é\n".encode("latin-1"), "sep ';'", r"/table/a:1: the text is not UTF-8"),
        (
            "json",
            b'{"n":1,"v":"x"}\n{"n":2,"v":"y"} {"n":3}\n',
            "dateFormat 'yyyy'",
            r"/table/a:2: expected one value of JSON",
        ),
    ],
)
def test_text_of_tables_in_a_catalog_that_spark_would_lose(
    kind: str, text: bytes, options: str, words: str, spark: Any, tables: Any, tmp_path: Path
) -> None:
    tables(kind, text, options)
    for name in ("written", "seen"):
        expected = words if name == "written" else f"seen: it reads a table of {kind.upper()} through a view"
        with pytest.raises(TransportError, match=expected):
            copied(spark, f"{name},format=table,value=v,timestamp=0,order=n", tmp_path, value="string")


def test_text_of_tables_in_a_catalog_in_the_forms_that_spark_takes(spark: Any, tables: Any, tmp_path: Path) -> None:
    tables("csv", "1;\"ä\n2;'é'\n".encode("latin-1"), "sep ';', encoding 'ISO-8859-1', quote \"'\"")
    found = copied(spark, "written,format=table,value=v,timestamp=0,order=n", tmp_path, value="string")
    assert [record["value"] for record in found] == ['"ä', "é"]


@pytest.mark.parametrize(("zone", "hour"), [("UTC", 12), ("Asia/Tokyo", 3)])
def test_times_in_the_text_of_a_table_have_the_zone_of_the_table(
    zone: str, hour: int, spark: Any, tables: Any, tmp_path: Path
) -> None:
    tables("csv", b"1,2026-01-31 12:00:00\n", "sep ','" if zone == "UTC" else f"timeZone '{zone}'", "TIMESTAMP")
    with changed_settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        found = copied(spark, "written,format=table,value=v,timestamp=0,order=n", tmp_path, value="string")
    assert [record["value"] for record in found] == [f"2026-01-31T{hour:02}:00:00Z"]


@pytest.mark.parametrize(("kind", "text"), [("json", '{"_corrupt_record":"x"}\n'), ("csv", "_corrupt_record\nx\n")])
def test_a_field_with_the_name_of_sparks_column_for_wrong_rows(
    kind: str, text: str, spark: Any, tmp_path: Path
) -> None:
    (tmp_path / f"in.{kind}").write_text(text)
    found = copied(spark, f"{tmp_path}/in.{kind},value=_corrupt_record,timestamp=0", tmp_path, value="string")
    assert [record["value"] for record in found] == ["x"]


def test_rows_of_xml_are_text_as_it_is(spark: Any, tmp_path: Path) -> None:
    good = "<rows><row><n>1</n><id>007</id></row><row><n>2</n><id> x </id></row></rows>"
    (tmp_path / "in.xml").write_text(good)
    place = f"{tmp_path}/in.xml,format=xml,options.rowTag=row,value=id,timestamp=n,order=int(n)"
    found = copied(spark, place, tmp_path, value="string")
    assert [(record["value"], record["timestamp"]) for record in found] == [("007", 1), (" x ", 2)]
    (tmp_path / "in.xml").write_text(good.replace("</id></row></rows>", "</row></rows>"))
    with pytest.raises(TransportError, match=r"/in\.xml: .*MALFORMED_RECORD"):
        copied(spark, place, tmp_path, value="string")


def test_half_of_a_character_in_json(spark: Any, tmp_path: Path) -> None:
    r"""Spark reads `?` for it. The whole one, and what stands after an escaped backslash, are text."""
    good = r'{"s":"\ud83d\ude00 \\ud83d"}'
    (tmp_path / "in.jsonl").write_text(f"{good}\n")
    found = copied(spark, f"{tmp_path}/in.jsonl,value=s,timestamp=0", tmp_path, value="string")
    assert [record["value"] for record in found] == [json.loads(good)["s"]]
    for half in (r"\ud83d", r"\uDE00 \ud83d\ude00", r"\\\ud83d"):
        (tmp_path / "in.jsonl").write_text(f'{good}\n{{"s":"{half}"}}\n')
        with pytest.raises(TransportError, match=r"/in\.jsonl:2: an escape such as .* is half of a character"):
            copied(spark, f"{tmp_path}/in.jsonl,value=s,timestamp=0", tmp_path, value="string")
