"""Every example: its tests pass and reach every step, `try` and the embedded log give the same, its demo runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.runtime.driver import run_case
from streamkit.runtime.records import RecordJson
from streamkit.testing.failure_report import coverage, text
from streamkit.testing.suite import Plans, Session, find
from tests.broker.cases import in_order_of_one_task
from tests.broker.support import Log
from tests.cli.support import LIMIT_S, streamkit

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted(path.parent for path in ROOT.glob("topologies/*/topology.yaml"))
SERVICE = "price_service.py"
every = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)


@pytest.fixture(autouse=True)
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The service that an example asks, for its tests; its demo starts one of its own."""
    if "example" not in request.fixturenames:
        yield
        return
    file = request.getfixturevalue("example") / SERVICE
    if not file.exists():
        yield
        return
    line = [sys.executable, file, sys.executable, "-c", "import os; print(os.environ['PRICES'], flush=True); input()"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        monkeypatch.setenv("PRICES", process.stdout.readline().strip())
        yield
        process.stdin.write("\n")
        process.stdin.close()


def inputs(example: Path) -> list[list[dict]]:
    """The records of an example, by the rounds in which its demo feeds them."""
    files = sorted(example.glob("records*.jsonl"), key=lambda path: path.stem)
    return [[json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in files]


def lines(records: list[dict]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


@every
def test_its_tests_pass_and_reach_every_step(example: Path) -> None:
    environment = {name: os.environ[name] for name in ("PRICES",) if name in os.environ}
    session = Session(Plans(environment, {}), coverage=True)
    [result] = session.run(find([str(example)]))
    assert [text(failure) for outcome in result.outcomes for failure in outcome.failures] == []
    assert result.problems == []
    [(plan, reached)] = session.reached.values()
    assert coverage(plan, reached).percent == 100


@every
def test_the_linter_finds_nothing(example: Path) -> None:
    done = streamkit("validate", "--strict", example / "topology.yaml")
    assert (done.code, done.err) == (0, "")


@every
def test_it_has_a_page_and_out_of_order_records(example: Path) -> None:
    page = ROOT / f"docs/examples/{example.name}.md"
    assert f"make demo EXAMPLE={example.name}" in page.read_text(encoding="utf-8")
    tests = (example / "topology.test.yaml").read_text(encoding="utf-8")
    assert re.search(r"\blate\b|out of order", tests)


@every
def test_the_embedded_log_gives_what_try_gives(example: Path, tmp_path: Path) -> None:
    """With one partition a topic and all of a round's records there before the start."""
    file = copied(example, tmp_path / example.name)
    address = f"embedded:{tmp_path / 'log'}"
    variables = {"STATE_DIR": str(tmp_path / "state"), "KAFKA": address}
    given: list[dict] = []
    for records in inputs(example):
        given += in_order_of_one_task(records)
        assert streamkit("produce", file, stdin=lines(records), **variables).code == 0
        done = streamkit("run", file, "--until-idle", "--set", "statestore.cache.max.bytes=0", **variables)
        assert (done.code, done.out) == (0, ""), done.err
    expected, _ = run_case(file, lines(given).splitlines(), stores=False)
    plan = load(file)
    for topic in plan.external_topics.values():
        if topic.written and not topic.read:
            found = on_log(plan, address, topic.name)
            assert found
            assert last_by_key(found) == last_by_key([each for each in expected if each["topic"] == topic.name])


def copied(example: Path, folder: Path) -> Path:
    """Return the topology of a copy with one partition a topic, as `try` has them."""
    folder.mkdir()
    for source in example.iterdir():
        if source.suffix in (".yaml", ".py"):
            changed = re.sub(r"partitions: \d+", "partitions: 1", source.read_text(encoding="utf-8"))
            (folder / source.name).write_text(changed, encoding="utf-8")
    return folder / "topology.yaml"


def on_log(plan: Plan, address: str, topic: str) -> list[dict]:
    """Return the records of a topic in JSON form."""
    with closing(Log(address)) as log:
        raws = log.read(topic)
    return [RecordJson(plan).decode((topic, raw.key, raw.value, raw.timestamp, raw.headers, 0)) for raw in raws]


def last_by_key(records: list[dict]) -> Counter[str]:
    """The last value of each key: between tasks there is no order, so values on the way there may differ.

    A key that came and went counts as one that never came: which of the two is seen depends on that order, too.
    """
    last = {json.dumps([each["key"]]): each["value"] for each in records}
    return Counter((key, json.dumps(value)) for key, value in last.items() if value is not None)


@every
def test_its_demo_runs_with_one_command(example: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streamkit_cli", "demo", example.name],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    # The tests, at least one file of input, and a topic with results.
    assert "all passed" in done.stdout
    assert " --until-idle" in done.stdout.rpartition("consume topology.yaml ")[2]


def test_demos_are_listed_and_a_wrong_name_is_refused() -> None:
    done = streamkit("demo", "--list")
    assert [line.split()[0] for line in done.out.splitlines()[1:]] == [example.name for example in EXAMPLES]
    for wrong, right in (("word-cuont", "word-count"), ("fraud", "fraud-detection")):
        done = streamkit("demo", wrong)
        assert (done.code, done.out) == (2, "")
        assert done.err == f"streamkit: there is no example {wrong!r}; did you mean {right!r}?\n"
