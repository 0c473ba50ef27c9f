"""The results of the benchmark as a table, as JSON and as a picture."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from pathlib import Path
from typing import Any

from tests.bench.programs import BEFORE, BY_HAND, JAVA, QUIX, STREAMKIT, WITHOUT

PROGRAMS = (STREAMKIT, WITHOUT, JAVA, BY_HAND, QUIX, BEFORE)
COLOURS = {
    STREAMKIT: "#2563eb",
    WITHOUT: "#93c5fd",
    JAVA: "#f59e0b",
    BY_HAND: "#9ca3af",
    QUIX: "#10b981",
    BEFORE: "#93c5fd",
}


def machine() -> str:
    """What the numbers were taken on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    release = java[0] if java else "no Java"
    return (
        f"{model}, {os.cpu_count()} CPUs, Python {platform.python_version()}, {release}, load {os.getloadavg()[0]:.1f}"
    )


def summary(name: str, title: str, runs: dict[str, list[float]], better: str = "more", **more: Any) -> dict[str, Any]:
    """Medians and ratios of one measurement; `better`: whether more or less is; a ratio above 1 is always better."""
    medians = {program: statistics.median(each) for program, each in runs.items()}
    own = medians[STREAMKIT]
    ratios = {
        program: round(own / each if better == "more" else each / own, 3)
        for program, each in medians.items()
        if program != STREAMKIT
    }
    rounded = {program: [round(each, 2) for each in values] for program, values in runs.items()}
    return {"name": name, "title": title, "runs": rounded, "median": medians, "ratio": ratios, **more}


def table(results: list[dict[str, Any]]) -> str:
    """A Markdown table of medians and of streamkit's ratio to each."""
    programs = [program for program in PROGRAMS if any(program in each["median"] for each in results)]
    head = ["", *programs, *(f"ratio to {program}" for program in programs[1:]), "output"]
    rows = [head, ["---", *["---:"] * (len(head) - 2), "---"]]
    for each in results:
        medians = [_number(each["median"].get(program)) for program in programs]
        ratios = [f"{each['ratio'][program]:.2f}" if program in each["ratio"] else "" for program in programs[1:]]
        same = {True: "same", False: "DIFFERENT"}.get(each.get("same output"), "")
        rows.append([f"{each['title']} ({each['unit']})", *medians, *ratios, same])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def picture(results: list[dict[str, Any]]) -> str:
    """An SVG of bars: each program's rate relative to Kafka Streams."""
    shown = [each for each in results if each["unit"] == "records/s" and JAVA in each["median"]]
    left, width, bar, gap = 230, 420, 14, 18
    top = max(
        (each["median"][program] / each["median"][JAVA] for each in shown for program in each["median"]), default=1
    )
    lines, y = [], 40
    for each in shown:
        present = [program for program in PROGRAMS if program in each["median"]]
        middle = y + bar * len(present) / 2 + 4
        lines.append(f'<text x="{left - 10}" y="{middle:.0f}" text-anchor="end">{each["title"]}</text>')
        for program in present:
            ratio = each["median"][program] / each["median"][JAVA]
            length = max(1, ratio / top * width)
            lines.append(
                f'<rect x="{left}" y="{y}" width="{length:.0f}" height="{bar - 2}" fill="{COLOURS[program]}"/>'
            )
            lines.append(f'<text x="{left + length + 5:.0f}" y="{y + bar - 4}" class="small">{ratio:.2f}</text>')
            y += bar
        y += gap
    legend = "".join(
        f'<rect x="{left + 110 * place}" y="10" width="12" height="12" fill="{COLOURS[program]}"/>'
        f'<text x="{left + 110 * place + 17}" y="20">{program}</text>'
        for place, program in enumerate(PROGRAMS)
    )
    style = "<style>text{font:13px sans-serif;fill:#374151}.small{font-size:11px}</style>"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 80} {y}">{style}'
        f'<rect width="100%" height="100%" fill="white"/>{legend}{"".join(lines)}</svg>\n'
    )
