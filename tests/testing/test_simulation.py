"""`streamkit test --simulate`: orders, partitions, restarts and crashes, what the output depends on, and what is accepted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamkit.testing.case_runner import Outcome
from streamkit.testing.failure_report import junit, text
from streamkit.testing.suite import FileResult, Plans, Session
from tests.cli.support import assert_one_clear_line, streamkit
from tests.testing.support import case, failures, write

COUNT = """\
streamkit: 1
application: app
config: {processing.guarantee: GUARANTEE}
topics:
  words: {key: string, value: string}
  counts: {key: string, value: long}
pipelines:
  counted:
    stream: words
    steps:
      - group_by: {key: value, key_serde: string}
      - count: counts
      - to_stream
    to: counts
"""
COUNTED = """\
tests:
  t:
    given:
      words: [{key: a, value: x}, {key: b, value: y}, {key: c, value: x}, {key: d, value: x}]
    expect:
      counts: [{key: x, value: 1}, {key: y, value: 1}, {key: x, value: 2}, {key: x, value: 3}]
"""
JOIN = """\
streamkit: 1
application: app
defaults: {key: string, value: string}
topics: {orders: {}, customers: {}, priced: {}}
pipelines:
  customers: {table: customers}
  priced:
    stream: orders
    steps:
      - join: {with: customers, value: "left + right"}
    to: priced
"""
JOINED = """\
tests:
  t:
    given:
      - {topic: customers, key: ann, value: gold}
      - {topic: customers, key: bob, value: tin}
      - {topic: orders, key: ann, value: o1}
    expect: {priced: [{key: ann, value: o1gold}]}
"""
SUPPRESS = """\
streamkit: 1
application: app
defaults: {key: string, value: string}
topics: {clicks: {}, final: {key: {windowed: string, size: 1m}, value: long}}
pipelines:
  final:
    stream: clicks
    steps:
      - group_by_key
      - window: {tumbling: 1m, grace: 0}
      - count
      - suppress: window_closes
      - to_stream
    to: final
"""
SUPPRESSED = """\
tests:
  t:
    given: {clicks: [{key: a, value: x, timestamp: 0}, {key: b, value: x, timestamp: 70s}, {key: d, value: x, timestamp: 10s}]}
    expect: {final: [{key: {key: a, start: 0, end: 1m}, value: 1}]}
"""
PROCESSOR = """\
streamkit: 1
application: app
defaults: {key: string, value: string}
topics: {a: {}, b: {}}
pipelines:
  p:
    stream: a
    steps:
      - process: {call: "simulated_MODULE:Step", value_serde: string}
    to: b
