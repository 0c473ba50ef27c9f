"""What Spark's reader of JSON passes over without an error, refused by file and line.

It takes the first value of a line, or with multiLine of a file, and never looks for a second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamkit.errors import TransportError
from streamkit.runtime.spark.job_options import Place
from streamkit.runtime.spark.rows.positions import BLOCK, FILE, ROW, place_of_line, position_columns, same_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TEXT = "_streamkit_text"
_EXCERPT_CHARACTERS = 120


def _option(place: Place, *names: str, default: str = "") -> str:
    """Return an option of an input by its names; Spark does not tell their cases apart."""
    given = {name.lower(): value for name, value in place.options.items()}
    return next((given[name] for name in names if name in given), default)


def _is_wide(place: Place) -> bool:
    return _encoding(place).startswith(("utf-16", "utf-32"))


def _encoding(place: Place) -> str:
    return _option(place, "encoding", "charset").lower()


def _texts(spark: SparkSession, place: Place, paths: Sequence[str], whole: bool) -> DataFrame:
    """Return the lines of files, or whole files, with their positions."""
    from pyspark.sql import functions as sf

    reader = spark.read.options(**place.options, ignoreCorruptFiles="false", ignoreMissingFiles="false")
    frame = reader.schema(f"{_TEXT} string").text(
        list(paths), wholetext=whole, lineSep=_option(place, "linesep") or None
    )
    text = sf.decode(sf.col(_TEXT).cast("binary"), _encoding(place)) if _is_wide(place) else sf.col(_TEXT)
    return frame.select(text.alias(_TEXT), *position_columns("_metadata.file_block_start"))


# -- JSON --------------------------------------------------------------------------------------------------------------


def check_json(spark: SparkSession, place: Place, paths: Sequence[str]) -> None:
    """Raise TransportError for a line of JSON, or with multiLine a file, that is not one value."""
    from pyspark.sql import functions as sf

    whole = _option(place, "multiline").lower() == "true"
    text = sf.regexp_replace(_TEXT, "^\ufeff", "")
    wrong = sf.when(
        ~(text.rlike(r"^\s*$") | _is_one_value(place, text)),
        sf.struct(ROW, sf.substring(text, 1, _EXCERPT_CHARACTERS + 1).alias(_TEXT)),
    )
    found = (
        _texts(spark, place, paths, whole)
        .groupBy(FILE, BLOCK)
        .agg(sf.min(ROW).alias(ROW), sf.min(wrong).alias("wrong"))
        .where("wrong is not null")
        .orderBy(FILE, BLOCK)
        .limit(1)
        .collect()
    )
    for row in found:
        _refuse_json(same_path(row[FILE]), row[BLOCK], row["wrong"][ROW] - row[ROW], row["wrong"][_TEXT], whole)


def _refuse_json(path: str, block: int, row: int, text: str, whole: bool) -> None:
    shown = text if len(text) <= _EXCERPT_CHARACTERS else f"{text[:_EXCERPT_CHARACTERS]}…"
    if whole:
        raise TransportError(
            f"{path}: with options.multiLine a file of JSON is one value, an object or a list of objects; without it each line is "
            f"one; the file begins with {' '.join(shown.split())}"
        )
    raise TransportError(f"{place_of_line(path, block, row)}: expected one value of JSON: {shown}")


def _is_one_value(place: Place, text: Column) -> Column:
    """Return whether a text is one value of JSON with nothing behind it.

    In a list and in an object the same text must be all that is there: what follows a value would have to be the bracket of both.
    """
    from pyspark.sql import functions as sf

    in_list = sf.concat(sf.lit("["), text, sf.lit("\n]"))
    in_object = sf.concat(sf.lit('{"":'), text, sf.lit("\n}"))
    # What the functions below take is fixed, and they are faster.
    strict = (sf.json_array_length(in_list) == 1) & sf.json_object_keys(in_object).isNotNull()
    options = {name: value for name, value in place.options.items() if name.lower().startswith("allow")}
    lenient = (sf.size(sf.from_json(in_list, "array<string>", options)) == 1) & sf.from_json(
        in_object, "map<string,string>", options
    ).isNotNull()
    return sf.coalesce(strict, sf.lit(False)) | sf.coalesce(lenient, sf.lit(False))
