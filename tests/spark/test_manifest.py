"""The manifest of a checkpoint shows each bit of it that has changed."""

from __future__ import annotations

import json
import random

import pytest

from streamkit.errors import StateError
from streamkit.runtime.spark.checkpoint.manifest import (
    InputFile,
    KnownInput,
    Manifest,
    Piece,
    StateFile,
    parse_manifest,
)

PIECE = Piece("000001-1a2b3c4d", "base", 12, 345, (StateFile("folder=000001-1a2b3c4d/store=counts/part-0.parquet", 7),))
MANIFEST = Manifest(
    7,
    "words",
    {"topics": ["a", "b"]},
    {"a": 2},
    {"a": (InputFile("/lake/a/1.jsonl", 123, 456, 1),)},
    {"a": {"/lake/a": KnownInput({"key": "user"}, "times", {"key": "int"})}},
    {"b": {"0": 42, "1": 7}},
    tasks={"0_0": {"times": [["a", 0, "AQ=="]], "offsets": [["b", 0, 12]]}},
    state={"counts": {"0": (PIECE,)}},
)


def test_a_manifest_reads_in_again() -> None:
    assert parse_manifest(MANIFEST.to_text(), "/c/000007.json").to_text() == MANIFEST.to_text()


def test_no_bit_changes_a_manifest_silently() -> None:
    data = MANIFEST.to_text().encode()
    want, refused = parse_manifest(data.decode(), "/c/000007.json"), list[str]()
    for place in random.Random(1).sample(range(8 * len(data)), 3000):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        try:
            found = parse_manifest(bytes(flipped).decode(errors="replace"), "/c/000007.json")
        except StateError as error:
            refused.append(str(error))
        else:
            assert found == want, place
    assert len(refused) > 1000
    assert [text for text in refused if "/c/000007.json" not in text or "\n" in text] == []


def test_manifests_without_a_checksum_are_those_of_older_formats() -> None:
    text = MANIFEST.to_text()
    data = {**json.loads(text), "version": 3, "columns": {"a": {"/lake/a/": {"key": "int"}}}}
    del data["checksum"], data["inputs"], data["state"]["counts"]["0"][0][4]
    older = parse_manifest(json.dumps(data), "/c/000007.json")
    assert older.state["counts"]["0"] == (PIECE._replace(files=()),)
    assert older.inputs == {"a": {"/lake/a/": KnownInput(columns={"key": "int"})}}
    with pytest.raises(StateError, match=r"/c/000007\.json: the manifest is damaged"):
        parse_manifest(text.rpartition(",\n")[0] + "\n}", "/c/000007.json")
