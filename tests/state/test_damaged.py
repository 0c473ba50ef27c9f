"""Files of a store that were cut short or changed."""

from __future__ import annotations

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
    rows.commit()
    rows.close()
    for path in (tmp_path / "store").glob(what):
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
    with pytest.raises(TaskCorruptedError, match="is damaged"):
        open_map(engine, tmp_path / "store")


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
