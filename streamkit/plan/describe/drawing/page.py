"""The drawing as one HTML page without other files; the page of a running application has further parts in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template

from streamkit.plan.describe.drawing.picture import picture_of
from streamkit.plan.describe.drawing.svg import svg_of
from streamkit.plan.describe.node_steps import node_steps
from streamkit.plan.model import Plan

_WIDE = 900.0
"""The width in pixels beyond which a drawing takes the full width of the page."""


@dataclass(frozen=True)
class Parts:
    """What a page has beside the drawing.

    body: a template with `title`, `layout` and `topology`; data: added to what scripts know of the topology.
    """

    body: str
    style: str
    script: str
    data: Mapping[str, object]


def describe_html(plan: Plan) -> str:
    """Return the topology as a page."""
    return page_of(plan, Parts(_text("static.html"), "", _text("static.js"), {"nodes": node_steps(plan)}))


def page_of(plan: Plan, parts: Parts) -> str:
    """Return the page of a plan with these parts."""
    picture = picture_of(plan)
    title = escape(plan.application)
    topology = Template(_text("topology.html")).substitute(
        summary=escape(_summary(plan)), svg=svg_of(picture, plan.application)
    )
    layout = "wide" if picture.width > _WIDE else "tall"
    return Template(_text("page.html")).substitute(
        title=title,
        style=page_style() + parts.style,
        body=Template(parts.body).substitute(title=title, layout=layout, topology=topology),
        data=_script({**_data(plan), **parts.data}),
        script=_text("common.js") + _text("graph.js") + parts.script,
    )


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
