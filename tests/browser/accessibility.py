"""What axe-core finds on the page that a browser shows."""

from __future__ import annotations

import json
from importlib.resources import files

from tests.browser.chromium import Browser

SEVERE = ("serious", "critical")


def severe(browser: Browser) -> list[str]:
    """Return the serious and critical violations, each with the elements that it concerns."""
    if not browser.evaluate("typeof axe !== 'undefined'"):
        browser.evaluate(files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8") + "; 0")
    found = json.loads(browser.evaluate("axe.run().then(found => JSON.stringify(found.violations))"))
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes'][:5]]}"
        for each in found
        if each["impact"] in SEVERE
    ]
