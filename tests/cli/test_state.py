"""`streamkit state`: what the stores of a stopped application hold, and whether it is right."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from streamkit.state.directory import StateDirectory
from streamkit.state.engines.open_maps import DEFAULT_ENGINE, open_map
from streamkit.state.store_offsets import StoreOffsets, decode_offsets
from tests.cli.support import Done, streamkit

TOPOLOGY = """\
streamkit: 1
application: shop
config: {{bootstrap.servers: "embedded:{folder}/log", state.dir: "{folder}/state", processing.guarantee: {guarantee}}}
topics:
  orders: {{key: string, value: string, partitions: 2}}
  countries: {{key: string, value: string, partitions: 1}}
pipelines:
  orders:
    stream: orders
    steps: [group_by_key]
  counts:
    from: orders
    steps: [count: counts]
  per-minute:
    from: orders
    steps: [window: {{tumbling: 1m}}, count: {{store: per-minute}}]
  last:
    stream: orders
    steps: [to_table: {{store: {{name: last, versioned: 1h}}}}]
  countries:
    global_table: countries
    store: countries
"""
RECORDS = [{"key": f"k{number % 5}", "value": str(number), "timestamp": number * 1000} for number in range(200)]


@pytest.fixture(scope="module", params=["exactly_once_v2", "at_least_once"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a topology that has run, and its guarantee."""
    folder = tmp_path_factory.mktemp("shop")
    path = folder / "shop.yaml"
    path.write_text(TOPOLOGY.format(folder=folder, guarantee=request.param))
    assert streamkit("topics", "create", path).code == 0
    rows = "".join(json.dumps(record) + "\n" for record in RECORDS)
    assert streamkit("produce", path, "orders", stdin=rows).code == 0
    assert streamkit("produce", path, "countries", stdin='{"key": "de", "value": "Germany"}\n').code == 0
    assert streamkit("run", path, "--until-idle").code == 0
    return folder, request.param


