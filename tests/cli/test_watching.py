"""status, lag and query: against a running application, and against the log alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamkit.transport.embedded import EmbeddedTransport
from streamkit_cli.commands.run import shifted
from tests.cli.support import streamkit
from tests.http.support import SHOP, USERS, processed, served, write_shop


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Iterator[tuple[str, Path]]:
    """The URL of a running application, and a file that names its log and its address."""
    folder = tmp_path_factory.mktemp("shop")
    log = EmbeddedTransport(folder / "log")
    write_shop(log)
    with served(folder, log) as (address, _):
        processed(address, 3 * len(USERS))
        file = folder / "here.yaml"
        config = f"config:\n  application.server: {address}\n  bootstrap.servers: embedded:{folder / 'log'}"
        file.write_text(SHOP.replace("config:\n  bootstrap.servers: embedded", config))
        yield f"http://{address}", file
    log.close()


def rows(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("at", [0, 1], ids=["url", "file"])
def test_query_by_key(shop, at):
    done = streamkit("query", shop[at], "counts", "user-07")
    assert (done.code, done.err) == (0, "")
    (row,) = rows(done.out)
    assert (row["key"], row["value"]) == ("user-07", 3)


def test_query_pages_through_everything_and_stops_at_the_limit(shop):
    assert [row["key"] for row in rows(streamkit("query", shop[0], "counts").out)] == USERS
    limited = rows(streamkit("query", shop[0], "counts", "--limit", 3, "--reverse").out)
    assert [row["key"] for row in limited] == USERS[:-4:-1]
    between = rows(streamkit("query", shop[0], "counts", "--range", "user-02", "user-04").out)
    assert [row["key"] for row in between] == USERS[2:5]
    windows = rows(streamkit("query", shop[0], "per-window", "user-01", "--from", 1).out)
    assert [(row["key"]["start"], row["value"]) for row in windows] == [(30_000, 1)]
    assert [row["value"] for row in rows(streamkit("query", shop[0], "prices", "apple", "--versions").out)] == [
        30,
        20,
        10,
    ]
    assert rows(streamkit("query", shop[0], "prices", "apple", "--as-of", 15).out)[0]["value"] == 10


def test_query_takes_times_and_prints_a_table(shop):
    epoch = "1970-01-01T00:00:00.015Z"
    assert rows(streamkit("query", shop[0], "prices", "apple", "--as-of", epoch).out)[0]["value"] == 10
    since = streamkit("query", shop[0], "per-window", "user-01", "--from", "30s", "--format", "text").out.splitlines()
    assert since[0].split()[:2] == ["KEY", "VALUE"]
    assert [line.split()[1] for line in since[1:] if '"start":30000' in line] == ["1"]
    assert len(since) == 2
    assert streamkit("query", shop[0], "per-window", "user-01", "--from", "-1h").out == ""
    done = streamkit("query", shop[0], "per-window", "--from", "noon")
    assert (done.code, done.out) == (2, "")
    assert "--from noon: expected milliseconds, a duration" in done.err
    listed = streamkit("query", shop[0], "--format", "text").out.splitlines()
    assert listed[0].startswith("NAME")
    assert any(line.startswith("counts ") for line in listed)


def test_query_reports_what_is_wrong(shop, tmp_path):
    for arguments, code, text in (
        ((shop[0], "counts", "nobody"), 1, "store counts has no key nobody"),
        ((shop[0], "cuonts"), 1, "did you mean 'counts'?"),
        ((shop[0], "counts", "a", "--prefix", "b"), 2, "exclude each other"),
        ((shop[0], "counts", "--from", 5), 2, "store counts has none"),
        (("http://127.0.0.1:1", "counts"), 1, "no application answers at http://127.0.0.1:1: Connection refused"),
        ((shop[0], "counts", "--set", "a=b"), 2, "belong to a topology file"),
    ):
        done = streamkit("query", *arguments)
        assert (done.code, done.out) == (code, "")
        assert text in done.err
        assert len(done.err.splitlines()) == 1
    file = tmp_path / "topology.yaml"
    file.write_text(SHOP)
    assert "does not set application.server" in streamkit("query", file, "counts").err


def test_status_shows_instances_threads_and_tasks(shop):
    done = streamkit("status", shop[1])
    assert (done.code, done.err) == (0, "")
    assert "RUNNING" in done.out
    assert "StreamThread-2" in done.out
    (instance,) = json.loads(streamkit("status", shop[0], "--format", "json").out)["instances"]
    assert {task["id"] for thread in instance["threads"] for task in thread["tasks"]} >= {"0_0", "0_1"}


def test_status_shows_the_milliseconds_of_each_stage(shop, tmp_path):
    lines = streamkit("status", shop[1], "--latency").out.splitlines()
    found = {line.split()[1] for line in lines if line.startswith("StreamThread-")}
    assert found >= {"fetch", "queue", "process", "send"}
    assert any(line.split()[:2] == ["TASK", "NODE"] for line in lines)
    file = tmp_path / "topology.yaml"
    file.write_text(SHOP)
    done = streamkit("status", file, "--latency")
    assert (done.code, done.out) == (2, "")
    assert "the file does not set application.server" in done.err


def test_lag_asks_the_log(shop, tmp_path):
    found = json.loads(streamkit("lag", shop[1], "--format", "json").out)
    assert (found["application"], len(found["members"])) == ("shop", 1)
    assert {each["topic"] for each in found["partitions"]} == {"orders", "prices", "shop-by-user-repartition"}
    file = tmp_path / "topology.yaml"
    file.write_text(
        SHOP.replace("application: shop", "application: other").replace(
            "bootstrap.servers: embedded", f"bootstrap.servers: embedded:{shop[1].parent / 'log'}"
        )
    )
    done = streamkit("lag", file, "--max", 10)
    assert done.code == 1
    assert "missing topics: other-by-user-repartition" in done.out
    assert "streamkit: the lag is 63, more than 10" in done.err
    assert streamkit("status", file).out.startswith("other: 0 active members, lag 63")


def test_run_reports_in_one_line_why_it_can_not_serve(shop, tmp_path):
    empty = tmp_path / "token"
    empty.write_text("\n")
    taken = shop[0].removeprefix("http://")
    for arguments, code, text in (
        (("--http", taken), 1, f"--http: port {taken.rpartition(':')[2]} on 127.0.0.1 is in use by another process"),
        (("--http", "here"), 2, "--http here: expected HOST:PORT"),
        (("--http", "127.0.0.1:0", "--http-token-file", empty), 1, "is empty"),
        (("--http", "127.0.0.1:0", "--http-token-file", tmp_path / "none"), 1, "No such file or directory"),
        (("--http-token-file", empty), 2, "--http-token-file needs --http"),
    ):
        done = streamkit("run", shop[1], "--set", f"state.dir={tmp_path / 'state'}", *arguments)
        assert (done.code, done.out) == (code, "")
        assert text in done.err
        assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "state").exists()


def test_each_of_several_instances_has_a_port_of_its_own():
    arguments = ["run", "--http", "127.0.0.1:8080", "--http=:0", "--until-idle"]
    assert shifted(arguments, 1) == arguments
    assert shifted(arguments, 3) == ["run", "--http", "127.0.0.1:8082", "--http=:0", "--until-idle"]
