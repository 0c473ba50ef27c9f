"""Measures how long the language server takes for its answers: `python -m tests.bench.editor`.

Prints p50 and p99, in milliseconds, of completion, of the problems of a file after a keystroke (without the pause) and of all references to
a topic, on files of 200, 2,000 and 10,000 lines, with the analysis in another thread as in the server; and the time from the start
of a process to its first answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from streamkit.editor.analysis import analyse
from streamkit.editor.navigation import references
from streamkit.editor.project import Options, Project
from streamkit.editor.server import prepare_for_two_threads
from streamkit.editor.texts import Text
from streamkit.editor.typing_help import completions, place_in_topology

ROUNDS = 40
STEPS = """\
  p{n}:
    stream: in{n}
    steps:
      - filter: value.amount > {n} and len(key) > 0
      - map_values: {{value: "merge(value, {{'total': value.amount * 2}})", value_serde: json}}
      - group_by_key
      - window:
          tumbling: 5m
          grace: 1m
      - count: counts{n}
      - to_stream:
          key: key.key
    to: out{n}
"""


def text_of(lines: int) -> str:
    """Return a topology of about so many lines."""
    pipelines = range(lines // 15)
    topics = "".join(
        f"  in{n}: {{key: string, value: json}}\n  out{n}: {{key: string, value: long}}\n" for n in pipelines
    )
    return f"streamkit: 1\napplication: big\ntopics:\n{topics}pipelines:\n" + "".join(
        STEPS.format(n=n) for n in pipelines
    )


def measure(lines: int, folder: Path) -> str:
    """Return a row of the table."""
    project = Project(Options(debounce_ms=0), "utf-16", lambda found: None, lambda uri, version: None)
    path = folder / "big.yaml"
    uri, text = path.as_uri(), text_of(lines)
    answers, problems, names = list[float](), list[float](), list[float]()
    at = text.rindex("value.amount > ") + len("value.")
    for turn in range(ROUNDS):
        typed = text[:at] + "am"[: turn % 3] + text[at:]
        project.open(uri, typed, turn)
        found = Text(str(path), typed, turn)
        began = time.perf_counter()
        completions(project, uri, project.text(uri), found.at(at))
        answers.append((time.perf_counter() - began) * 1000)
        while project.analysis(uri) is None or project.analysis(uri).text.version != turn:  # type: ignore[union-attr]
            time.sleep(0.002)
        began = time.perf_counter()
        analyse(found, project.texts, {})
        problems.append((time.perf_counter() - began) * 1000)
        began = time.perf_counter()
        assert references(project, uri, project.text(uri), found.at(found.text.rindex(": out") + 3), True)
        names.append((time.perf_counter() - began) * 1000)
    project.worker.close()
    count = len(text.splitlines())
    return f"| {count:,} | {shown(answers)} | {shown(problems)} | {shown(names)} |"


def start() -> float:
    """Return how long a server takes for its first answer, in milliseconds."""
    params = {"capabilities": {}, "processId": None, "rootUri": None}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
    began = time.perf_counter()
    command = [sys.executable, "-m", "streamkit_cli", "lsp"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(message), message))
        server.stdin.flush()
        server.stdout.readline()
        took = (time.perf_counter() - began) * 1000
        server.kill()
    return took


def shown(times: list[float]) -> str:
    """Return the two columns of p50 and p99."""
    parts = quantiles(times, n=100, method="inclusive")
    return f"{parts[49]:.0f} | {parts[98]:.0f}"


if __name__ == "__main__":
    prepare_for_two_threads()
    place_in_topology(())
    print(f"start: {median(start() for _ in range(9)):.0f} ms\n")
    print("| lines | completion p50 | p99 | problems p50 | p99 | references p50 | p99 |\n|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as folder:
        for lines in (200, 2_000, 10_000):
            print(measure(lines, Path(folder)), flush=True)
