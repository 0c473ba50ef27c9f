"""What projects with topologies use in their CI: hooks of pre-commit, the action of GitHub, reports of GitLab."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.support import streamkit

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "deploy" / "action"
COMMANDS = Path(sys.executable).parent
TOPOLOGY = """\
streamkit: 1
application: shop
topics:
  orders: {value: json, partitions: 1}
  counts: {key: string, value: long, partitions: 1}
pipelines:
  counts:
    stream: orders
    steps:
      - group_by: {key: value.user, key_serde: string}
      - count: counts
      - to_stream
    to: counts
"""
TEST = """\
tests:
  counts by user:
    given:
      - {topic: orders, value: {user: ann}}
    expect:
      counts:
        - {key: ann, value: 2}
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a topology in a folder, and its test, which fails."""
    folder = tmp_path / "repository"
    (folder / "apps").mkdir(parents=True)
    (folder / "apps" / "shop.yaml").write_text(TOPOLOGY)
    (folder / "apps" / "shop.test.yaml").write_text(TEST)
    (folder / "values.yaml").write_text("replicas: 2\n")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "first")
    return folder


def change(repository: Path, old: str, new: str) -> None:
    path = repository / "apps" / "shop.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    git(repository, "commit", "--quiet", "--all", "--message", "change")


def step(repository: Path, name: str, **inputs: str) -> tuple[int, list[str], Path]:
    """Run a step of action.yml as GitHub does; return its exit code, its lines, and the file of the summary."""
    action = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))
    (chosen,) = [each for each in action["runs"]["steps"] if each["name"] == name]
    given = {key: value["default"] for key, value in action["inputs"].items()} | inputs
    temporary = repository.parent
    environment = {
        "PATH": f"{COMMANDS}:{os.environ['PATH']}",
        "HOME": str(temporary),
        "GITHUB_WORKSPACE": str(repository),
        "GITHUB_ACTION_PATH": str(ACTION),
        "GITHUB_STEP_SUMMARY": str(temporary / "summary.md"),
        "RUNNER_TEMP": str(temporary),
        **{key: expanded(value, given) for key, value in chosen["env"].items()},
    }
    done = subprocess.run(
        ["bash", "-e", "-c", chosen["run"]],
        cwd=repository,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), temporary / "summary.md"


def expanded(value: str, inputs: dict[str, str]) -> str:
    def of(match: re.Match[str]) -> str:
        name, _, wanted = match[1].partition(" == ")
        found = inputs[name.removeprefix("inputs.")] if name.startswith("inputs.") else "7"
        return str(found == wanted.strip("'")).lower() if wanted else found

    return re.sub(r"\$\{\{ (.*?) \}\}", of, value)


def test_the_action_annotates_mistakes_beside_their_lines(repository: Path):
    assert step(repository, "Validate", strict="false")[:2] == (0, [])
    change(repository, "    to: counts\n", "    to: count\n")
    code, lines, _ = step(repository, "Validate")
    assert (code, lines) == (
        1,
        [
            "::error file=apps/shop.yaml,line=13,col=9,title=invalid::There is no topic 'count' in 'topics'; did you mean"
            " 'counts'?"
        ],
    )


def test_the_action_annotates_tests_that_fail(repository: Path):
    code, lines, _ = step(repository, "Test")
    assert code == 1
    (annotation,) = [line for line in lines if line.startswith("::")]
    assert re.match(
        r"::error file=apps/shop\.test\.yaml,line=\d+,col=\d+,title=test failed%3A counts by user::", annotation
    )
    assert "%0A" in annotation
    assert "value: 1" in annotation


def test_the_action_compares_with_the_base_and_describes_what_changed(repository: Path):
    base = git(repository, "rev-parse", "HEAD")
    assert step(repository, "Diff", base=base)[:2] == (0, [])
    change(repository, "count: counts", "count: totals")
    code, lines, _ = step(repository, "Diff", base=base)
    assert code == 0
    assert lines
    assert all(re.match(r"::(error|warning|notice) file=", line) for line in lines), lines
    assert "streamkit migrate OLD apps/shop.yaml" in lines[0]
    assert not [line for line in lines if str(repository.parent) in line]
    assert any("file=apps/shop.yaml,line=11," in line for line in lines)
    assert step(repository, "Diff", base=base, diff="fail")[0] == 1
    code, _, summary = step(repository, "Describe", base=base)
    assert code == 0
    assert summary.read_text().startswith("### apps/shop.yaml\n\n```mermaid\n")
    assert git(repository, "worktree", "list").count("\n") == 0


def test_the_action_comments_on_the_pull_request(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """GitHub's own command line is not here: what it is called with is written down."""
    stub = tmp_path / "bin" / "gh"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called; cat "$5" >> {tmp_path}/called\n')
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    base = git(repository, "rev-parse", "HEAD")
    change(repository, "count: counts", "count: totals")
    code, lines, _ = step(repository, "Describe", base=base, describe="comment", token="secret")
    assert (code, lines) == (0, [])
    called = (tmp_path / "called").read_text()
    assert called.startswith(f"pr comment 7 --body-file {tmp_path}/streamkit-describe.md\n### apps/shop.yaml\n")


