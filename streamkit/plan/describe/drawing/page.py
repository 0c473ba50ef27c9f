"""The drawing as one HTML page that needs nothing from elsewhere: by itself, or alive where an application serves it."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from streamkit.plan.describe.drawing.picture import picture_of
from streamkit.plan.describe.drawing.svg import svg_of
from streamkit.plan.model import Plan
from streamkit.state.reading import kinds_of


def describe_html(plan: Plan) -> str:
    """Return the topology as a page."""
    return page_of(plan, live=False)


def page_of(plan: Plan, *, live: bool) -> str:
    """Return the page of a plan; `live`: it asks the server that it came from for state, rates and rows."""
    template = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(plan.application),
        summary=escape(_summary(plan)),
        svg=svg_of(picture_of(plan), plan.application),
        data=_script(_data(plan, live)),
    )


def _summary(plan: Plan) -> str:
    subs = sum(not sub.is_global for sub in plan.sub_topologies)
    counts = ((subs, "sub-topology", "sub-topologies"), (len(plan.stores), "store", "stores"))
    return ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in counts)


def _data(plan: Plan, live: bool) -> dict[str, Any]:
    subs = {name: sub for sub in plan.sub_topologies for name in sub.stores}
    return {
        "live": live,
        "stores": [
            {
                "name": name,
                "type": store.type.removeprefix("timestamped_"),
                "sub": subs[name].id,
                "global": subs[name].is_global,
                "queries": list(kinds_of(store.type)),
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


def _script(data: Any) -> str:
    """Return data as JavaScript that can't end the script it stands in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
