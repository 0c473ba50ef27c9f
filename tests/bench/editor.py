"""Measures how long the language server takes for its answers: `python -m tests.bench.editor`.

Prints p50 and p99, in milliseconds, of completion and of the problems of a file after a keystroke (without the pause), on files of 200, 2,000 and 10,000 lines, with the analysis in another thread as in the server, which also answers the completion
meanwhile; the CPU time of the analysis, which other work of the machine changes less; and the time from the start of a process to its first answer, and the load of the machine.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from streamkit.editor.analysis import Analysis
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
    published = queue.Queue[float]()
    project = Project(
        Options(debounce_ms=0), "utf-16", lambda found: None, lambda uri, version: published.put(time.perf_counter())
    )
    path = folder / "big.yaml"
    uri, text = path.as_uri(), text_of(lines)
    answers, problems, busy = list[float](), list[float](), list[float]()
    analysis = project.worker._analyse

    def counted(text: Text, is_old: Callable[[], bool]) -> Analysis | None:
        began = time.thread_time()
        found = analysis(text, is_old)
        busy.append((time.thread_time() - began) * 1000)
        return found

    project.worker._analyse = counted
    at = text.rindex("value.amount > ") + len("value.")
    for turn in range(ROUNDS):
        typed = text[:at] + "am"[: turn % 3] + text[at:]
        found = Text(str(path), typed, turn)
        began = time.perf_counter()
        project.open(uri, typed, turn)
        completions(project, uri, project.text(uri), found.at(at))
        answers.append((time.perf_counter() - began) * 1000)
        problems.append((published.get() - began) * 1000)
    project.worker.close()
    count = len(text.splitlines())
    return f"| {count:,} | {shown(answers)} | {shown(problems)} | {shown(busy)} |"


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
    print(f"load: {os.getloadavg()[0]:.0f}, cores: {os.cpu_count()}")
    print(f"start: {median(start() for _ in range(9)):.0f} ms\n")
    print("| lines | completion p50 | p99 | problems p50 | p99 | their CPU p50 | p99 |")
    print("|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as folder:
        for lines in (200, 2_000, 10_000):
            print(measure(lines, Path(folder)), flush=True)