def test_inputs_of_the_action_reach_its_steps():
    text = (ACTION / "action.yml").read_text(encoding="utf-8")
    for name in yaml.safe_load(text)["inputs"]:
        assert re.search(rf"(\$\{{\{{ |if: )[^\n]*inputs\.{name}\b", text), name


def test_reports_for_gitlab_have_places_and_stable_fingerprints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path))
    path = tmp_path / "shop.yaml"
    path.write_text(TOPOLOGY.replace("    to: counts\n", "    to: count\n"))
    (first,) = json.loads(streamkit("validate", path, "--format", "gitlab").out)
    assert first["location"] == {"path": "shop.yaml", "lines": {"begin": 13}}
    assert (first["severity"], first["check_name"]) == ("major", "invalid")
    path.write_text(f"# a line above\n{path.read_text()}")
    (later,) = json.loads(streamkit("validate", path, "--format", "gitlab").out)
    assert later["location"]["lines"] == {"begin": 14}
    assert later["fingerprint"] == first["fingerprint"]

    path.write_text(TOPOLOGY)
    (tmp_path / "shop.test.yaml").write_text(TEST)
    done = streamkit("test", tmp_path, "--format", "gitlab")
    (failed,) = json.loads(done.out)
    assert (done.code, failed["location"]["path"]) == (1, "shop.test.yaml")
    (tmp_path / "new.yaml").write_text(TOPOLOGY.replace("count: counts", "count: totals"))
    found = json.loads(streamkit("diff", path, tmp_path / "new.yaml", "--format", "gitlab").out)
    assert {each["location"]["path"] for each in found} <= {"shop.yaml", "new.yaml"}
    assert len({each["fingerprint"] for each in found}) == len(found) > 0


def test_hooks_run_under_pre_commit(repository: Path):
    """In this environment: pre-commit would install streamkit for each test."""
    manifest = ROOT / ".pre-commit-hooks.yaml"
    subprocess.run([COMMANDS / "pre-commit", "validate-manifest", manifest], check=True)
    hooks = [{**hook, "language": "system"} for hook in yaml.safe_load(manifest.read_text(encoding="utf-8"))]
    config = {"repos": [{"repo": "local", "hooks": hooks}]}
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    git(repository, "add", "--all")
    done = subprocess.run(
        [COMMANDS / "pre-commit", "run", "--all-files", "--color", "never"],
        cwd=repository,
        env={**os.environ, "PATH": f"{COMMANDS}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert re.search(r"topologies are valid\.+Passed", done.stdout)
    assert re.search(r"tests of topologies pass\.+Failed", done.stdout)
    assert "1 test, 1 failed" in done.stdout