"""


def simulate(folder: Path, tests: str, topology: str, histories: int = 30, seed: int = 1) -> FileResult:
    path = write(folder, tests, topology)
    [result] = Session(Plans({}, {}), histories=histories, seed=seed).run([path])
    return result


def outcome(folder: Path, tests: str, topology: str, histories: int = 30) -> Outcome:
    result = simulate(folder, tests, topology, histories)
    assert not result.problems
    (found,) = result.outcomes
    return found


def only_failure(folder: Path, tests: str, topology: str) -> str:
    (failure,) = outcome(folder, tests, topology).failures
    return text(failure).replace(f"{folder}/", "")


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_counts_are_the_same_in_every_history(tmp_path: Path, guarantee: str) -> None:
    found = outcome(tmp_path, COUNTED, COUNT.replace("GUARANTEE", guarantee))
    assert not found.failures
    assert found.simulated is not None
    assert (found.simulated.histories, found.simulated.accepted, found.simulated.skipped) == (30, [], None)


def test_a_crash_repeats_records_at_least_once(tmp_path: Path) -> None:
    topology = COUNT.replace("GUARANTEE", "at_least_once")
    found = [text(each) for each in outcome(tmp_path, "simulate: {faults: [crash]}\n" + COUNTED, topology).failures]
    assert any(
        "the output differs after a crash" in each and "starts again from its last commit" in each for each in found
    )


def test_a_join_depends_on_which_record_comes_first(tmp_path: Path) -> None:
    failure = only_failure(tmp_path, JOINED, JOIN)
    lines = [line.strip() for line in failure.splitlines()]
    customer = "customers {key: ann, value: gold, timestamp: 0}"
    order = "orders {key: ann, value: o1, timestamp: 0}"
    assert lines[0].endswith(
        "the output depends on which of two records comes first: step join of pipeline priced (topology.yaml:10:9)"
    )
    assert lines[1] in (f"{customer} or {order}", f"{order} or {customer}")
    assert lines[2].endswith("to accept this, write `simulate: {accept: [priced.join]}`")
    assert lines[3:] == [
        f"- 1. {customer}",
        f"- 2. {order} → priced {{key: ann, value: o1gold}}",
        f"+ 1. {order}",
        f"+ 2. {customer}",
    ]


def test_the_same_seed_gives_the_same_report(tmp_path: Path) -> None:
    assert only_failure(tmp_path, JOINED, JOIN) == only_failure(tmp_path, JOINED, JOIN)


def test_a_history_can_be_played_alone(tmp_path: Path) -> None:
    failure = only_failure(tmp_path, JOINED, JOIN)
    seed = int(failure.split("first with --seed ")[1].split(";")[0])
    (found,) = simulate(tmp_path, JOINED, JOIN, 1, seed).outcomes
    assert "1 of 1 histories have a different output" in text(found.failures[0])


def test_what_is_accepted_is_named(tmp_path: Path) -> None:
    found = outcome(tmp_path, "simulate: {accept: [priced.join]}\n" + JOINED, JOIN)
    assert not found.failures
    assert found.simulated is not None
    assert found.simulated.accepted == ["priced.join"]


def test_a_window_closes_by_the_time_of_its_partition(tmp_path: Path) -> None:
    found = [text(each) for each in outcome(tmp_path, SUPPRESSED, SUPPRESS).failures]
    (failure,) = (each for each in found if "the output depends on which keys share a partition" in each)
    assert "step suppress of pipeline final" in failure
    # Two records make the difference.
    assert sum(" clicks {" in line for line in failure.splitlines()) == 4


def test_only_the_last_record_of_a_key_is_compared(tmp_path: Path) -> None:
    topology = COUNT.replace("GUARANTEE", "exactly_once_v2").replace(
        "count: counts", "reduce: {add: 'max([aggregate, value])'}"
    )
    topology = topology.replace("counts: {key: string, value: long}", "counts: {key: string, value: string}").replace(
        "key: value,", "key: \"'one'\","
    )
    tests = case(
        "given: {words: [{key: a, value: x}, {key: b, value: y}]}\nexpect: {counts: {match: contains, records: [{key: one, value: y}]}}"
    )
    assert "step reduce of pipeline counted" in only_failure(tmp_path, tests, topology)
    assert not outcome(tmp_path, "simulate: {compare: last}\n" + tests, topology).failures


def test_a_record_that_comes_after_the_close_is_late(tmp_path: Path) -> None:
    failure = only_failure(tmp_path, "simulate: {partitions: 1}\n" + SUPPRESSED, SUPPRESS)
    assert "the output depends on which of two records comes first: step count of pipeline final" in failure


def processor(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, body: str) -> str:
    (folder / f"simulated_{name}.py").write_text(
        f"import random\n\nclass Step:\n    seen = 0\n{body}", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(folder))
    return PROCESSOR.replace("MODULE", name)


def test_state_in_a_processor_is_lost_by_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = (
        "    def init(self, context):\n        self.context = context\n\n"
        "    def process(self, record):\n        self.seen += 1\n"
        "        self.context.forward(record.replace(value=str(self.seen)))\n"
    )
    topology = processor(tmp_path, monkeypatch, "remembers", body)
    records = ", ".join("{key: k, value: x}" for _ in range(8))
    expected = ", ".join(f"{{key: k, value: '{number}'}}" for number in range(1, 9))
    failure = only_failure(tmp_path, case(f"given: {{a: [{records}]}}\nexpect: {{b: [{expected}]}}"), topology)
    assert "the output differs after a re" in failure
    assert "step process of pipeline p" in failure


def test_what_a_processor_forwards_when_it_is_closed_depends_on_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (
        "    def init(self, context):\n        self.context, self.records = context, []\n\n"
        "    def process(self, record):\n        self.records.append(record)\n\n"
        "    def close(self):\n        for record in self.records[-1:]:\n"
        "            self.context.forward(record.replace(value=str(len(self.records))))\n"
    )
    topology = processor(tmp_path, monkeypatch, "holds", body)
    records = ", ".join("{key: k, value: x}" for _ in range(8))
    failure = only_failure(
        tmp_path, case(f"given: {{a: [{records}]}}\nexpect: {{b: [{{key: k, value: '8'}}]}}"), topology
    )
    assert "the output differs after a re" in failure


def test_a_processor_that_draws_is_found_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = (
        "    def init(self, context):\n        self.context = context\n\n"
        "    def process(self, record):\n        self.context.forward(record.replace(value=str(random.random())))\n"
    )
    topology = processor(tmp_path, monkeypatch, "draws", body)
    failure = only_failure(tmp_path, case("given: {a: [{key: k, value: x}]}\nset: {}"), topology)
    assert "two runs of the same history differ" in failure
    assert "step process of pipeline p" in failure


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("given: []", "it has no input"),
        ("given: {orders: [{key: a, value: o}]}\nerror: no such error", ""),
    ],
)
def test_tests_that_are_not_simulated_have_a_reason(tmp_path: Path, body: str, reason: str) -> None:
    found = outcome(tmp_path, case(body), JOIN)
    if reason:
        assert found.simulated is not None
        assert found.simulated.skipped == reason
    else:
        assert found.failures
        assert found.simulated is None  # the test itself fails


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        (
            "{accept: [priced.joi]}",
            "1:21: There is no step 'priced.joi', as PIPELINE.STEP; did you mean 'priced.join'?",
        ),
        (
            "{faults: [crsh]}",
            "1:21: A fault must be restart, rebalance or crash, not 'crsh'; did you mean 'crash'?",
        ),
        ("{partitions: 0}", "1:24: 'partitions' must be a whole number of at least 1"),
        ("{partition: 2}", "1:12: 'simulate' has no key 'partition'; did you mean 'partitions'?"),
    ],
)
def test_mistakes_in_the_section(tmp_path: Path, section: str, problem: str) -> None:
    assert problem in "\n".join(failures(tmp_path, f"simulate: {section}\n" + JOINED, JOIN))


def test_reports_have_the_findings(tmp_path: Path) -> None:
    result = simulate(tmp_path, JOINED, JOIN)
    assert b"which of two records comes first" in junit([result])
    path = str(result.path)
    done = streamkit("test", path, "--simulate", "30", "--format", "json")
    (found,) = json.loads(done.out)["files"][0]["tests"]
    assert done.code == 1
    assert found["simulation"] == {"histories": 30, "accepted": [], "skipped": None}
    assert "priced.join" in found["failures"][0]["message"]


def test_update_takes_the_output_of_no_history(tmp_path: Path) -> None:
    path = write(tmp_path, JOINED, JOIN)
    done = streamkit("test", path, "--simulate", "3", "--update")
    assert_one_clear_line(done, 2, "--simulate cannot be combined with --update")
    done = streamkit("test", path, "--seed", "3")
    assert_one_clear_line(done, 2, "--seed has no effect without --simulate")
