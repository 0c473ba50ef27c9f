"""Which records `consume` prints, and where it begins and ends, on the embedded log."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.consuming import TOPOLOGY, consumed, produced
from tests.cli.support import LIMIT_S, assert_one_clear_line, command, streamkit

PAGES = ("home", "shop", "home", "cart", "home", "shop")


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topology whose input has six records: at 0 s, 10 s, … on partitions 0 and 1 in turn."""
    folder = tmp_path_factory.mktemp("clicks")
    path = folder / "clicks.yaml"
    path.write_text(TOPOLOGY.format(state=folder / "state"))
    records = [
        {
            "key": f"u{n % 3}",
            "value": {"page": page, "n": n},
            "timestamp": n * 10_000,
            "partition": n % 2,
            "headers": [["source", "web" if n else "app"]],
        }
        for n, page in enumerate(PAGES)
    ]
    produced(path, "clicks", *records)
    return path


def numbers(path: Path, *options: object) -> list[int]:
    """The records that consume prints of the input, by their numbers, in the order of these."""
    return sorted(record["value"]["n"] for record in consumed(path, *options))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--offset", "earliest"], [0, 1, 2, 3, 4, 5]),
        (["--offset", "latest"], []),
        (["--offset", 2], [4, 5]),
        (["--offset", 9], []),
        (["--offset", -1], [4, 5]),
        (["--offset", -9], [0, 1, 2, 3, 4, 5]),
        (["--partition", 1], [1, 3, 5]),
        (["--partition", "0,1", "--offset", 1], [2, 3, 4, 5]),
        (["--partition", 0, "--partition", 1, "--offset", -2], [2, 3, 4, 5]),
        (["--from", 20_000], [2, 3, 4, 5]),
        (["--from", "20.5s"], None),
        (["--from", "PT20.5S"], [3, 4, 5]),
        (["--from", "1970-01-01T00:00:10Z", "--to", "1970-01-01T01:00:40+01:00"], [1, 2, 3]),
        (["--to", "30s"], [0, 1, 2]),
        (["--from", "-1h"], []),
        (["--to", "-1h", "--offset", 2], [4, 5]),
        (["--key", "u1"], [1, 4]),
        (["--key", "u9"], []),
        (["--where", "value.page == 'home' and offset > 0"], [2, 4]),
        (["--where", "key == 'u0' or partition == 1 and timestamp > 40000"], [0, 3, 5]),
        (["--where", "header('source') == 'app' and topic == 'clicks-in'"], [0]),
        (["--where", "is_large(value.n + 1) and now() > timestamp"], [5]),
        (["--where", "value.page == 'home'", "--key", "u2"], [2]),
    ],
    ids=lambda each: " ".join(map(str, each)) if isinstance(each, list) else "",
)
def test_options_choose_records(options: list, expected: list[int] | None, clicks: Path) -> None:
    if expected is None:
        done = streamkit("consume", clicks, "clicks", "--until-idle", *options)
        assert_one_clear_line(done, 2, "--from 20.5s", "milliseconds", "2025-01-31T08:00:00Z")
    else:
        assert numbers(clicks, "--until-idle", *options) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([0], []),
        ([2], [4, 5]),
        ([3], [3, 4, 5]),
        ([100], [0, 1, 2, 3, 4, 5]),
        ([2, "--partition", 0], [2, 4]),
        ([2, "--where", "value.page == 'home'"], [2, 4]),
        ([1, "--key", "u0"], [3]),
        ([2, "--to", "30s"], [1, 2]),
        ([2, "--from", "50s"], [5]),
    ],
    ids=lambda each: " ".join(map(str, each)),
)
def test_the_last_records_come_by_time(options: list, expected: list[int], clicks: Path) -> None:
    assert [record["value"]["n"] for record in consumed(clicks, "--tail", *options)] == expected


def test_the_last_records_that_are_wanted_may_lie_far_back(clicks: Path, tmp_path: Path) -> None:
    path = tmp_path / "far.yaml"
    path.write_text(clicks.read_text().replace(str(clicks.parent), str(tmp_path)))
    records = [{"key": n, "value": "early" if n < 3 else "late", "timestamp": n} for n in range(6000)]
    produced(path, "numbers", *records)
    early = consumed(path, "--tail", 2, "--where", "value == 'early'", topic="numbers")
    assert [record["key"] for record in early] == [1, 2]
    last = consumed(path, "--tail", 2500, topic="numbers")
    assert consumed(path, "--tail", 2**63 - 1, topic="numbers")[-2500:] == last
    refused = streamkit("consume", path, "numbers", "--tail", 10**20)
    assert (refused.code, "9223372036854775807" in refused.err) == (2, True)
    assert [record["key"] for record in last] == list(range(3500, 6000))


