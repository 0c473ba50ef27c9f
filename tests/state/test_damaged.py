"""Files of a store that were cut short or changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from streamkit.errors import TaskCorruptedError
from streamkit.state.maps import open_map
from tests.requirements import EVERY_ENGINE


@pytest.mark.parametrize("engine", EVERY_ENGINE)
@pytest.mark.parametrize("what", ["CURRENT", "MANIFEST-*", "*"])
def test_a_damaged_store_is_told_from_one_that_cannot_be_used(engine: str, tmp_path: Path, what: str) -> None:
    rows = open_map(engine, tmp_path / "store")
    rows.put_many([(b"k%d" % number, b"v" * 20) for number in range(100)])
    rows.metadata = b"m"
    rows.commit()
    rows.close()
    for path in (tmp_path / "store").glob(what):
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
    said = outcome(engine, tmp_path / "store")
    # RocksDB takes a manifest that ends between two of its entries for an older one: the store has lost its metadata.
    assert "is damaged" in said or (engine, what, said) == ("rocksdb", "MANIFEST-*", "no metadata")


def outcome(engine: str, path: Path) -> str:
    try:
        opened = open_map(engine, path)
    except TaskCorruptedError as error:
        return str(error)
    found = opened.metadata
    opened.close()
    return "no metadata" if found is None else "as before"


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_a_log_that_was_cut_short_takes_the_metadata_with_it(engine: str, tmp_path: Path) -> None:
    """Rows and what is said of them are one batch: what is lost of one is lost of the other."""
    rows = open_map(engine, tmp_path / "store")
    for number in range(3):
        rows.metadata = b"m%d" % number
        rows.put(b"k", b"%d" % number * 200)
        rows.commit()
    # As a process leaves it that is killed: closing would write it to other files.
    shutil.copytree(tmp_path / "store", tmp_path / "killed")
    rows.close()
    (log,) = [path for path in (tmp_path / "killed").glob("*.log") if path.stat().st_size]
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 10)
    killed = open_map(engine, tmp_path / "killed")
    assert (killed.metadata, killed.get(b"k")) == (b"m1", b"1" * 200)
    killed.close()


@pytest.mark.parametrize("engine", EVERY_ENGINE[:1])
def test_leveldb_passes_over_no_damage_in_the_middle_of_its_log(engine: str, tmp_path: Path) -> None:
    rows = open_map(engine, tmp_path / "store")
    for number in range(3):
        rows.put(b"k%d" % number, b"v" * 200)
        rows.commit()
    shutil.copytree(tmp_path / "store", tmp_path / "killed")
    rows.close()
    (log,) = (tmp_path / "killed").glob("*.log")
    with log.open("r+b") as file:
        file.seek(log.stat().st_size // 2)
        file.write(b"????")
    with pytest.raises(TaskCorruptedError, match="is damaged"):
        open_map(engine, tmp_path / "killed")


@pytest.mark.parametrize("engine", EVERY_ENGINE)
@pytest.mark.parametrize("reverse", [False, True])
def test_damaged_rows_are_neither_read_nor_left_out(engine: str, reverse: bool, tmp_path: Path) -> None:
    rows = open_map(engine, tmp_path / "store")
    rows.put_many([(b"%04d" % number, b"value") for number in range(5000)])
    rows.commit()
    rows.close()
    open_map(engine, tmp_path / "store").close()  # what stood in the log of writes is in a table from now on
    (table,) = [path for path in (tmp_path / "store").iterdir() if path.suffix in (".ldb", ".sst")]
    content = bytearray(table.read_bytes())
    for place in range(0, len(content) // 2, 64):
        content[place] ^= 1
    table.write_bytes(content)
    rows = open_map(engine, tmp_path / "store")
    with pytest.raises(TaskCorruptedError, match="is damaged"):
        list(rows.range(None, None, reverse))
    with pytest.raises(TaskCorruptedError, match="is damaged"):
        rows.get(b"0007")
    rows.close()
