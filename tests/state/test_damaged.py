"""Files of a store that were cut short or changed."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamkit.errors import StateError, TaskCorruptedError
from streamkit.state.directory import MARK_FILE, Mark, read_mark, sealed, unsealed, write_mark
from streamkit.state.engines.open_maps import open_map
from tests.requirements import EVERY_ENGINE


@pytest.mark.parametrize("engine", EVERY_ENGINE)
@pytest.mark.parametrize("what", ["CURRENT", "MANIFEST-*", "*"])
def test_a_damaged_store_differs_from_one_that_cannot_be_used(engine: str, tmp_path: Path, what: str) -> None:
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


DAMAGES = ("missing", "empty", "half", "of another store")


def killed_store(engine: str, path: Path, tag: bytes, value: bytes) -> Path:
    """Return a store of three tables and a log, as a process leaves it that is killed; rows and metadata tell their batch."""
    for number in range(4):
        rows = open_map(engine, path)
        rows.metadata = tag + b"%d" % number
        rows.put_many([(b"k%05d" % key, tag + b"%d" % number + value) for key in range(number, 2000, 4)])
        rows.commit()
        if number == 3:
            shutil.copytree(path, path.with_name(f"{path.name}-killed"))
        rows.close()
    return path.with_name(f"{path.name}-killed")


def damage(file: Path, how: str, other: Path) -> None:
    data = file.read_bytes()
    if how == "missing":
        file.unlink()
    elif how == "of another store":
        file.write_bytes(other.read_bytes() if other.exists() else data)
    else:
        file.write_bytes(b"" if how == "empty" else data[: len(data) // 2])


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_no_damage_of_a_file_leaves_fewer_rows_than_the_metadata_has(engine: str, tmp_path: Path) -> None:
    """A store is damaged, or it is as of an earlier batch, or it names another owner."""
    first = killed_store(engine, tmp_path / "first", b"mine", b"v" * 20)
    # Of another length: LevelDB can't tell a table from one of the same size.
    second = killed_store(engine, tmp_path / "second", b"other", b"v" * 27)
    seen = set()
    for file in sorted(first.iterdir()):
        for how in DAMAGES:
            copy = tmp_path / "copy"
            shutil.copytree(first, copy)
            damage(copy / file.name, how, second / file.name)
            seen.add(what_is_left(engine, copy))
            shutil.rmtree(copy)
    assert seen == {"damaged", "of another", 3, 4}


def what_is_left(engine: str, path: Path) -> str | int:
    """Return how many batches a store has, all their rows included."""
    try:
        rows = open_map(engine, path)
    except TaskCorruptedError:
        return "damaged"
    try:
        found = list(rows.range(None, None))
        assert [rows.get(key) for key, _ in found[::97]] == [value for _, value in found[::97]]
    except TaskCorruptedError:
        return "damaged"
    finally:
        rows.close()
    metadata = rows.metadata or b""
    if not metadata.startswith(b"mine"):
        return "of another"
    batches = int(metadata[-1:]) + 1
    assert found == [(b"k%05d" % key, b"mine%d" % (key % 4) + b"v" * 20) for key in range(2000) if key % 4 < batches]
    return batches


FLIPS = 400


@pytest.mark.slow  # each flipped bit opens and reads a store
@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_a_flipped_bit_is_damage_or_changes_nothing_but_which_batch_is_the_last(engine: str, tmp_path: Path) -> None:
    store = killed_store(engine, tmp_path / "store", b"mine", b"v" * 20)
    draw, seen = random.Random(30), Counter[str | int]()
    # The text files `LOG` of both engines are for people.
    files = [file for file in sorted(store.iterdir()) if not file.name.startswith("LOG") and file.stat().st_size]
    # Tables are large: every second bit is in one of the small files.
    sizes = [file.stat().st_size for file in files]
    for number in range(FLIPS):
        (file,) = draw.choices(files, sizes if number % 2 else None)
        copy = tmp_path / "copy"
        shutil.copytree(store, copy)
        content = bytearray(file.read_bytes())
        bit = draw.randrange(len(content) * 8)
        content[bit // 8] ^= 1 << bit % 8
        (copy / file.name).write_bytes(content)
        seen[what_is_left(engine, copy)] += 1
        shutil.rmtree(copy)
    assert set(seen) <= {"damaged", *range(1, 5)}
    assert seen["damaged"] > FLIPS // 8


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


def flipped(content: bytes) -> Iterator[bytes]:
    """Yield the content with each of its bits flipped."""
    for bit in range(len(content) * 8):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


def test_a_flipped_bit_of_a_mark_is_reported_with_a_remedy_or_changes_nothing(tmp_path: Path) -> None:
    mark = Mark("rocksdb", 2, 1234567)
    write_mark(tmp_path, mark)
    said = set()
    for content in flipped((tmp_path / MARK_FILE).read_bytes()):
        (tmp_path / MARK_FILE).write_bytes(content)
        try:
            assert read_mark(tmp_path) == mark
        except StateError as error:
            said.add((str(error).partition("read: ")[0], str(error).rpartition("; ")[2]))
    assert said == {(f"{tmp_path / MARK_FILE} can't be ", f"delete {tmp_path} to restore it from its changelogs")}


def test_a_flipped_bit_of_sealed_fields_is_found_and_fields_without_a_seal_are_read(tmp_path: Path) -> None:
    fields = {"format": 1, "stores": {"näme": {"rows": [1, None, "x"]}}}
    assert unsealed(sealed(fields)) == unsealed(json.dumps(fields)) == fields
    for content in flipped(sealed(fields).encode()):
        try:
            found = unsealed(content.decode())
        except ValueError:
            continue
        # Space between fields was changed, or the name of the checksum.
        assert {name: found[name] for name in fields} == fields
