"""The page in a real browser: by itself, alive, with a token, and when the application goes away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamkit.plan import load
from streamkit.plan.describe import describe
from streamkit.transport.embedded import EmbeddedTransport
from tests.broker.support import until
from tests.browser.chromium import Browser
from tests.http.support import SHOP, USERS, processed, served, write_shop

TEXT = "document.body.innerText"


@pytest.fixture
def log(tmp_path: Path):
    transport = EmbeddedTransport(tmp_path / "log")
    write_shop(transport)
    yield transport
    transport.close()


def test_a_described_topology_is_a_page_that_works_offline(browser: Browser, tmp_path: Path) -> None:
    topology, page = tmp_path / "topology.yaml", tmp_path / "page.html"
    topology.write_text(SHOP)
    page.write_text(describe(load(topology), "html"))
    browser.offline()
    browser.open(page.as_uri())
    assert browser.evaluate("document.title") == "shop"
    assert browser.evaluate("document.querySelectorAll('#graph .node.store').length") >= 8
    assert browser.evaluate("document.querySelector('#graph svg').getBoundingClientRect().width") > 300
    assert "per-session" in browser.evaluate("byId('stores').innerText")
    browser.evaluate(
        "document.querySelector('#graph .node.processor').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    assert "prices: {table: prices" in browser.evaluate("byId('details').innerText")
    # Nothing on the page is wider than the window.
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_what_happens_is_shown_on_the_page(browser: Browser, tmp_path: Path, log: EmbeddedTransport) -> None:
    with served(tmp_path / "a", log) as (address, _):
        processed(address, 3 * len(USERS))
        browser.open(f"http://{address}/")
        browser.until("byId('state').innerText === 'RUNNING'")
        browser.until("byId('lag').innerText === '0' && byId('tasks-total').innerText === '6'")
        assert browser.evaluate("document.querySelectorAll('#instances .thread').length") == 2
        assert browser.evaluate("document.querySelectorAll('#instances .task').length") == 6
        assert address in browser.evaluate("byId('instances').innerText")
        edge = "[...document.querySelectorAll('#graph text.live[data-kind=in]')].map(each => each.textContent)"
        browser.until(f"{edge}.some(text => text.endsWith('/s'))")


def test_edges_show_rate_and_lag_while_records_come(browser: Browser, tmp_path: Path, log: EmbeddedTransport) -> None:
    with served(tmp_path / "a", log) as (address, _):
        browser.open(f"http://{address}/")
        processed(address, 3 * len(USERS))
        producer = log.producer()

        def shown(expression: str) -> bool:
            """Write more, and return whether the page shows it: a rate is one of the last seconds."""
            producer.send([("orders", user.encode(), b'{"n":1}', 40_000, None, None) for user in USERS])
            producer.flush()
            return browser.evaluate(expression)

        until(
            lambda: shown("document.querySelectorAll('#graph .line.busy[data-topic=orders]').length === 1"), "an edge"
        )
        until(lambda: shown("Number(byId('rate').innerText.replace(/[^0-9.]/g, '')) > 0"), "a rate")
        producer.close()


def test_the_query_box_answers_in_pages(browser: Browser, tmp_path: Path, log: EmbeddedTransport) -> None:
    with served(tmp_path / "a", log) as (address, _):
        processed(address, 3 * len(USERS))
        browser.open(f"http://{address}/#view-state")
        _choose(browser, "counts", "get", key="user-07")
        assert browser.until("byId('answer').innerText.includes('user-07') && byId('answer').innerText").split() == [
            "key",
            "value",
            "partition",
            "user-07",
            "3",
            browser.evaluate("byId('answer').innerText").split()[-1],
        ]
        _choose(browser, "counts", "get", key="nobody")
        browser.until("byId('answer').innerText === 'store counts has no key nobody'")
        _choose(browser, "per-window", "windows")
        browser.until("document.querySelectorAll('#answer tbody tr').length === 25 && !byId('more').hidden")
        browser.evaluate("byId('more').click()")
        browser.until("document.querySelectorAll('#answer tbody tr').length === 15 && byId('more').hidden")
        _choose(browser, "prices", "get", key="apple", as_of="15")
        browser.until("byId('answer').innerText.includes('apple') && byId('answer').innerText.includes('10')")
        _choose(browser, "pairs-this-join-store", "all")
        browser.until("document.querySelectorAll('#answer tbody tr').length === 20")


def test_the_sql_box_answers_and_shows_mistakes(browser: Browser, tmp_path: Path, log: EmbeddedTransport) -> None:
    with served(tmp_path / "a", log) as (address, _):
        processed(address, 3 * len(USERS))
        browser.open(f"http://{address}/#view-state")
        run = "byId('sql-text').value = {}; byId('sql').requestSubmit()"
        sql = 'SELECT c.key, c.value AS n FROM counts c JOIN "per-window" w USING (key) GROUP BY ALL ORDER BY 1 DESC LIMIT 2'
        browser.evaluate(run.format(json.dumps(sql)))
        shown = "[...document.querySelectorAll('#sql-answer tr')].map(row => row.innerText.split(/\\s+/).join(' '))"
        last, before = sorted(USERS)[:-3:-1]
        assert browser.until(f"{shown}.length === 3 && {shown}") == ["key n", f"{last} 3", f"{before} 3"]
        assert browser.evaluate("byId('sql-note').innerText") == "2 rows"
        browser.evaluate(run.format(json.dumps("SELECT valu FROM counts")))
        problem = "document.querySelector('#sql-answer .problem')?.innerText"
        expected = "query:1:8: there is no column 'valu'; did you mean 'value'?"
        assert browser.until(problem).startswith(expected)


def _choose(browser: Browser, store: str, kind: str, **fields: str) -> None:
    browser.evaluate(
        f"byId('store').value = {store!r}; byId('store').onchange(); byId('kind').value = {kind!r}; fields()"
    )
    for name, value in fields.items():
        browser.evaluate(f"byId('q-{name}').value = {value!r}")
    browser.evaluate("byId('query').requestSubmit()")


def test_restoring_is_shown_with_what_is_left(browser: Browser, tmp_path: Path, log: EmbeddedTransport) -> None:
    with served(tmp_path / "a", log) as (address, _):
        browser.open(f"http://{address}/")
        browser.until("byId('state').innerText === 'RUNNING'")
        assert browser.evaluate("byId('restoring-card').hidden")
        running = {
            "store": "counts",
            "task": "0_1",
            "restored": 25_000,
            "total": 100_000,
            "rate": 500.0,
            "eta_seconds": 150.0,
        }
        # In one call: the next status, in which nothing is restored, comes within a second.
        text, width = browser.evaluate(
            f"(showRestoring([{{restoring: [{json.dumps(running)}]}}]), "
            "[byId('restoring-card').innerText, document.querySelector('#restoring .bar i').style.width])"
        )
        assert "25.0 k of 100.0 k · 500/s · ETA 2 min 30 s" in text
        assert width == "25%"


def test_the_page_requests_a_token_and_keeps_it(browser: Browser, tmp_path: Path, log: EmbeddedTransport) -> None:
    with served(tmp_path / "a", log, token="s3cret") as (address, _):
        browser.open(f"http://{address}/")
        browser.until("!byId('login').hidden")
        browser.evaluate("byId('token').value = 's3cret'; byId('token-form').requestSubmit()")
        browser.until("byId('state').innerText === 'RUNNING' && byId('login').hidden")
        browser.open(f"http://{address}/")
        browser.until("byId('state').innerText === 'RUNNING'")
        assert browser.evaluate("byId('login').hidden")


def test_the_page_reports_that_the_application_no_longer_answers(
    browser: Browser, tmp_path: Path, log: EmbeddedTransport
) -> None:
    with served(tmp_path / "a", log) as (address, _):
        browser.open(f"http://{address}/")
        browser.until("byId('state').innerText === 'RUNNING'")
    browser.until("!byId('problem').hidden && byId('problem').innerText.startsWith('No answer')")


REBOUND = "shop.evil.example"
PAUSE = "fetch('/pause', {method: 'POST'}).then(answer => answer.status)"


@pytest.mark.parametrize("access", [{"hosts": "shop.example"}, {"token": "s3cret"}], ids=["hosts", "token"])
def test_a_page_whose_name_leads_here_changes_nothing(
    access: dict[str, str], tmp_path: Path, log: EmbeddedTransport
) -> None:
    rules = f"MAP {REBOUND} 127.0.0.1,MAP shop.example 127.0.0.1,MAP other.example 127.0.0.1"
    browser = Browser(arguments=[f"--host-resolver-rules={rules}"])
    try:
        with served(tmp_path / "app", log, host="0.0.0.0", **access) as (address, application):
            port = address.rpartition(":")[2]
            # The name belongs to the attacker's site, whose scripts run in this origin; its address is that of the server now.
            browser.open(f"http://{REBOUND}:{port}/")
            assert browser.evaluate(PAUSE) == (403 if "hosts" in access else 401)
            assert not application.paused
            # A page of another site, whose form needs no permission of the browser.
            browser.open(f"http://shop.example:{port}/api")
            browser.open(f"http://other.example:{port}/health")
            cross = f"fetch('http://shop.example:{port}/pause', {{method: 'POST', mode: 'no-cors'}}).then(() => true)"
            assert browser.evaluate(cross)
            assert not application.paused
            # The server's own page can.
            browser.open(f"http://shop.example:{port}/api")
            own = PAUSE.replace("'POST'", "'POST', headers: {Authorization: 'Bearer s3cret'}")
            assert browser.evaluate(own) == 200
            assert application.paused
    finally:
        browser.close()
