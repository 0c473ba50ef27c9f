"""Job files: the same options as on the command line, and every mistake at its place."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import TopologyError
from streamkit.plan import load
from streamkit.runtime.spark.job_options import (
    JSON_LINES,
    PARQUET,
    REST,
    TABLE,
    Columns,
    JobOptions,
    Layout,
    Place,
    Range,
    parse_place,
)
from streamkit.runtime.spark.spark_session import Cluster
from streamkit.runtime.spark.submission.job_file import JobFile, is_job_file, is_job_text, load_job
from tests.cli.support import streamkit
from tests.spark.support import read_lines, write_lines

TOPOLOGY = """\
streamkit: 1
application: ${NAME:-job}
topics:
  orders: {key: string, value: json, partitions: 1}
  users: {key: string, value: json, partitions: 1}
  out: {key: string, value: json}
  copies: {key: string, value: json}
pipelines: {copy: {stream: orders, to: out}, users: {stream: users, to: copies}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a topology and inputs."""
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    (tmp_path / "lake").mkdir()
    for name in ("a", "b"):
        write_lines(tmp_path / f"lake/{name}.jsonl", [{"key": name, "value": {"n": 1}, "timestamp": 1}])
    return tmp_path


def job(folder: Path, text: str, **variables: str) -> JobFile:
    """The job of a text."""
    path = folder / "job.yaml"
    path.write_text(text)
    return load_job(str(path), lambda topology, settings: load(topology, variables, settings), variables)


def test_every_key(folder: Path) -> None:
    found = job(
        folder,
        """\
topology: topology.yaml
description: All of it
set: {num.standby.replicas: 1}
inputs:
  orders:
    - path: lake/a.jsonl
      key: user_id
      value: [amount, item]
      headers: {source: "'lake'", run: 7}
      timestamp: 0
      where: dt >= '2026-01-01'
      options: {multiLine: true, encoding: UTF-8}
    - {table: lake.db.orders, order: n, value: {total: amount * 2}}
    - lake/b.jsonl
    - lake.db.more
  users:
outputs:
  out: {path: out, format: parquet, value: {n: "decimal(10,2)", at: timestamp}, key: string}
  "*": s3a://bucket/rest
  copies:
checkpoint: state
emit: updates
engine: python
from: -7d
until: 1700000000000
on_data_loss: warn
shadow: -again
parallelism: 1
master: local[${CORES:-2}]
spark: {spark.ui.enabled: false, spark.sql.shuffle.partitions: 8}
py_files: more.py
archives: [env.tar.gz#environment]
files: [given.txt]
""",
        CORES="4",
    )
    lake = str(folder / "lake")
    assert found.options == JobOptions(
        inputs={
            "orders": (
                Place(
                    f"{lake}/a.jsonl",
                    JSON_LINES,
                    None,
                    Columns(
                        "user_id",
                        ("amount", "item"),
                        "0",
                        {"source": "'lake'", "run": "7"},
                        where="dt >= '2026-01-01'",
                    ),
                    {"multiLine": "true", "encoding": "UTF-8"},
                ),
                Place("lake.db.orders", TABLE, "n", Columns(value={"total": "amount * 2"})),
                Place(f"{lake}/b.jsonl", JSON_LINES),
                Place("lake.db.more", TABLE),
            )
        },
        outputs={
            "out": Place(str(folder / "out"), PARQUET, layout=Layout(False, "string", "n decimal(10,2),at timestamp")),
            REST: Place("s3a://bucket/rest", JSON_LINES),
            "copies": None,
        },
        emit="updates",
        engine="python",
        range=Range("-7d", "1700000000000", True),
        shadow="-again",
        checkpoint=str(folder / "state"),
    )
    assert found.cluster == Cluster(
        "local[4]",
        {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "8"},
        [str(folder / "more.py")],
        [str(folder / "env.tar.gz#environment")],
        files=[str(folder / "given.txt")],
    )
    assert found.plan.config["num.standby.replicas"] == 1


def test_a_place_is_that_of_the_command_line(folder: Path) -> None:
    path = folder / "lake/a.jsonl"
    found = job(
        folder,
        "topology: topology.yaml\ninputs:\n  orders: {path: lake/a.jsonl, key: user, value: '*', timestamp: ts, order: n, "
        "format: csv, options: {sep: ';'}}\n",
    )
    _, place = parse_place(f"orders={path},key=user,value=*,timestamp=ts,order=n,format=csv,options.sep=;", "--input")
    assert found.options.inputs == {"orders": (place,)}


MISTAKES = """\
topology: topology.yaml
set: {num.standby.replica: 1}
inputs:
  order: lake
  orders:
    - {path: lake/a.jsonl, kye: user, value: [], where: {a: b}}
    - {path: lake/a.jsonl, table: a.b.c}
    - {path: lake/c.jsonl}
    - {path: lake/a.jsonl, key: k, options: {mode: PERMISSIVE}}
  out: lake
outputs:
  out: {path: x, columns: raw}
  orders: y
emit: all
from: noon
parallelism: 0
overwrite: 1
chekpoint: state
compare: [ot]
"""


def test_every_mistake_at_once(folder: Path) -> None:
    with pytest.raises(TopologyError) as caught:
        job(folder, MISTAKES.replace("set: {num.standby.replica: 1}\n", "set: {}\n"))
    lines = [str(problem).removeprefix(f"{folder}/job.yaml:") for problem in caught.value.problems]
    assert [line.split(": ")[0] for line in lines] == [
        "4:3", "6:28", "6:46", "6:57", "7:7", "8:14", "9:45", "10:3", "12:27", "13:3", "14:7", "15:7", "16:14", "17:12", "18:1", "19:11",
    ]  # fmt: skip
    for line, words in zip(
        lines,
        [
            "has no topic 'order'; did you mean 'orders'?",
            "The input 'orders' has no key 'kye'; did you mean 'key'?",
            "'value' is empty",
            "'where' must be text, not a mapping",
            "The input 'orders' needs either 'path' or 'table'",
            "lake/c.jsonl: no such file or directory",
            "options.mode: a row that can't be read is an error",
            "'out': the topology does not read it; it reads orders, users",
            "columns=raw: expected decoded or log",
            "'orders': the topology does not write it; it writes out, copies",
            "'emit' must be updates or final, not 'all'",
            "noon: expected",
            "'parallelism' must be a whole number of at least 1",
            "'overwrite' must be true or false",
            "A job file has no key 'chekpoint'; did you mean 'checkpoint'?",
            "has no topic 'ot'; did you mean 'out'?",
        ],
        strict=True,
    ):
        assert words in line


def test_mistakes_of_the_topology(folder: Path) -> None:
    def problems(text: str) -> str:
        with pytest.raises(TopologyError) as caught:
            job(folder, text)
        return str(caught.value)

    assert "job.yaml:2:7: There is no setting" in problems("topology: topology.yaml\nset: {num.standby.replica: 1}\n")
    assert "job.yaml:1:11: " in problems("topology: missing.yaml\n")
    assert "job.yaml:1:1: A job file needs 'topology'" in problems("master: local\n")
    (folder / "topology.yaml").write_text(TOPOLOGY.replace("to: out", "too: out"))
    both = problems("topology: topology.yaml\nemit: all\n")
    assert "topology.yaml:8" in both
    assert "job.yaml:2:7" in both


def test_mistakes_among_options_have_a_place(folder: Path) -> None:
    head = "topology: topology.yaml\ncheckpoint: state\noverwrite: true\noutputs:\n"
    for text, place, words in (
        ("  out: {path: x, format: parquet, partition_by: [vlue]}\n", "5:8", "there is no column vlue"),
        ("  out: {path: x, format: parquet, value: decimel}\n", "5:8", "can't have the type decimel"),
        ("  out: x\n  copies: x/y\n", "5:3", "--output copies is in the same directory"),
        ("  out: x\n", "3:12", "--overwrite and --checkpoint exclude each other"),
    ):
        with pytest.raises(TopologyError, match=f"job.yaml:{place}: .*{words}"):
            job(folder, head + text)


def test_names_of_tables_in_mappings(folder: Path) -> None:
    found = job(
        folder,
        "topology: topology.yaml\ninputs:\n  orders: [{path: lake.db.orders, order: n}, {path: more, format: table}]\n"
        "outputs:\n  out: {path: lake.db.out, mode: append}\n  copies: {path: copies, format: delta}\n",
    ).options
    assert [(each.path, each.format, each.order) for each in found.inputs["orders"]] == [
        ("lake.db.orders", TABLE, "n"),
        ("more", TABLE, None),
    ]
    assert [(place.path, place.format) for place in found.outputs.values() if place] == [
        ("lake.db.out", TABLE),
        ("copies", "delta"),
    ]
    (folder / "lake.db.orders").mkdir()
    write_lines(folder / "lake.db.orders/a.jsonl", [])
    again = job(folder, "topology: topology.yaml\ninputs: {orders: {path: lake.db.orders}}\n").options
    assert [(each.path, each.format) for each in again.inputs["orders"]] == [
        (str(folder / "lake.db.orders"), JSON_LINES)
    ]


def test_numbers_stay_as_they_are_written(folder: Path) -> None:
    found = job(
        folder,
        "topology: topology.yaml\nparallelism: 3\nspark: {spark.x: 1.10, spark.y: 0x10, spark.z: 1e3}\ninputs:\n"
        "  orders: {path: lake/a.jsonl, value: {rate: 1.10}, options: {version: 3.10, on: True}}\n",
    )
    assert found.options.parallelism == 3
    assert found.cluster.settings == {"spark.x": "1.10", "spark.y": "16", "spark.z": "1e3"}
    (place,) = found.options.inputs["orders"]
    assert (place.columns.value, place.options) == ({"rate": "1.10"}, {"version": "3.10", "on": "true"})


def test_secrets_are_not_shown(folder: Path) -> None:
    path = folder / "job.yaml"
    path.write_text(
        "topology: topology.yaml\nspark:\n  spark.hadoop.fs.s3a.secretKey:\n    - hidden\ninputs:\n  orders:\n"
        "    path: lake/a.jsonl\n    options: {authToken: [hidden]}\n"
    )
    shown = streamkit("validate", path, "--excerpt")
    assert (shown.code, len(shown.out.splitlines())) == (1, 2)
    assert "hidden" not in shown.out
    line = streamkit(
        "submit", folder / "topology.yaml", "--input", "orders=/lake,options.apiKey=hidden,kye=a", "--dry-run"
    )
    assert "orders=/lake,options.apiKey=********,kye=a: unknown setting 'kye'" in line.err


def test_inputs_of_one_topic_fit_together(folder: Path) -> None:
    with pytest.raises(TopologyError, match=r"job.yaml:3:3: The input 'orders': .*a.jsonl is given twice"):
        job(folder, "topology: topology.yaml\ninputs:\n  orders: [lake/a.jsonl, lake/a.jsonl]\n")
    with pytest.raises(TopologyError, match="a topic is read either from the log or from places"):
        job(folder, "topology: topology.yaml\ninputs:\n  orders: [lake/a.jsonl, null]\n")


def test_which_files_are_job_files(folder: Path) -> None:
    (folder / "job.yaml").write_text("master: local\ntopology: topology.yaml\n")
    (folder / "a.test.yaml").write_text("topology: topology.yaml\ntests: {}\n")
    assert is_job_file(str(folder / "job.yaml"))
    assert not any(is_job_file(str(folder / name)) for name in ("topology.yaml", "a.test.yaml", "missing"))
    for text in (
        '{"master": "local", "topology": "topology.yaml"}',
        "topolgy: topology.yaml\ninputs: {}\n",
        "inputs: {}\noutputs: {}\n",
    ):
        assert is_job_text(text), text
    for text in (
        "topics: {}\npipelines: {}\n",
        "topcis: {}\npipelines: {}\n",
        "",
        "- a\n",
        "kind: Service\n",
        "a: [\n",
    ):
        assert not is_job_text(text), text


def test_job_files_in_other_ways(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "jobs").mkdir()
    path = folder / "jobs/job.yaml"
    path.write_text("topolgy: topology.yaml\ninputs: {orders: lake/a.jsonl}\n")
    for command in ("submit", "validate"):
        wrong = streamkit(command, path)
        assert "jobs/job.yaml:1:1: A job file has no key 'topolgy'; did you mean 'topology'?" in wrong.out + wrong.err
    path.write_text("topology: ../topology.yaml\nemit: all\n")
    assert streamkit("validate", "jobs").out.startswith("jobs/job.yaml:2:7: 'emit' must be updates or final")
    text = '{"topology": "topology.yaml", "inputs": {"orders": "lake/a.jsonl", "users": "lake/a.jsonl"}, "outputs": {"out": "out"}}'
    (folder / "job.json").write_text(text)
    for done in (streamkit("submit", "job.json", "--dry-run"), streamkit("submit", "-", "--dry-run", stdin=text)):
        assert (done.code, done.err) == (0, "")
        assert f"orders: {folder}/lake/a.jsonl (json)" in done.out
    for command in ("submit", "validate"):
        wrong = streamkit(command, "-", stdin="topology: topology.yaml\nemit: all\nmastre: x\n")
        assert (wrong.code, [line.split(": ")[0] for line in (wrong.out + wrong.err).splitlines()]) == (
            1,
            ["stdin:2:7", "stdin:3:1"],
        )
    for right in (text, TOPOLOGY):
        done = streamkit("validate", "-", stdin=right)
        assert (done.code, done.out, done.err) == (0, "", "")
    assert (
        streamkit(
            "submit",
            "-",
            "--dry-run",
            "--input",
            "orders=lake/b.jsonl",
            "--input",
            "users=lake/b.jsonl",
            stdin=TOPOLOGY,
        ).code
        == 0
    )


def test_the_command(folder: Path) -> None:
    """Without a master the job runs on this machine, whose first python3 on the path has no streamkit."""
    path = folder / "job.yaml"
    path.write_text(
        "topology: topology.yaml\nspark: {spark.ui.enabled: false}\n"
        "inputs: {orders: [lake/a.jsonl, lake/b.jsonl], users: lake/a.jsonl}\noutputs: {out: out, copies: copies}\n"
    )
    shown = streamkit("submit", path, "--dry-run")
    assert (shown.code, shown.err) == (0, "")
    assert f"orders: {folder}/lake/b.jsonl (json)" in shown.out.splitlines()
    typed = f"out={folder}/other,format=parquet,value=n int"  # read before there is a session
    changed = streamkit("submit", path, "--input", f"orders={folder}/lake", "--output", typed, "--dry-run")
    assert f"orders: {folder}/lake (json)" in changed.out.splitlines()
    assert f"users: {folder}/lake/a.jsonl (json)" in changed.out.splitlines()
    assert streamkit("validate", path).code == 0
    elsewhere = [each for each in os.environ["PATH"].split(os.pathsep) if not (Path(each) / "streamkit").exists()]
    done = streamkit("submit", path, "--output", f"out={folder}/other", PATH=os.pathsep.join(elsewhere))
    assert (done.code, done.out) == (0, "")
    assert [record["key"] for record in read_lines(folder / "other")] == ["a", "b"]
    assert [record["key"] for record in read_lines(folder / "copies")] == ["a"]
    assert not (folder / "out").exists()
    path.write_text("topology: topology.yaml\nemit: all\nmastre: x\n")
    for line in (["submit", path], ["validate", path]):
        wrong = streamkit(*line)
        assert (wrong.code, [text.split(": ")[0] for text in (wrong.out or wrong.err).splitlines()]) == (
            1,
            [f"{path}:2:7", f"{path}:3:1"],
        )


def test_the_schema_takes_what_the_reader_takes(folder: Path) -> None:
    import jsonschema
    import yaml

    schema: dict[str, Any] = json.loads(Path("schemas/job.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    good = (
        "topology: t.yaml\ninputs: {a: [x, {table: y, key: [a, b], headers: {n: 1}}], b: }\noutputs: {'*': {path: z}}\n"
    )
    assert list(validator.iter_errors(yaml.safe_load(good))) == []
    bad = "inputs: {a: {path: x, table: y}, b: {path: x, kye: k}}\nemit: all\n"
    assert len(list(validator.iter_errors(yaml.safe_load(bad)))) == 3
