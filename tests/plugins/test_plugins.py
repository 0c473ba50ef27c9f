"""An installed package adds a serde, a step and a rule; one that can't be imported costs a warning."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.environments import GENERATED, ROOT, run

EXAMPLE = Path(__file__).parent / "example"
IGNORED = shutil.ignore_patterns(*GENERATED)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment that has streamkit and the example plugin, which was built as a package."""
    folder = tmp_path_factory.mktemp("plugin")
    # Copies: pip builds in the folder itself, which several processes may do at once.
    sources = [shutil.copytree(path, folder / path.name, ignore=IGNORED) for path in (EXAMPLE, ROOT)]
    pip, quietly = (sys.executable, "-m", "pip"), ("-q", "--disable-pip-version-check", "--no-deps")
    # Without isolation, which tests/packaging has: it would install setuptools for each of the two.
    run(*pip, "wheel", *quietly, "--no-build-isolation", "--wheel-dir", folder / "wheels", *sources)
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env")
    python = folder / "env" / "bin" / "python"
    run(*pip, "--python", python, "install", *quietly, "--no-compile", *(folder / "wheels").glob("*.whl"))
    (packages,) = (folder / "env").glob("lib/python*/site-packages")
    # Dependencies only: streamkit itself is the one that was installed here.
    theirs = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(theirs) + "\n", encoding="utf-8")
    return python.parent


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    text = run(sys.executable, "-c", "import example_plugin as p; print(p.EveryOperator.example.topology)", cwd=EXAMPLE)
    path = tmp_path / "topology.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def streamkit(commands: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(commands / "streamkit"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_step_and_a_serde_of_a_plugin_work(commands: Path, topology: Path, tmp_path: Path):
    assert streamkit(commands, "validate", topology).returncode == 0
    assert "Processor: EXAMPLE-EVERY-0000000001" in streamkit(commands, "describe", topology).stdout
    records = tmp_path / "input.jsonl"
    lines = [{"topic": "orders", "key": key, "value": value, "timestamp": 0} for key, value in (("a", 5), ("b", 250))]
    records.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    done = streamkit(commands, "try", topology, "--input", records)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"topic": "some", "key": "b", "value": 250, "timestamp": 0}


def test_arguments_of_a_serde_reach_the_plugin(commands: Path, topology: Path, tmp_path: Path):
    topology.write_text(topology.read_text().replace("{value: money}", "{value: {money: CHF}}"), encoding="utf-8")
    settings = ("--set", "bootstrap.servers=embedded", "--set", f"state.dir={tmp_path / 'state'}")
    produced = subprocess.run(
        [str(commands / "streamkit"), "produce", str(topology), "orders", *settings],
        input='{"key": "a", "value": 1234}\n',
        capture_output=True,
        text=True,
        check=False,
    )
    assert produced.returncode == 0, produced.stderr
    found = streamkit(commands, "consume", topology, "orders", "--until-idle", *settings)
    assert json.loads(found.stdout)["value"] == 1234


def test_mistakes_are_found_as_in_any_step(commands: Path, topology: Path):
    topology.write_text(topology.read_text().replace("every: 2", "every: 0"), encoding="utf-8")
    done = streamkit(commands, "validate", topology)
    assert (done.returncode, f"{topology}:10:16: " in done.stdout) == (1, True), done.stdout
    topology.write_text(topology.read_text().replace("every: 0", "evry: 2"), encoding="utf-8")
    assert "There is no step 'evry'; did you mean 'every'?" in streamkit(commands, "validate", topology).stdout


WRITTEN_OUT = """
      - filter: cents(value.price) >= 500 and value.kind != None
      - group_by: {key: value.kind, key_serde: string}
      - count: counts
      - to_stream
"""


def test_a_composed_step_is_the_same_as_its_steps(commands: Path, tmp_path: Path):
    code = (
        "import example_steps as p; e = p.CountBy.example; print(e.topology, e.input, e.output, sep='---\\n', end='')"
    )
    text, lines, expected = run(sys.executable, "-c", code, cwd=EXAMPLE).split("---\n")
    path, records, other = (tmp_path / name for name in ("kinds.yaml", "input.jsonl", "written_out.yaml"))
    path.write_text(text, encoding="utf-8")
    records.write_text(lines, encoding="utf-8")
    other.write_text(
        text.replace("\n      - count_by: {field: value.kind, minimum: 500}\n", WRITTEN_OUT), encoding="utf-8"
    )
    described = streamkit(commands, "describe", path)
    assert (described.returncode, described.stderr) == (0, "")
    assert described.stdout == streamkit(commands, "describe", other).stdout
    done = streamkit(commands, "try", path, "--input", records)
    assert (list(map(json.loads, done.stdout.splitlines())), done.stderr) == ([json.loads(expected)], "")


def test_a_misspelt_function_of_a_plugin(commands: Path, topology: Path):
    text = topology.read_text(encoding="utf-8").replace("every: 2", "filter: cent('1') > 0")
    topology.write_text(text, encoding="utf-8")
    assert "unknown function 'cent'; did you mean 'cents'?" in streamkit(commands, "validate", topology).stdout


def test_a_rule_of_a_plugin_is_checked(commands: Path, topology: Path):
    topology.write_text(topology.read_text().replace("every: 2", "every: 1"), encoding="utf-8")
    done = streamkit(commands, "validate", "--strict", topology)
    assert "every: 1 drops nothing [no-every-one]" in done.stdout


def test_schema_and_reference_have_what_plugins_add(commands: Path, tmp_path: Path):
    schema = json.loads(run(commands / "python", "-m", "streamkit.spec.topology_schema", "--plugins"))
    assert "every" in json.dumps(schema["$defs"])
    # The installed schema does not know them: a new project has a copy with them.
    run(commands / "streamkit", "new", "words", cwd=tmp_path)
    assert json.loads((tmp_path / "words" / "topology.schema.json").read_text(encoding="utf-8")) == schema
    assert "money" in schema["$defs"]["serde"]["anyOf"][0]["enum"]
    assert "Forwards each n-th record" in run(
        commands / "python", "-m", "streamkit.spec.language_reference", "--plugins"
    )


def test_a_plugin_that_cannot_be_imported_costs_one_warning_that_names_it(commands: Path, topology: Path):
    topology.write_text(topology.read_text().replace("{value: money}", "{value: broken}", 1), encoding="utf-8")
    done = streamkit(commands, "validate", topology)
    assert done.returncode == 1
    assert "no serde is called 'broken'" in done.stdout
    assert done.stderr.count("The plugin broken of streamkit-example-plugin can't be imported") == 1


def test_names_of_its_own_are_not_looked_for_in_plugins():
    code = (
        "import streamkit.plugins as p; from streamkit import serdes; from streamkit.operators import STEPS;"
        "STEPS['filter']; serdes.parse('json'); serdes.parse({'call': 'json:JSONEncoder'}) if 0 else None;"
        "print(p.load.cache_info().currsize)"
    )
    assert run(sys.executable, "-c", code).strip() == "0"


def test_a_file_without_names_of_plugins_looks_for_none():
    file = ROOT / "topologies" / "word-count" / "topology.yaml"
    code = (
        "import streamkit.plugins as p; from streamkit_cli.problems import validate_files;"
        f"print(validate_files([{str(file)!r}]), p.load.cache_info().currsize)"
    )
    assert run(sys.executable, "-c", code).split() == ["0", "0"]
