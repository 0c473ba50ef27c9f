"""A few histories of a simulated cluster, of which `make simulate` runs thousands, and whether they find a mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutations import MUTATIONS, changes

ALL_CHANGES = [change for name in MUTATIONS for change in changes(name)]
ROOT = Path(__file__).parents[2]
SEEDS = 500
FIRST_SEEDS = range(1, 1000, SEEDS)


def simulate(*options: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *map(str, options)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("first", FIRST_SEEDS)
def test_nothing_is_lost_or_doubled_whatever_the_order(first: int) -> None:
    done = simulate("--seeds", SEEDS, "--first", first, "--jobs", 1)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.startswith(f"{SEEDS} histories of ")


def test_nothing_is_lost_or_doubled_on_the_embedded_log() -> None:
    done = simulate("--seeds", 5, "--jobs", 1, "--embedded")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.startswith("5 histories of ")


@pytest.mark.parametrize("log", ["", "--embedded"])
def test_a_seed_is_always_the_same_history(log: str) -> None:
    first, second = (simulate("--show", 3, *filter(None, [log])) for _ in range(2))
    assert first.stdout == second.stdout
    assert " fault: " in first.stdout


def test_each_mistake_changes_the_text_of_a_module() -> None:
    texts = {change.module: (ROOT / f"{change.module.replace('.', '/')}.py").read_text() for change in ALL_CHANGES}
    absent = [change for change in ALL_CHANGES if texts[change.module].count(change.text) != 1]
    assert not absent, "the text has changed, so that the mistake can't be put in"


@pytest.mark.parametrize(
    "mistake",
    ["offsets without the member's generation", "a store is not restored", "output that is not sent before the commit"],
)
def test_a_mistake_is_found(mistake: str) -> None:
    done = simulate("--seeds", 10, "--stop", "--jobs", 1, SIMULATION_MUTATION=mistake)
    assert done.returncode == 1, done.stdout
    assert "wrong, such as" in done.stdout


@pytest.mark.parametrize(
    ("defect", "log"),
    [
        ("a fenced producer is kept", ""),
        ("a checkpoint has the offset -1", ""),
        ("a transaction that hangs is not ended", ""),
        ("positions are lost in one poll", "--embedded"),
    ],
)
def test_a_defect_that_was_found_by_luck_is_found_by_a_seed(defect: str, log: str) -> None:
    """By one of the first ones: which one changes with each step of the product."""
    done = simulate("--seeds", 100, "--stop", "--jobs", 1, *filter(None, [log]), SIMULATION_MUTATION=defect)
    assert done.returncode == 1, done.stdout
    assert done.stdout.startswith("seed ")


def test_a_failure_is_shown_with_few_faults() -> None:
    done = simulate("--show", 4, SIMULATION_MUTATION="a checkpoint has the offset -1")
    assert done.returncode == 1, done.stdout
    assert " fault: all the time: nothing\n" in done.stdout
    assert " broker: p1-member-" in done.stdout


def test_a_history_shows_what_is_repeated_three_times() -> None:
    script = """
from tests.simulation.__main__ import folded

again = [f"{turn} p1: fenced" for turn in range(1_005)]
print(*folded([*again, "2 broker: moved", "3 p1: fenced"]), sep="\\n")
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    assert done.stdout.splitlines() == [
        *(f"{turn} p1: fenced" for turn in range(3)),
        f"{'':9} (1,002 events that are shown 3 times above)",
        "2 broker: moved",
        f"{'':9} (1 events that are shown 3 times above)",
    ]


def test_a_loss_of_power_leaves_what_was_synced(tmp_path: Path) -> None:
    script = f"""
import os
from pathlib import Path
from random import Random
from tests.simulation.files import install
from streamkit.state.directory import write_atomically
from streamkit.state.engines.open_maps import open_map

disk, folder = install(), Path({str(tmp_path)!r})
write_atomically(folder / "safe", "old")
store = open_map("rocksdb", folder / "store")
store.put(b"k", b"committed")
store.commit()
store.put(b"k", b"later")
left = set()
for seed in range(60):
    (folder / "safe").write_text("new text", encoding="utf-8")
    (folder / "loose").write_text("loose", encoding="utf-8")
    disk.lose_power(folder, Random(seed))
    left.add(((folder / "safe").read_text(encoding="utf-8"), (folder / "loose").exists()))
    write_atomically(folder / "safe", "old")
assert {{present for _, present in left}} == {{False, True}}, left
assert {{"new text"[:size] for size in range(9)}} == {{text for text, _ in left}}, left
if (folder / "store").exists():
    assert open_map("rocksdb", folder / "store").get(b"k") == b"committed"
print("as synced")
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("as synced\n", "")
