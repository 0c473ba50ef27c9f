"""The panels of the Grafana dashboard, shown by Prometheus: its queries as a console page over a real application."""

from __future__ import annotations

import html
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.browser.chromium import Browser
from tests.packaging.environments import ROOT
from tests.ports import free_ports
from tests.requirements import tool

DASHBOARD = ROOT / "deploy" / "helm" / "streamkit" / "files" / "dashboard.json"
SIZE = (1440, 1180)
SECONDS = 90
"""The time that the graphs show."""
# What Grafana puts in place of its variables.
_VARIABLES = {"$job": ".+", "$__rate_interval": "15s", "$__range": f"{SECONDS}s"}
_STATIC = "/classic/static"
_HEAD = f"""<!doctype html><meta charset="utf-8"><title>Dashboard</title>
<link rel="stylesheet" href="{_STATIC}/rickshaw/rickshaw.min.css">
<link rel="stylesheet" href="{_STATIC}/css/prom_console.css">
<script src="{_STATIC}/d3/d3.min.js"></script><script src="{_STATIC}/rickshaw/rickshaw.min.js"></script>
<script src="{_STATIC}/jquery/jquery.min.js"></script>
<script>PATH_PREFIX = ""</script><script src="{_STATIC}/js/prom_console.js"></script>
<style>
  body {{ font: 14px sans-serif; margin: 16px; display: grid; grid-template-columns: repeat(24, 1fr); gap: 12px; background: #f4f5f5; }}
  section {{ background: white; border: 1px solid #dcdcdc; border-radius: 3px; padding: 8px 12px; overflow: hidden; }}
  h2 {{ font-size: 14px; font-weight: 500; margin: 0 0 8px; }}
  .value {{ font-size: 34px; text-align: center; color: #287d3c; }}
</style>
"""
_GRAPH = """<script>
new PromConsole.Graph({{
  node: document.querySelector("#p{at}"), expr: {expressions}, min: 0, height: 170, width: 560, renderer: "{renderer}", duration: {seconds},
  endTime: Date.now() / 1000,
  name: {names}.map(name => labels => name.replace(/{{{{(\\w+)}}}}/g, (_, label) => labels[label])),
  yAxisFormatter: y => y ? PromConsole.NumberFormatter.humanize(y) : "0", xTitle: " ", yTitle: " ",
}})
</script>"""


def take_picture(addresses: Sequence[str], folder: Path, path: Path) -> None:
    """Scrape instances until the graphs are full, and write what Prometheus shows of the dashboard's queries."""
    with _prometheus(addresses, folder) as server:
        browser = Browser(*SIZE)
        try:
            query = f"count_over_time(up[{SECONDS}s])"
            browser.open(f"{server}/consoles/dashboard.html")
            browser.until(
                f"fetch('/api/v1/query?query={query}').then(answer => answer.json())"
                f".then(answer => Number((answer.data.result[0] || {{value: [0, 0]}}).value[1]) >= {SECONDS - 5})"
            )
            browser.reload()
            browser.until("document.querySelector('section svg') && !document.querySelector('.prom_graph_loading')")
            browser.screenshot(path)
        finally:
            browser.close()


@contextmanager
def _prometheus(addresses: Sequence[str], folder: Path) -> Iterator[str]:
    """Run Prometheus, which scrapes the instances each second and has the page; give its address."""
    (folder / "consoles").mkdir()
    (folder / "consoles" / "dashboard.html").write_text(_console(), encoding="utf-8")
    targets = [
        {"targets": [address], "labels": {"instance": f"word-count-{at}"}} for at, address in enumerate(addresses)
    ]
    scrape = {"job_name": "word-count", "static_configs": targets}
    file = folder / "prometheus.yaml"
    file.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]}), encoding="utf-8")
    (port,) = free_ports(1)
    command = [
        *(tool("prometheus"), f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"),
        *(f"--web.listen-address=127.0.0.1:{port}", f"--web.console.templates={folder / 'consoles'}"),
        f"--web.console.libraries={folder / 'none'}",
    ]
    with open(folder / "prometheus.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return panels


def _console() -> str:
    """Return a template of a console with the panels, each at its place."""
    return _HEAD + "\n".join(_panel(at, panel) for at, panel in enumerate(_panels()))


def _panel(at: int, panel: dict[str, Any]) -> str:
    expressions = [_filled(target["expr"]) for target in panel["targets"]]
    head = f'<section style="grid-column: span {panel["gridPos"]["w"]}"><h2>{html.escape(panel["title"])}</h2>'
    if panel["type"] == "stat":
        value = f"{{{{ with query `{expressions[0]}` }}}}{{{{ . | first | value | humanize }}}}{{{{ end }}}}"
        return f'{head}<div class="value">{value}</div></section>'
    stacked = "stacking" in panel["fieldConfig"]["defaults"].get("custom", {})
    names = [target.get("legendFormat") or "" for target in panel["targets"]]
    graph = _GRAPH.format(
        at=at,
        expressions=json.dumps(expressions),
        names=json.dumps(names),
        renderer="area" if stacked else "line",
        seconds=SECONDS,
    )
    # The template language of consoles has double braces of its own.
    graph = graph.replace("{{", '{{ "{{" }}')
    return f'{head}<div id="p{at}"></div>{graph}</section>'


def _filled(expression: str) -> str:
    for name, value in _VARIABLES.items():
        expression = expression.replace(name, value)
    return expression