def test_late_records_count_by_their_time(clicks: Path, tmp_path: Path) -> None:
    path = tmp_path / "late.yaml"
    path.write_text(clicks.read_text().replace(str(clicks.parent), str(tmp_path)))
    times = {0: [50, 10, 40], 1: [30, 60, 20]}
    for partition, values in times.items():
        places = [{"value": {"n": each}, "timestamp": each, "partition": partition} for each in values]
        produced(path, "clicks", *places)
    found = consumed(path, "--tail", 3, "--with-offsets")
    assert [(record["timestamp"], record["partition"], record["offset"]) for record in found] == [
        (40, 0, 2),
        (50, 0, 0),
        (60, 1, 1),
    ]
    assert numbers(path, "--from", 40, "--to", 60) == [40, 50]


def test_offsets_are_an_option(clicks: Path) -> None:
    with_offsets = consumed(clicks, "--until-idle", "--with-offsets", "--partition", 1)
    assert [record.pop("offset") for record in with_offsets] == [0, 1, 2]
    assert consumed(clicks, "--until-idle", "--partition", 1) == with_offsets


def test_max_counts_what_is_wanted(clicks: Path) -> None:
    found = consumed(clicks, "--max", 2, "--where", "value.page == 'home'", "--partition", 0)
    assert [record["value"]["n"] for record in found] == [0, 2]


@pytest.mark.parametrize(
    ("topic", "key", "expected"),
    [
        ("pairs", '{"b": 2, "a": 1}', [1]),
        ("pairs", "[1, 2]", [2]),
        ("pairs", "text", [3]),
        ("pairs", "true", [4]),
        ("pairs", "1", [5]),
        ("numbers", "7", ["seven"]),
        ("users", "ada", ["one", "two"]),
        ("users", '{"key": "ada", "start": 60000}', ["two"]),
        ("users", '{"key": "ada", "start": 60000, "end": 60001}', []),
    ],
)
def test_keys_are_compared_decoded(topic: str, key: str, expected: list, clicks: Path, tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(clicks.read_text().replace(str(clicks.parent), str(tmp_path)))
    keys = [{"a": 1, "b": 2}, [1, 2], "text", True, 1]
    produced(path, "pairs", *({"key": each, "value": n} for n, each in enumerate(keys, 1)), {"value": 0})
    produced(path, "numbers", {"key": 7, "value": "seven"}, {"key": 8, "value": "eight"})
    windows = [("ada", 0, "one"), ("ada", 60_000, "two"), ("bob", 0, "three")]
    produced(path, "users", *({"key": {"key": k, "start": start}, "value": v} for k, start, v in windows))
    found = consumed(path, "--until-idle", "--key", key, topic=topic)
    assert [record["value"] for record in found] == expected


def test_a_key_that_the_serde_does_not_take(clicks: Path) -> None:
    assert_one_clear_line(streamkit("consume", clicks, "numbers", "--key", "x"), 2, "--key x", "long")


@pytest.mark.parametrize(
    ("expression", "place", "words"),
    [
        ("value.n >", "1:10", "ends too early"),
        ("vale.n > 1", "1:1", "did you mean 'value'?"),
        ("value.n > 1 and keys == 2", "1:17", "did you mean 'key'?"),
        ("open('x')", "1:1", "open"),
    ],
)
def test_mistakes_of_an_expression_have_a_column(expression: str, place: str, words: str, clicks: Path) -> None:
    done = streamkit("consume", clicks, "clicks", "--until-idle", "--where", expression)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"streamkit: --where:{place}: ")
    assert words in done.err


def test_a_field_that_no_key_has_is_a_mistake(clicks: Path) -> None:
    done = streamkit("consume", clicks, "users", "--until-idle", "--where", "key.begin > 1")
    assert_one_clear_line(done, 2, "--where:1:5: ", "no field 'begin'")


def test_records_for_which_an_expression_fails_are_counted(clicks: Path) -> None:
    done = streamkit(
        "consume", clicks, "clicks", "--until-idle", "--where", "value.page.n > 1 if value.n == 3 else True"
    )
    assert (done.code, len(done.out.splitlines())) == (0, 5)
    assert "--where could not be evaluated for 1 of the records" in done.err


