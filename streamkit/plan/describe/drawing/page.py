"""The drawing as a self-contained HTML page, to which the page of a running application adds further parts."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from streamkit.plan.describe.drawing.picture import Picture, picture_style, pictures_of, svg_of
from streamkit.plan.model import Plan


@dataclass(frozen=True)
class Parts:
    """The parts of a page in addition to the drawing.

    body: a template with `title` and `topology`; data: added to what scripts know of the topology.
    """

    body: str
    style: str
    script: str
    data: Mapping[str, object]


@dataclass(frozen=True)
class Page:
    """A page in one file, with the policy (Content-Security-Policy) by which it runs its own style and script only."""

    html: str
    policy: str


def describe_html(plan: Plan) -> str:
    """Return the topology as a page."""
    parts = Parts(_text("static.html"), "", _text("static.js"), {"nodes": node_steps(plan)})
    page = page_of(plan, pictures_of(plan), parts)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{page.policy}">'
    return page.html.replace("<title>", f"{meta}\n<title>", 1)


def page_of(plan: Plan, pictures: Sequence[Picture], parts: Parts) -> Page:
    """Return the page of a plan, which shows the picture that fits its window best."""
    title = escape(plan.application)
    first, *others = (svg_of(picture, plan.application) for picture in pictures)
    topology = Template(_text("topology.html")).substitute(
        summary=escape(_summary(plan)), svg=first + "".join(f"<template>{svg}</template>" for svg in others)
    )
    style = page_style() + picture_style() + parts.style
    data = f"const TOPOLOGY = {_script({**_data(plan), **parts.data})};\n"
    script = f'"use strict";\n{data}{_text("common.js")}{_text("graph.js")}{parts.script}'
    html = Template(_text("page.html")).substitute(
        title=title, style=style, body=Template(parts.body).substitute(title=title, topology=topology), script=script
    )
    return Page(html, policy(style, script))


def policy(style: str, script: str = "") -> str:
    """Return a policy that allows the text of one style and one script element, by their hashes, and nothing else."""
    allowed = "; ".join(f"{kind}-src {_hash(text)}" for kind, text in (("style", style), ("script", script)) if text)
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def page_style() -> str:
    """Return the style that all pages share."""
    return _text("page.css")


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _summary(plan: Plan) -> str:
    subs = sum(not sub.is_global for sub in plan.sub_topologies)
    counts = ((subs, "sub-topology", "sub-topologies"), (len(plan.stores), "store", "stores"))
    return ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in counts)


def _data(plan: Plan) -> dict[str, object]:
    subs = {name: sub for sub in plan.sub_topologies for name in sub.stores}
    return {
        "stores": [
            {
                "name": name,
                "type": store.type.removeprefix("timestamped_"),
                "sub": subs[name].id,
                "global": subs[name].is_global,
                "queries": list(store.kind.queries),
                "changelog": plan.changelog_name(name),
            }
            for name, store in plan.stores.items()
            if name in subs
        ],
        "topics": [
            {"name": topic.name, "use": " and ".join(_uses(topic.read, topic.written)) or "not used"}
            for topic in plan.external_topics.values()
        ]
        + [{"name": plan.internal_name(name), "use": topic.kind} for name, topic in plan.internal_topics.items()],
    }


def _uses(read: bool, written: bool) -> list[str]:
    return [word for used, word in ((read, "input"), (written, "output")) if used]


def _script(data: object) -> str:
    """Return data as JavaScript that can't end its own script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


# The step of the file behind each node of a plan, with its lines.

MOST_LINES = 60


def node_steps(plan: Plan) -> dict[str, dict[str, object]]:
    """Return the step of each node, by the id that the node has in drawings; the lines are absent if the file is."""
    texts: dict[str, list[str]] = {}
    steps: dict[str, dict[str, object]] = {}
    for sub in plan.sub_topologies:
        for name, node in sub.nodes.items():
            origin = node.origin
            if origin is None:
                continue
            position = origin.position
            if position.file not in texts:
                texts[position.file] = _lines(position.file)
            steps[f"{sub.id} {name}"] = {
                "pipeline": origin.pipeline,
                "step": origin.step,
                "file": position.file,
                "line": position.line,
                "yaml": "\n".join(block(texts[position.file], position.line)),
            }
    return steps


def block(lines: Sequence[str], number: int) -> list[str]:
    """Return the line of a number, and those below that are indented further, without their common indentation.

    >>> block(["steps:", "  - filter:", "      if: a", "  - peek: b"], 2)
    ['- filter:', '    if: a']
    """
    if not 0 < number <= len(lines):
        return []
    indent = _indent(lines[number - 1])
    taken = [lines[number - 1]]
    for line in lines[number : number - 1 + MOST_LINES]:
        if line.strip() and _indent(line) <= indent:
            break
        taken.append(line)
    while not taken[-1].strip():
        taken.pop()
    return [line[indent:].rstrip() for line in taken]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
