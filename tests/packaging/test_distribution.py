"""The name of the distribution, and the commands that install it and its extras: ours, and right for this copy."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import InvalidRequirement, Requirement

from streamkit.distribution import DISTRIBUTION, install_command
from streamkit_cli import main
from streamkit_cli import main as foreign

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WHEEL = "/wheels/streamkit_kafka-0.1.0-py3-none-any.whl"
# Tools that pages tell users to install, which are no part of streamkit.
TOOLS = {"pre-commit", "venv-pack", "pipx", "uv"}
_COMMAND = re.compile(
    r"(?:pip install|pipx (?:install|run|inject)|uv tool (?:install|run)|uvx|uv pip install) ([^`\n]*)"
)
_ENDS = {"&&", "||", "|", ";", "\\", "#", "…"}
_WITH_VALUE = {"--target", "--python", "--outdir", "--find-links"}
# After these the distribution is named; what follows is a command.
_SPECS = {"--from", "--spec"}


def distribution_facts(monkeypatch: pytest.MonkeyPatch, folder: Path, **files: str) -> None:
    """Let the installed copy be one with these files of its *.dist-info, in a prefix of its own."""
    info = folder / "site" / "streamkit_kafka-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {DISTRIBUTION}\nVersion: 0.1.0\n")
    for name, text in {"INSTALLER": "pip\n", **files}.items():
        (info / name.replace("_json", ".json")).write_text(text)
    monkeypatch.setattr(sys, "path", [str(folder / "site"), *sys.path])
    monkeypatch.setattr(sys, "prefix", str(folder / "env"))
    monkeypatch.setattr(shutil, "which", lambda name: str(folder / "env" / "bin" / name))


def url(path: str, **facts: object) -> str:
    return json.dumps({"url": f"file://{path}", **facts})


def test_extra_of_a_package_of_an_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    distribution_facts(monkeypatch, tmp_path)
    assert install_command("http") == "pip install 'streamkit-kafka[http]'"


def test_pip_of_this_environment_is_named_where_another_is_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    distribution_facts(monkeypatch, tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: f"/elsewhere/bin/{name}")
    assert install_command("http") == f"{sys.executable} -m pip install 'streamkit-kafka[http]'"


def test_extra_of_a_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    editable = url("/my%20work/streamkit", dir_info={"editable": True})
    distribution_facts(monkeypatch, tmp_path, direct_url_json=editable)
    assert install_command("http") == "pip install -e '/my work/streamkit[http]'"


def test_extra_of_a_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The index is not asked for the distribution, which is installed already."""
    distribution_facts(monkeypatch, tmp_path, direct_url_json=url(WHEEL))
    assert install_command("http") == "pip install 'streamkit-kafka[http]'"


def test_extra_in_an_environment_of_uv_which_has_no_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    distribution_facts(monkeypatch, tmp_path, INSTALLER="uv")
    assert install_command("http") == f"uv pip install --python {sys.executable} 'streamkit-kafka[http]'"


def test_extra_of_a_tool_of_uv_keeps_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    distribution_facts(monkeypatch, tmp_path, direct_url_json=url(WHEEL), INSTALLER="uv")
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "uv-receipt.toml").write_text(
        f'[tool]\nrequirements = [{{ name = "streamkit-kafka", extras = ["avro"], path = "{WHEEL}" }}]\n'
    )
    assert install_command("http") == f"uv tool install --force 'streamkit-kafka[avro,http] @ file://{WHEEL}'"


def test_extra_of_pipx_keeps_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    distribution_facts(monkeypatch, tmp_path)
    prefix = tmp_path / "venvs" / "streamkit-kafka"
    prefix.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(prefix))
    metadata = {"main_package": {"package_or_url": "streamkit-kafka[otel]"}}
    (prefix / "pipx_metadata.json").write_text(json.dumps(metadata))
    assert install_command("http") == "pipx install --force 'streamkit-kafka[http,otel]'"
    (tmp_path / "venvs").rename(tmp_path / ".cache")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".cache" / "streamkit-kafka"))
    assert install_command("avro") == "pipx run --spec 'streamkit-kafka[avro,otel]' streamkit"


