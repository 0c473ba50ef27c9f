"""The command `diff`: exit codes, formats, bad input, and what is on an embedded log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.changes.pairs import PAIRS
from tests.changes.versions import NAMED, TOTALS, WORDS
from tests.cli.support import Done, assert_one_clear_line, streamkit


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def diff(folder: Path, *arguments: object) -> Done:
    return streamkit("diff", *arguments, cwd=folder)


def of(name: str) -> tuple[str, str]:
    found = next(pair for pair in PAIRS if pair.name == name)
    return found.old, found.new


def test_a_file_beside_itself_has_no_findings(tmp_path: Path) -> None:
    write(tmp_path, old=WORDS)
    done = diff(tmp_path, "old.yaml", "old.yaml")
    assert (done.code, done.err) == (0, "")
    assert done.out == "old.yaml -> old.yaml: nothing changes that state or records depend on\n"


def test_what_is_safe_is_shown_and_ends_with_0(tmp_path: Path) -> None:
    old, new = of("expression-changes")
    write(tmp_path, old=old, new=new)
    done = diff(tmp_path, "old.yaml", "new.yaml")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "new.yaml:8:9: safe: pipeline words: flat_map_values behaves differently",
        "old.yaml -> new.yaml: safe, instances may be restarted one by one",
    ]


def test_what_needs_action_is_reported_with_place_and_remedy(tmp_path: Path) -> None:
    old, new = of("filter-before-count")
    write(tmp_path, old=old, new=new)
    done = diff(tmp_path, "old.yaml", "new.yaml")
    assert (done.code, done.err) == (1, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("new.yaml:11:9: renamed: store KSTREAM-AGGREGATE-STATE-STORE-0000000004 (was KSTREAM-")
    kept = "write `store: KSTREAM-AGGREGATE-STATE-STORE-0000000003` in the step words.count (line 11)"
    assert lines[1] == f"    {kept}; or move its rows: `streamkit migrate old.yaml new.yaml`"
    assert lines[-1] == "old.yaml -> new.yaml: 1 renamed, 1 records left behind, 2 safe"


def test_json_has_each_finding_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, old=TOTALS, new=TOTALS.replace("partitions: 2", "partitions: 4"))
    done = diff(tmp_path, "old.yaml", "new.yaml", "--format", "json")
    document = json.loads(done.out)
    assert done.code == 1
    assert (document["old"], document["new"], document["verdict"]) == ("old.yaml", "new.yaml", "incompatible")
    first = document["findings"][0]
    assert (first["verdict"], first["subject"], first["name"], first["line"]) == ("incompatible", "store", "totals", 9)
    assert json.loads(diff(tmp_path, "old.yaml", "old.yaml", "--format", "json").out)["findings"] == []


def test_findings_become_annotations_of_github(tmp_path: Path) -> None:
    old, new = of("pipeline-added-in-front")
    write(tmp_path, old=old, new=new)
    done = diff(tmp_path, "old.yaml", "new.yaml", "--format", "github")
    assert done.code == 1
    assert done.out.startswith("::warning file=new.yaml,line=")
    assert "title=restore::sub-topology 1 was 0" in done.out
    assert "%0Astop all instances" in done.out
    assert "::notice file=new.yaml" in done.out


def test_a_description_of_java(tmp_path: Path) -> None:
    old, new = of("filter-before-count")
    write(tmp_path, old=old, new=new)
    (tmp_path / "describe.txt").write_text(diff_free_describe(tmp_path), encoding="utf-8")
    done = diff(tmp_path, "describe.txt", "new.yaml")
    assert done.code == 1
    assert "word" not in done.err
    assert "its rows stay in pair-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog" in done.out


def diff_free_describe(folder: Path) -> str:
    return streamkit("describe", "old.yaml", cwd=folder).out


@pytest.mark.parametrize(
    "arguments", [("none.yaml", "new.yaml"), ("new.yaml", "none.yaml"), ("none.yaml", "--running")]
)
def test_a_missing_file(arguments: tuple[str, ...], tmp_path: Path) -> None:
    write(tmp_path, new=NAMED)
    assert_one_clear_line(diff(tmp_path, *arguments), 2, "none.yaml: no such file")


def test_one_file_needs_running(tmp_path: Path) -> None:
    write(tmp_path, new=NAMED)
    assert_one_clear_line(diff(tmp_path, "new.yaml"), 2, "give NEW, or --running")
    assert_one_clear_line(diff(tmp_path, "-", "-"), 2, "only one of OLD and NEW")


def test_all_problems_of_a_topology(tmp_path: Path) -> None:
    write(tmp_path, old=NAMED, new=NAMED.replace("stream: lines", "stream: rows").replace("- to_stream", "- to_strem"))
    done = diff(tmp_path, "old.yaml", "new.yaml")
    assert (done.code, done.out) == (1, "")
    assert done.err == streamkit("validate", "new.yaml", cwd=tmp_path).out
    assert len(done.err.splitlines()) == 2


def test_a_description_that_does_not_parse(tmp_path: Path) -> None:
    write(tmp_path, new=NAMED)
    (tmp_path / "describe.txt").write_text("Topologies:\n   Sub-topology: zero\n", encoding="utf-8")
    done = diff(tmp_path, "describe.txt", "new.yaml")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("describe.txt:2:1: expected Topologies: or Sub-topology: N")
    assert_one_clear_line(diff(tmp_path, "new.yaml", "describe.txt", "--running"), 1, "describe.txt:2:1")


def test_running_needs_a_topology(tmp_path: Path) -> None:
    write(tmp_path, old=NAMED)
    (tmp_path / "describe.txt").write_text(diff_free_describe(tmp_path), encoding="utf-8")
    assert_one_clear_line(diff(tmp_path, "describe.txt", "--running"), 2, "--running needs the topology file")


def test_rows_that_migrate_converts_are_named(tmp_path: Path) -> None:
    files = []
    for serde in ("long", "integer"):
        files.append(tmp_path / f"{serde}.yaml")
        files[-1].write_text(
            "streamkit: 1\napplication: shop\ntopics: {in: {key: string, value: integer}}\npipelines:\n  p:\n    stream: in\n    steps:\n"
            f"      - group_by_key\n      - aggregate: {{initial: '0', add: 'aggregate + value', store: sums, value_serde: {serde}}}\n"
        )
    done = streamkit("diff", *files)
    assert f"; or convert its rows: `streamkit migrate {files[0]} {files[1]}`" in done.out
