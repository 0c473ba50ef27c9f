"""Every command and every YAML block of the documentation does what the page says."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamkit.errors import TopologyError
from streamkit.spec import load_text
from tests.broker.kafka_broker import Broker
from tests.docs.pages import Block, Command, blocks, commands, fits
from tests.docs.shell import Shell
from tests.requirements import require

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
# What the pages show in place of an address that is free here.
SHOWN_BROKER, SHOWN_HTTP = "localhost:9092", "127.0.0.1:8080"
LANGUAGES = {"console", "yaml", "json", "python", "ini", "text", "java", "mermaid"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks_of(path: Path) -> list[Block]:
    return list(blocks(path, name_of(path)))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_has_a_kind(page: Path) -> None:
    for block in blocks_of(page):
        assert block.language in LANGUAGES, f"{block}: a block needs one of {sorted(LANGUAGES)}"
        assert block.options.keys() <= {"file", "broker", "unrun", "fragment", "crontab", "dockerfile"}, str(block)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_yaml_block_is_right(page: Path) -> None:
    for block in blocks_of(page):
        if block.language == "yaml":
            check_yaml(block)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_text_above_a_block_names_its_file(page: Path) -> None:
    """The first line of a block, which has the name too, is not on the page that a reader sees."""
    lines = page.read_text(encoding="utf-8").splitlines()
    end = 0
    for block in blocks_of(page):
        if "file" in block.options:
            name = Path(block.options["file"]).name
            assert f"{name}`" in "\n".join(lines[end : block.line - 1]), f"{block}: save this as `{name}`?"
        end = block.line + len(block.text.splitlines()) + 1


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{name_of(page)}: {target}"


def with_commands() -> list[Any]:
    """The pages that show commands; those of which some need a broker are marked."""
    found = {page: blocks_of(page) for page in PAGES}
    return [
        pytest.param(page, marks=[pytest.mark.broker] if any("broker" in block.options for block in inside) else [])
        for page, inside in found.items()
        if any(block.language == "console" for block in inside)
    ]


@pytest.mark.parametrize("page", with_commands(), ids=name_of)
def test_every_command_does_what_is_shown(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    found = blocks_of(page)
    if any("curl " in block.text for block in found if block.language == "console" and "unrun" not in block.options):
        require("curl")
    address = None
    if any("broker" in block.options for block in found):
        broker: Broker = request.getfixturevalue("broker")
        address = broker.address
    if any("cd topologies/" in block.text for block in found):
        shutil.copytree(ROOT / "topologies", tmp_path / "topologies", ignore=shutil.ignore_patterns(".streamkit"))
    shell = Shell(tmp_path)
    try:
        for block in found:
            follow(block, tmp_path, shell, address)
    finally:
        shell.close()


def follow(block: Block, folder: Path, shell: Shell, address: str | None) -> None:
    """Do what a reader does with a block: save a file, or run the commands."""
    if "file" in block.options:
        (folder / block.options["file"]).write_text(block.text, encoding="utf-8")
    elif block.language == "console":
        for command in commands(block):
            if "unrun" in block.options:
                done = subprocess.run(["bash", "-n", "-c", command.text], capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"{block.page}:{command.line}: {done.stderr}"
            else:
                run(block, command, shell, address)


def run(block: Block, command: Command, shell: Shell, address: str | None) -> None:
    place = f"{block.page}:{command.line}: $ {command.text}"
    text = command.text.replace(SHOWN_HTTP, shell.http)
    code, came = shell.run(text.replace(SHOWN_BROKER, address) if address else text)
    shown = "\n".join(came)
    assert code == command.code, f"{place}\nended with {code}:\n{shown}"
    if command.shown:
        assert fits(command.shown, came), f"{place}\nprinted:\n{shown}\n\nthe page shows:\n" + "\n".join(command.shown)


def check_yaml(block: Block) -> None:
    """A topology is valid; tests of topologies run as commands; Kubernetes objects have what each needs."""
    try:
        documents: list[Any] = list(yaml.safe_load_all(block.text))
    except yaml.YAMLError as error:
        raise AssertionError(f"{block}: {error}") from error
    if "fragment" in block.options:
        return
    for document in documents:
        if isinstance(document, dict) and "streamkit" in document:
            try:
                load_text(block.text, str(block), environment={}, folder=str(ROOT))
            except TopologyError as error:
                raise AssertionError(str(error)) from error
        elif isinstance(document, dict) and "apiVersion" in document:
            assert document["kind"]
            assert document["metadata"]["name"]
        else:
            assert isinstance(document, dict)
            assert "tests" in document, f"{block}: neither a topology, nor tests, nor marked as a fragment"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_unit_files_and_projects_have_their_sections(page: Path) -> None:
    known = {"Unit", "Service", "Install", "Timer", "project"}
    for block in blocks_of(page):
        if block.language == "ini":
            parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
            parser.optionxform = str  # type: ignore[assignment,method-assign]
            parser.read_string(block.text)
            assert {section.partition(".")[0] for section in parser.sections()} <= known, str(block)
            assert parser.sections(), str(block)
        elif block.language == "json":
            for line in block.text.splitlines():
                json.loads(line)
