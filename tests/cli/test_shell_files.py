"""Man pages and completion scripts: they are up to date, and complete names without a start of Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from streamkit_cli import shell_files
from streamkit_cli.command_line import COMMANDS

ROOT = Path(__file__).parents[2]


def completed_by_bash(*words: str) -> list[str]:
    """What the script offers where no streamkit is on the path."""
    script = ROOT / "cli" / "streamkit_cli" / "completions" / "bash" / "streamkit"
    call = f'. {script}; COMP_WORDS=("$@"); COMP_CWORD={len(words) - 1}; _streamkit_completion none; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", call, "bash", *words], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_the_files_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert shell_files.main(["--check", str(ROOT)]) == 0, capsys.readouterr().err


def test_files_that_are_not_are_found_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    former = tmp_path / "deploy" / "man" / "streamkit-former.1"
    former.parent.mkdir(parents=True)
    former.write_text("", encoding="utf-8")
    assert shell_files.main(["--check", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "streamkit-former.1 is out of date" in error
    assert "streamkit.fish is out of date" in error
    assert shell_files.main(["--write", str(tmp_path)]) == 0
    assert shell_files.main(["--check", str(tmp_path)]) == 0
    assert not former.exists()


def test_bash_completes_commands_and_options_without_python() -> None:
    assert completed_by_bash("streamkit", "val") == ["validate"]
    assert completed_by_bash("streamkit", "--ver") == ["--verbose", "--version"]
    assert completed_by_bash("streamkit", "--verbose", "reset-offsets", "x.yaml", "--to-e") == ["--to-earliest"]


def test_every_command_is_in_each_script_and_has_a_man_page() -> None:
    pages = shell_files.man_pages()
    scripts = shell_files.completions()
    for name in COMMANDS:
        assert f"\nstreamkit {name} " in pages[f"streamkit-{name}.1"].replace("\\-", "-")
        assert f"        {name}) options=" in scripts["bash/streamkit"]
        assert f"    {name}) found=" in scripts["zsh/_streamkit"]
        assert f"-a {name} -d " in scripts["fish/streamkit.fish"]
