"""The Helm chart: rendered for ten files of values, held against Kubernetes' schemas, and its arguments against the command line."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.cli.support import streamkit
from tests.packaging.environments import ROOT
from tests.requirements import tool

CHART = ROOT / "deploy" / "helm" / "streamkit"
VALUES = sorted((Path(__file__).parent / "values").glob("*.yaml"))
KUBERNETES = "1.33"
CUSTOM = {"ServiceMonitor", "PrometheusRule", "ScaledObject"}
"""Kinds of operators, for which Kubernetes itself has no schema."""

pytestmark = pytest.mark.process


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [tool("helm"), *map(str, arguments), "--kube-version", f"{KUBERNETES}.0"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@cache
def rendered(*options: str | Path, upgrade: bool = False) -> list[dict[str, Any]]:
    done = helm("template", "rel", CHART, *options, *(["--is-upgrade"] if upgrade else []))
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def by_values(name: str) -> list[dict[str, Any]]:
    return rendered("--values", Path(__file__).parent / "values" / f"{name}.yaml")


def one(documents: list[dict[str, Any]], kind: str) -> Any:
    (found,) = [document for document in documents if document["kind"] == kind]
    return found


def one_config_map(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The ConfigMap of the release, not that of the hook."""
    maps = [document for document in documents if document["kind"] == "ConfigMap"]
    (found,) = [document for document in maps if "annotations" not in document["metadata"]]
    return found


def topology_of(documents: list[dict[str, Any]]) -> str:
    return str(one_config_map(documents)["data"]["topology.yaml"])


def pods(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pod specifications of all workloads."""
    templates = [document["spec"] for document in documents if document["kind"] in ("StatefulSet", "Job")]
    templates += [document["spec"]["jobTemplate"]["spec"] for document in documents if document["kind"] == "CronJob"]
    return [template["template"]["spec"] for template in templates]


def test_ten_files_of_values():
    assert len(VALUES) == 10


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_documents_fit_the_schemas_of_kubernetes(values: Path):
    done = helm("lint", "--strict", CHART, "--values", values)
    assert done.returncode == 0, done.stdout + done.stderr
    for upgrade in (False, True):
        documents = rendered("--values", values, upgrade=upgrade)
        for document in documents:
            if document["kind"] not in CUSTOM:
                kubernetes_validate.validate(document, KUBERNETES, strict=True)
        names = [(document["kind"], document["metadata"]["name"]) for document in documents]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_every_container_is_confined_and_every_mount_has_its_volume(values: Path):
    for pod in pods(rendered("--values", values)):
        claims = {"state"}
        volumes = {volume["name"] for volume in pod["volumes"]} | claims
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod.get("automountServiceAccountToken") is False or "serviceAccountName" in pod
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_the_command_line_knows_every_argument(values: Path, tmp_path: Path):
    documents = rendered("--values", values)
    files = next((document["data"] for document in documents if document["metadata"]["name"].endswith("-topology")), {})
    file = tmp_path / "topology.yaml"
    file.write_text(files.get("topology.yaml") or topology_of(by_values("minimal")), encoding="utf-8")
    for pod in pods(documents):
        command, *arguments = pod["containers"][0]["args"]
        settings = [argument.replace("$(POD_NAME)", "rel-0") for argument in arguments if argument.startswith("--set=")]
        assert settings
        checked = streamkit("validate", file, *settings)
        assert checked.code == 0, checked.out + checked.err
        options = {name.split("=")[0] for name in arguments if name.startswith("--")}
        shown = streamkit(command, "--help").out
        assert not [option for option in options if option not in shown]


def test_another_topology_rolls_the_pods_and_the_same_one_does_not():
    def checksum(*options: str) -> str:
        template = one(rendered("--values", VALUES[-1], *options), "StatefulSet")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/topology"])

    assert checksum() == checksum("--set", "replicas=5")
    assert checksum() != checksum("--set-string", "topology.files.more\\.py=x = 1")


def test_the_check_before_an_upgrade_sees_the_new_files():
    documents = rendered("--values", Path(__file__).parent / "values" / "minimal.yaml", upgrade=True)
    hooks = {document["kind"]: document for document in documents if "annotations" in document["metadata"]}
    assert set(hooks) == {"ConfigMap", "Job"}
    job = hooks["Job"]["spec"]["template"]["spec"]
    assert hooks["Job"]["spec"]["backoffLimit"] == 0
    assert hooks["ConfigMap"]["data"] == one_config_map(documents)["data"]
    assert {"name": "topology", "configMap": {"name": hooks["ConfigMap"]["metadata"]["name"]}} in job["volumes"]
    assert job["containers"][0]["args"][:3] == ["diff", "--running", "/app/topology.yaml"]


def test_static_members_are_named_by_their_pods():
    arguments = one(by_values("standbys"), "StatefulSet")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--set=consumer.group.instance.id=$(POD_NAME)" in arguments
    assert "--set=num.standby.replicas=1" in arguments
    without = one(by_values("config-map"), "StatefulSet")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert not [argument for argument in without if "group.instance.id" in argument]


def test_keda_scales_the_stateful_set_and_no_replicas_are_fixed():
    documents = by_values("autoscaled")
    scaled = one(documents, "ScaledObject")["spec"]
    assert scaled["scaleTargetRef"]["name"] == one(documents, "StatefulSet")["metadata"]["name"]
    assert "replicas" not in one(documents, "StatefulSet")["spec"]
    assert scaled["maxReplicaCount"] == 4
    assert scaled["triggers"][0]["metadata"]["consumerGroup"] == "payments"
    assert scaled["triggers"][0]["metadata"]["allowIdleConsumers"] == "false"


def test_rules_and_dashboard_are_those_of_the_files():
    documents = by_values("monitored")
    assert one(documents, "PrometheusRule")["spec"] == yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    boards = [document for document in documents if document["metadata"]["name"].endswith("-dashboard")]
    assert json.loads(boards[0]["data"]["streamkit.json"])["title"] == "streamkit"
    authorization = one(documents, "ServiceMonitor")["spec"]["endpoints"][0]["authorization"]
    secret = one(documents, "Secret")
    assert authorization["credentials"] == {"name": secret["metadata"]["name"], "key": next(iter(secret["data"]))}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("topology.file=other.yaml", "topology.file is other.yaml, but topology.files has only topology.yaml"),
        ("config.state\\.dir=/x", "config: state.dir is set by the chart"),
        ("replica=3", "additional properties 'replica' not allowed"),
        ("autoscaling.enabled=true", "autoscaling.consumerGroup: the `application` of the topology"),
        ("kafka.bootstrapServers=kafka", "kafka"),
    ],
)
def test_mistakes_in_values_are_named(option: str, message: str):
    done = helm(
        "template", "rel", CHART, "--values", Path(__file__).parent / "values" / "minimal.yaml", "--set", option
    )
    assert done.returncode != 0
    assert message in done.stderr


def test_a_topology_is_required():
    done = helm("template", "rel", CHART)
    assert done.returncode != 0
    assert "topology: give files" in done.stderr