def test_extra_of_a_run_of_uvx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    distribution_facts(monkeypatch, tmp_path, INSTALLER="uv")
    monkeypatch.setattr(sys, "prefix", "/home/me/.cache/uv/archive-v0/abc")
    assert install_command("http") == "uvx --from 'streamkit-kafka[http]' streamkit"


def test_another_projects_package_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "streamkit-0.3.2.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(sys, "argv", ["streamkit", "doctor"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    shown = capsys.readouterr().err
    assert ended.value.code == 1
    assert shown.startswith(f"streamkit: another project's package, streamkit 0.3.2, is installed in {tmp_path}, ")
    assert f"{sys.executable} -m pip uninstall streamkit" in shown


def test_an_older_installation_of_this_project_is_not_foreign(tmp_path: Path):
    info = tmp_path / "streamkit-0.1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[console_scripts]\nstreamkit = streamkit_cli.main:main\n")
    assert foreign.foreign_package([str(tmp_path), str(tmp_path / "missing")]) is None


def test_messages_take_their_commands_from_one_function():
    modules = [*ROOT.glob("streamkit/**/*.py"), *ROOT.glob("cli/**/*.py")]
    others = [path for path in modules if re.search(r"\b(pip install|pipx|uvx)\b", path.read_text(encoding="utf-8"))]
    assert [path.relative_to(ROOT).as_posix() for path in others] == ["streamkit/distribution.py"]


def requirements_of(line: str) -> list[str]:
    """The requirements that a command installs, of what is behind `pip install` or the like."""
    lexer = shlex.shlex(line.replace("`", ""), posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        words = line.split()
    found, skip = [], False
    for at, word in enumerate(words):
        if word in _ENDS:
            break
        if at and words[at - 1] in _SPECS:
            return [word]
        if not skip and not word.startswith("-"):
            found.append(word.rstrip("\"',.;:)").lstrip("\"'"))
        skip = word in _WITH_VALUE
        if word[-1] in ";)" or word.endswith(('",', "',")):
            break
    return found


def test_commands_of_pages_install_this_distribution_and_extras_that_exist():
    folders = ("docs", "deploy", ".ci")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [ROOT / name for name in ("README.md", "Makefile", "pyproject.toml")]
    commands = 0
    for path in files:
        if path.suffix in (".png", ".svg", ".pyc"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not re.search(r"(?<![\w/-])streamkit\[[a-z]", line), (
                f"{path}:{number}: this names another project's package"
            )
            for command in _COMMAND.finditer(line):
                commands += 1
                for text in requirements_of(command[1]):
                    problem = mistake_of(text)
                    assert problem is None, f"{path}:{number}: {line.strip()}: {problem}"
    assert commands > 5


def mistake_of(text: str) -> str | None:
    """What is wrong with a requirement: None for one of ours, a path, a wheel or a placeholder of either, or a tool."""
    if text.startswith((".", "/", "$", "'")) or text.isupper() or text.endswith(".whl") or text in TOOLS:
        return None
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        return str(error)
    if requirement.name != DISTRIBUTION:
        return f"{requirement.name} is not {DISTRIBUTION}"
    unknown = requirement.extras - PROJECT["optional-dependencies"].keys()
    return f"there is no extra {', '.join(unknown)}" if unknown else None


def test_metadata_has_the_name_and_the_licence():
    assert (PROJECT["name"], PROJECT["license"]) == (DISTRIBUTION, "Apache-2.0")
    own = [Requirement(text) for text in PROJECT["optional-dependencies"]["dev"] if text.startswith("streamkit")]
    assert [each.name for each in own] == [DISTRIBUTION]
    assert own[0].extras <= PROJECT["optional-dependencies"].keys()