@pytest.mark.parametrize(
    "options",
    [
        ["--offset", "1", "--from-end"],
        ["--offset", "1", "--from", "1"],
        ["--offset", "1", "--tail", "1"],
        ["--from-end", "--from", "1"],
        ["--from-end", "--to", "1"],
        ["--from-end", "--tail", "0"],
        ["--limit", "1", "--tail", "1"],
        ["--follow", "--until-idle"],
        ["--lines", "--format", "table"],
        ["--lines", "--with-offsets"],
        ["--from", "2s", "--to", "1000"],
    ],
    ids=" ".join,
)
def test_options_that_exclude_each_other(options: list[str], clicks: Path) -> None:
    names = [option for option in options if option.startswith("--")]
    assert_one_clear_line(streamkit("consume", clicks, "clicks", *options), 2, *names)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--partition", "2"], ["--partition 2", "clicks-in", "2 partitions"]),
        (["--partition", "one"], ["--partition one", "number"]),
        (["--offset", "first"], ["--offset first", "earliest", "latest", "-N"]),
    ],
)
def test_places_that_do_not_exist(options: list[str], words: list[str], clicks: Path) -> None:
    assert_one_clear_line(streamkit("consume", clicks, "clicks", "--until-idle", *options), 2, *words)


def test_follow_continues_after_the_last_records(clicks: Path, tmp_path: Path) -> None:
    path = tmp_path / "followed.yaml"
    path.write_text(clicks.read_text().replace(str(clicks.parent), str(tmp_path)))
    produced(path, "clicks", *({"value": {"n": n}, "partition": 0} for n in range(3)))
    line = command("consume", path, "clicks", "--tail", 1, "--follow", "--where", "value.n != 3")
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["value"] == {"n": 2}
    produced(path, "clicks", {"value": {"n": 3}}, {"value": {"n": 4}})
    assert json.loads(process.stdout.readline())["value"] == {"n": 4}
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT_S) == 0
    process.stdout.close()


def test_reading_creates_nothing(clicks: Path, tmp_path: Path) -> None:
    path = tmp_path / "nothing.yaml"
    path.write_text(clicks.read_text().replace(str(clicks.parent), str(tmp_path)))
    assert_one_clear_line(streamkit("consume", path, "clicks", "--until-idle"), 1, tmp_path / "state", "no log")
    assert not (tmp_path / "state").exists()
    produced(path, "numbers", {"value": "a"})
    before = streamkit("topics", "list", path).out
    done = streamkit("consume", path, "pairs", "--until-idle")
    assert (done.code, done.out) == (0, "")
    assert "pairs does not exist" in done.err
    assert_one_clear_line(streamkit("consume", path, "counts-changelog", "--tail", 1), 1, "clicks-counts-changelog")
    assert streamkit("topics", "list", path).out == before


def test_a_reader_waits_for_a_topic_that_comes_later(clicks: Path, tmp_path: Path) -> None:
    path = tmp_path / "later.yaml"
    path.write_text(clicks.read_text().replace(str(clicks.parent), str(tmp_path)))
    process = subprocess.Popen(
        command("consume", path, "numbers", "--max", 1, "--lines"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "waiting" in process.stderr.readline()
    produced(path, "numbers", {"value": "a"})
    out, _ = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (0, "a\n")


def test_records_that_are_deleted_before_they_are_read_are_reported_as_retention(tmp_path: Path) -> None:
    from streamkit.plan import load
    from streamkit.record import TopicPartition
    from streamkit.runtime.operations.opening import open_log

    path = tmp_path / "copy.yaml"
    path.write_text(
        f"streamkit: 1\napplication: copy\nconfig: {{state.dir: {tmp_path / 'state'}}}\n"
        "topics: {in: {value: string, partitions: 1}, out: {value: string, partitions: 1}}\n"
        "pipelines:\n  p: {stream: in, to: out}\n"
    )
    produced(path, "in", {"value": "a"})
    assert streamkit("run", path, "--until-idle").code == 0
    produced(path, "in", {"value": "b"}, {"value": "c"}, {"value": "d"})
    with closing(open_log(load(path))) as log, closing(log.admin()) as admin:
        admin.delete_records({TopicPartition("in", 0): 3})
    done = streamkit("run", path, "--until-idle")
    assert (
        "in-0: the records from offset 1 to 2 were deleted before they were read, by the topic's retention (retention.ms, "
        "retention.bytes) or on request (delete-records); continuing from the beginning"
    ) in done.err
    assert [record["value"] for record in consumed(path, "--until-idle", topic="out")] == ["a", "d"]
