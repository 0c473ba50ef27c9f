"""What a process takes, as the system sees it, and whether it grows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import mean


def resident_kb(pid: int) -> int:
    """Return the resident set in kB (VmRSS)."""
    return _fields(Path(f"/proc/{pid}/status"))["VmRSS"]


def anonymous_kb(pid: int) -> int:
    """Return what of the resident set is no file's, in kB: stores map their files."""
    return _fields(Path(f"/proc/{pid}/smaps_rollup"))["Anonymous"]


def open_files(pid: int) -> int:
    """Return how many descriptors are open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def cpu_seconds(pid: int) -> float:
    """Return the processor time taken so far."""
    numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def size_kb(folder: Path) -> int:
    """Return what the files below a folder take on disk, in kB; files may go meanwhile."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(where, name)).st_blocks
            except FileNotFoundError:
                continue
    return total // 2


def slope(values: Sequence[float]) -> tuple[float, float]:
    """Return how much a series grows a step, by least squares, and the standard error of that.

    >>> slope([1, 3, 5, 7])
    (2.0, 0.0)
    """
    count = len(values)
    if count < 3:
        raise ValueError("a slope and its error need three values")
    middle, level = (count - 1) / 2, mean(values)
    spread = sum((at - middle) ** 2 for at in range(count))
    growth = sum((at - middle) * (value - level) for at, value in enumerate(values)) / spread
    rest = sum((value - level - growth * (at - middle)) ** 2 for at, value in enumerate(values))
    return growth, (rest / (count - 2) / spread) ** 0.5


def is_flat(values: Sequence[float], tolerance: float) -> bool:
    """Whether a series grows by no more than `tolerance` a step, as far as its noise lets one tell (two standard errors).

    >>> is_flat([5, 6, 5, 6, 5, 6], 0.1), is_flat([5, 6, 7, 8, 9, 10], 0.1)
    (True, False)
    """
    growth, error = slope(values)
    return growth - 2 * error <= tolerance


def _fields(file: Path) -> dict[str, int]:
    lines = (line.partition(":") for line in file.read_text().splitlines())
    return {name: int(rest.split()[0]) for name, _, rest in lines if rest.strip().endswith("kB")}
