"""The image and the compose file: the linter's findings, and what they name in the project."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from tests.packaging.environments import ROOT

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def composed() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    return document


@pytest.mark.process
def test_hadolint_finds_nothing():
    # Versions of Debian's packages are left to the base image.
    command = [str(Path(sys.executable).parent / "hadolint"), "--ignore", "DL3008", str(DEPLOY / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_installs_extras_that_exist():
    extras = {
        extra for name in re.findall(r"'/src(\[[^]]*\])'", DOCKERFILE) for extra in Requirement(f"x{name}").extras
    }
    declared = re.findall(r'^([a-z-]+) = \["', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert extras
    assert extras <= set(declared)


def test_the_build_context_has_what_the_installation_reads():
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    names = [line[1:] for line in kept if line.startswith("!")]
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert {"pyproject.toml", "setup.py", "streamkit", "cli", "topologies", "schemas", "README.md"} <= set(names)


def test_the_last_stage_is_the_one_that_runs_applications():
    stages = re.findall(r"^FROM .* AS (\S+)$", DOCKERFILE, re.MULTILINE)
    assert stages[-1] == "streamkit"
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.search(r"^USER 10001", last, re.MULTILINE)
    assert "HEALTHCHECK --interval" in last


def test_files_that_compose_mounts_exist_and_services_know_each_other():
    document = composed()
    services = document["services"]
    for service in services.values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            known = (DEPLOY / source).exists() if source.startswith(".") else source in document["volumes"]
            assert known, mount
        assert set(service.get("depends_on", ())) <= set(services)
    for port in (port for service in services.values() for port in service.get("ports", ())):
        assert port.startswith("127.0.0.1:")


def test_prometheus_and_grafana_of_compose_find_each_other():
    services = composed()["services"]
    scrape = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"][
        0
    ]
    (target,) = scrape["static_configs"][0]["targets"]
    assert target.split(":")[0] in services
    token = services["streamkit"]["environment"]["STREAMKIT_HTTP_TOKEN"]
    assert scrape["authorization"]["credentials"] == token
    source = yaml.safe_load((DEPLOY / "grafana" / "datasource.yaml").read_text(encoding="utf-8"))["datasources"][0]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in services
