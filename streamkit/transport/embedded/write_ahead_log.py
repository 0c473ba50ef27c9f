"""Checks SQLite's write-ahead log after the end of a process: SQLite ends at a damaged page, and drops what follows in silence.

The file has a header of 32 bytes and frames of 24 bytes and a page, each with the checksum of all before it; a frame that ends a
transaction has the size of the database (https://www.sqlite.org/fileformat2.html#walformat). Its index, in a file beside it, has the
number of frames that were written; a process that is killed leaves it as it was.
"""

from __future__ import annotations

import logging
import struct
import sys
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime, time
from typing import NamedTuple

from streamkit.errors import DamagedLogError

log = logging.getLogger(__name__)

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_INDEX = struct.Struct("=3I2BH8I")
_BACKFILLED = 96
"""Where the index has the number of frames that the database has too."""
_MASK = 0xFFFFFFFF


class _Index(NamedTuple):
    frames: int
    backfilled: int
    salts: tuple[int, int]


def check_write_ahead_log(file: Path) -> None:
    """Raise DamagedLogError if a transaction in the write-ahead log of a database cannot be read; no process may have it open.

    After a start of the machine the last transactions may be incomplete: a warning tells it.
    """
    path = file.with_name(f"{file.name}-wal")
    try:
        data = path.read_bytes()
        written = path.stat().st_mtime
    except FileNotFoundError:
        return
    if len(data) <= _HEADER.size:
        return
    index = _read_index(file.with_name(f"{file.name}-shm"))
    size, complete = _complete_frames(data)
    expected = _expected_frames(data, size, complete, index)
    if complete >= expected:
        return
    place = _HEADER.size + complete * size if size else 0
    text = f"the write-ahead log {path} is damaged after byte {place}: the transactions from there on cannot be read"
    backfilled = 0 if index is None else index.backfilled
    if size and complete >= backfilled and written < time() - clock_gettime(CLOCK_BOOTTIME):
        log.warning("%s; the machine has started since they were written, and the log goes on without them", text)
        return
    way_out = f", or go on without them: truncate -s {place} {path}" if index and complete >= backfilled else ""
    raise DamagedLogError(f"{text}; restore {file.parent} from a copy{way_out}")


def _complete_frames(data: bytes) -> tuple[int, int]:
    """Return the size of a frame, and the number of frames up to the end of the last transaction that SQLite reads."""
    magic, version, page, _, *salts, first, second = _HEADER.unpack_from(data)
    order = ">" if magic & 1 else "<"
    if magic | 1 != 0x377F0683 or version != 3_007_000 or _sums(data[:24], order, 0, 0) != (first, second):
        return 0, 0
    size = _FRAME.size + (65_536 if page == 1 else page)
    complete, sums = 0, (first, second)
    for number, start in enumerate(range(_HEADER.size, len(data) - size + 1, size), 1):
        page_number, commit, salt1, salt2, one, two = _FRAME.unpack_from(data, start)
        if [salt1, salt2] != salts or not page_number:
            break
        sums = _sums(data[start : start + 8] + data[start + _FRAME.size : start + size], order, *sums)
        if sums != (one, two):
            break
        if commit:
            complete = number
    return size, complete


def _sums(data: bytes, order: str, first: int, second: int) -> tuple[int, int]:
    for one, two in struct.iter_unpack(f"{order}II", data):
        first = (first + one + second) & _MASK
        second = (second + two + first) & _MASK
    return first, second


def _expected_frames(data: bytes, size: int, complete: int, index: _Index | None) -> int:
    """Return how many frames were committed: by the index, or by the frames themselves."""
    if not size:
        return 1 if index is None else index.frames
    salts = _HEADER.unpack_from(data)[4:6]
    if index is not None and (index.salts == salts or not index.frames):
        return index.frames
    last = complete
    for number, start in enumerate(range(_HEADER.size, len(data) - size + 1, size), 1):
        _, commit, *found, _, _ = _FRAME.unpack_from(data, start)
        # Frames of an earlier use of the file have another random number as their second salt.
        changed = sum((one ^ two).bit_count() for one, two in zip(found, salts, strict=True))
        if commit and changed <= 2:
            last = number
    return last


def _read_index(path: Path) -> _Index | None:
    """Return what the index of the write-ahead log has; None if it is missing or incomplete."""
    try:
        data = path.read_bytes()[: _BACKFILLED + 4]
    except FileNotFoundError:
        return None
    if len(data) < _BACKFILLED + 4 or data[:48] != data[48:96]:
        return None
    order = "<" if sys.byteorder == "little" else ">"
    _, _, _, _, _, _, frames, _, _, _, _, _, first, second = _INDEX.unpack_from(data)
    if _sums(data[:40], order, 0, 0) != (first, second):
        return None
    # The salts have the byte order of the file.
    salts = struct.unpack_from(">2I", data, 32)
    return _Index(frames, struct.unpack_from("=I", data, _BACKFILLED)[0], salts)