@pytest.fixture
def shop(made: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of that folder."""
    shutil.copytree(made[0], tmp_path, dirs_exist_ok=True)
    (tmp_path / "shop.yaml").write_text(TOPOLOGY.format(folder=tmp_path, guarantee=made[1]))
    return tmp_path


def state(folder: Path, *options: object) -> tuple[Done, dict[tuple[str, str], dict]]:
    done = streamkit("state", folder / "state", "--format", "json", *options)
    return done, {(each["task"], each["store"]): each for each in json.loads(done.out or "[]")}


def store(folder: Path, task: str, name: str) -> Path:
    return folder / "state" / "shop" / task / DEFAULT_ENGINE / name


def test_rows_bytes_and_offsets_of_a_stopped_application(shop: Path) -> None:
    done, found = state(shop)
    assert (done.code, done.err) == (0, "")
    assert {place[1] for place in found} == {"counts", "per-minute", "last", "countries"}
    counts = [each for (_, name), each in found.items() if name == "counts"]
    assert sum(each["rows"] for each in counts) == 5
    assert [
        each for each in found.values() if not (each["bytes"] > 0 and each["committed_ms"] > 0 and not each["compared"])
    ] == []
    assert {each["changelog"] for each in counts} == {"shop-counts-changelog"}
    assert sum(each["offset"] for each in counts) >= 5
    assert found["global", "countries"]["offset"] == 1


def test_stores_of_all_instances_are_shown(shop: Path) -> None:
    before = state(shop)[1]
    other = shop / "state" / "instance-2" / "shop"
    other.mkdir(parents=True)
    moved = sorted((shop / "state" / "shop").glob("*_1"))
    for task in moved:
        task.rename(other / task.name)
    done, found = state(shop)
    assert done.code == 0
    assert found.keys() == before.keys()
    assert {task for (task, _), each in found.items() if each["instance"] == "instance-2"} == {
        each.name for each in moved
    }
    assert "instance-2/shop" in streamkit("state", shop / "state").out


def test_every_row_is_read_and_compared_with_the_changelog(shop: Path) -> None:
    done, found = state(shop, "--verify", "--topology", shop / "shop.yaml")
    assert done.code == 0, found
    assert [
        each for each in found.values() if not (each["counted"] and each["compared"] and each["problem"] is None)
    ] == []
    # A marker of a transaction may follow.
    assert [each for each in found.values() if each["end"] - each["offset"] not in (0, 1)] == []
    text = streamkit("state", shop / "state" / "shop", "--verify").out
    assert "all rows read" in text
    assert "as the changelog" not in text


@pytest.mark.parametrize("name", ["counts", "per-minute", "last"])
def test_a_row_that_the_changelog_does_not_have_is_found(shop: Path, name: str) -> None:
    task = next(place[0] for place, each in state(shop)[1].items() if place[1] == name and each["rows"])
    rows = open_map(DEFAULT_ENGINE, store(shop, task, name))
    key, value = next(rows.range(None, None))
    rows.put(key, value[:-1] + bytes([value[-1] ^ 1]))
    rows.commit()
    rows.close()
    assert state(shop, "--verify")[0].code == 0
    done, found = state(shop, "--verify", "--topology", shop / "shop.yaml")
    assert done.code == 1
    wrong = {place: each["problem"] for place, each in found.items() if each["problem"]}
    assert wrong == {(task, name): "has rows that differ from its changelog: 1 different"}


def test_stores_that_are_not_as_they_should_be(shop: Path) -> None:
    app = shop / "state" / "shop"
    (app / "0_0").rename(app / "0_7")
    current = store(shop, "0_1", "counts") / "CURRENT"
    current.unlink()
    rows = open_map(DEFAULT_ENGINE, store(shop, "0_1", "last"))
    offsets = decode_offsets(rows.metadata or b"")
    rows.metadata = StoreOffsets(offsets.owner, {1: 10_000}).encode()
    rows.commit()
    rows.close()
    done, found = state(shop, "--topology", shop / "shop.yaml")
    assert done.code == 1
    assert found["0_7", "counts"]["problem"] == "is of the partition 0, not 7"
    assert "is damaged: corruption: the file CURRENT is missing" in found["0_1", "counts"]["problem"]
    assert "goes up to offset 10000 of shop-last-changelog-1, which has 0 to" in found["0_1", "last"]["problem"]
    assert found["0_1", "per-minute"]["problem"] is None


def test_a_task_that_has_committed_nothing_is_as_it_should_be(shop: Path) -> None:
    path = store(shop, "0_2", "counts")
    path.parent.mkdir(parents=True)
    open_map(DEFAULT_ENGINE, path).close()
    done, found = state(shop)
    assert (done.code, found["0_2", "counts"]["problem"]) == (0, None)
    rows = open_map(DEFAULT_ENGINE, path)
    rows.put(b"k", b"v")
    rows.commit()
    rows.close()
    done, found = state(shop)
    assert done.code == 1
    assert found["0_2", "counts"]["problem"] == "does not record how much of its changelog it contains"


def test_a_copy_of_a_directory_in_use_shows(shop: Path) -> None:
    with_owner = StateDirectory(shop / "state", "shop")
    with_owner.claim("0_0")
    shutil.copytree(shop / "state", shop / "copy" / "state")
    done = streamkit("state", shop / "state")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "Another process is running on the state directory" in done.err
    with_owner.close()
    _, found = state(shop / "copy")
    assert {place[0] for place, each in found.items() if "was copied" in (each["problem"] or "")} == {"0_0"}


@pytest.mark.parametrize(("place", "words"), [("nothing", "is not a directory"), ("empty", "holds no stores")])
def test_a_folder_without_state(tmp_path: Path, place: str, words: str) -> None:
    (tmp_path / "empty").mkdir()
    done = streamkit("state", tmp_path / place)
    assert done.code == 2
    assert words in done.err


def test_a_run_leaves_files_for_their_owner_alone(made: tuple[Path, str]) -> None:
    folder, _ = made
    found = [path for name in ("state", "log") for path in (folder / name, *(folder / name).rglob("*"))]
    assert any(path.suffix in (".ldb", ".log", ".sst") for path in found), found
    wrong = {path: oct(path.stat().st_mode) for path in found if path.stat().st_mode & 0o077}
    assert wrong == {}


def test_a_run_and_a_look_refuse_state_behind_a_link(shop: Path) -> None:
    tasks = shop / "state" / "shop" / "0_0"
    tasks.rename(shop / "elsewhere")
    tasks.symlink_to(shop / "elsewhere")
    settings = ("--set", f"state.dir={shop / 'state'}", "--set", f"bootstrap.servers=embedded:{shop / 'log'}")
    run = streamkit("run", shop / "shop.yaml", "--until-idle", *settings)
    look = streamkit("state", shop / "state" / "shop")
    for done in (run, look):
        assert done.code == 1
        assert done.err.startswith(f"streamkit: {tasks} is a symbolic link, to {shop / 'elsewhere'}: "), done.err
        assert done.err.count("\n") == 1


HEADED = """\
streamkit: 1
application: shop
config: {{bootstrap.servers: "embedded:{folder}/log", state.dir: "{folder}/state", dsl.store.format: HEADERS, topology.optimization: all}}
topics: {{names: {{key: string, value: string, partitions: 1}}}}
pipelines: {{names: {{table: names, store: names}}}}
"""


def test_headers_that_only_a_restored_row_has_are_no_difference(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(HEADED.format(folder=tmp_path))
    assert streamkit("topics", "create", path).code == 0
    for name in ("before", "after"):
        rows = [{"key": key, "value": name, "headers": [["from", name]]} for key in ("both", name)]
        assert (
            streamkit("produce", path, stdin="".join(json.dumps({"topic": "names", **row}) + "\n" for row in rows)).code
            == 0
        )
        assert streamkit("run", path, "--until-idle").code == 0
        # The first rows are restored, with their headers. Those that the process reads itself have none.
        if name == "before":
            shutil.rmtree(store(tmp_path, "0_0", "names"))
    done, found = state(tmp_path, "--verify", "--topology", path)
    kept = found["0_0", "names"]
    assert (done.code, kept["rows"], kept["compared"], kept["problem"]) == (0, 3, True, None)
    rows = open_map(DEFAULT_ENGINE, store(tmp_path, "0_0", "names"))
    assert [row[0] >> 6 for _, row in rows.range(None, None)] == [0, 2, 0]
    rows.put(b"both", b"\0" * 8 + b"other")
    rows.commit()
    rows.close()
    done, found = state(tmp_path, "--verify", "--topology", path)
    assert (done.code, found["0_0", "names"]["problem"]) == (1, "has rows that differ from its changelog: 1 different")
