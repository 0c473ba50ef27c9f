"""A few histories of a simulated cluster, of which `make simulate` runs thousands, and whether they find a mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEEDS = 3


def simulate(*options: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *map(str, options)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_is_lost_or_doubled_whatever_the_order() -> None:
    done = simulate("--seeds", SEEDS, "--jobs", 1)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.startswith(f"{SEEDS} histories of ")


def test_a_seed_is_always_the_same_history() -> None:
    first, second = (simulate("--show", 3) for _ in range(2))
    assert first.stdout == second.stdout
    assert " fault: " in first.stdout


@pytest.mark.parametrize("mistake", ["output that is not sent before the commit"])
def test_a_mistake_is_found(mistake: str) -> None:
    done = simulate("--seeds", 10, "--jobs", 1, SIMULATION_MUTATION=mistake)
    assert done.returncode == 1, done.stdout
    assert "wrong, such as" in done.stdout
