"""The page of several applications in Chromium: it asks for the token, and shows each application with a link."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from streamkit.http.endpoint_app import HttpServer
from streamkit.plan import load
from tests.browser.accessibility import severe
from tests.browser.chromium import Browser
from tests.http.support import SHOP


def test_the_overview_requires_a_token_and_shows_all_applications(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP)
    plan = load(tmp_path / "shop.yaml")
    status = SimpleNamespace(state="RUNNING", shown_state="PAUSED", tasks=[1, 2], rate=1234.5, lag=None)
    application: Any = SimpleNamespace(plan=plan, status=lambda: status)
    server = HttpServer("127.0.0.1", 0, "s3cret")
    try:
        server.start_overview(lambda: [(application, "10.0.0.1:4711")], plan.config)
        browser.open(f"http://{server.address}/")
        browser.until("!byId('login').hidden")
        assert browser.evaluate("byId('applications').rows.length") == 0
        assert severe(browser) == []
        browser.evaluate("byId('token').value = 's3cret'; byId('token-form').requestSubmit()")
        browser.until("byId('applications').rows.length === 1 && byId('login').hidden")
        cells = "[...byId('applications').rows[0].cells].map(each => each.textContent)"
        assert browser.evaluate(cells) == ["shop", str(tmp_path / "shop.yaml"), "PAUSED", "2", "1,235", ""]
        assert browser.evaluate("document.querySelector('#applications a').href") == "http://127.0.0.1:4711/"
        assert severe(browser) == []
    finally:
        server.close()
