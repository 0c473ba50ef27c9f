"""Files of a store that were cut short."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit.errors import TaskCorruptedError
from streamkit.state.maps import ENGINES, open_map


@pytest.mark.parametrize("engine", ENGINES)
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
