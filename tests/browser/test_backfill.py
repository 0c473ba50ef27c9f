"""The page after a backfill, with five pipelines, in Chromium: what its charts, its topology and its cards show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamkit.transport.embedded import EmbeddedTransport
from tests.browser.accessibility import severe
from tests.browser.backfill import DAY_MS, OLDEST_DAYS, backfilled
from tests.browser.chromium import Browser

WIDE, PHONE = (1440, 900), (390, 844)
_TITLES = "[...document.querySelectorAll('#graph .title')].map(each => each.getBoundingClientRect())"
_TICKS = "[...document.querySelectorAll('.chart[data-name={}] .plot span')].map(each => each.innerText)"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    log = EmbeddedTransport(tmp_path / "log")
    try:
        with backfilled(tmp_path, log, 300) as found:
            yield found
    finally:
        log.close()


def opened(browser: Browser, address: str) -> None:
    browser.open(f"http://{address}/")
    browser.until("!byId('state').hidden && !byId('history').hidden")
    browser.until("document.querySelectorAll('#graph .line.busy').length >= 5")


def test_five_pipelines_are_readable_and_fill_their_frame(browser: Browser, address: str) -> None:
    browser.resize(*WIDE)
    opened(browser, address)
    assert browser.evaluate(f"Math.min(...{_TITLES}.map(box => box.height))") >= 11
    frame = browser.evaluate(
        "(box => [box.left, box.right, box.top, box.bottom])(byId('graph').getBoundingClientRect())"
    )
    nodes = browser.evaluate(
        "[...document.querySelectorAll('#graph .node')].map(each => each.getBoundingClientRect())"
        ".map(box => [box.left, box.right, box.top, box.bottom])"
    )
    left, right = min(each[0] for each in nodes), max(each[1] for each in nodes)
    assert right - left > 0.92 * (frame[1] - frame[0])
    assert all(frame[2] <= each[2] and each[3] <= frame[3] for each in nodes)
    # The whole of it is seen without scrolling, beside the charts and the banner.
    assert frame[3] <= WIDE[1]
    # On a phone it is another picture, downwards.
    browser.resize(*PHONE)
    browser.until(
        "document.querySelector('#graph svg').viewBox.baseVal.height > document.querySelector('#graph svg').viewBox.baseVal.width"
    )
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.evaluate(f"Math.min(...{_TITLES}.map(box => box.height))") >= 6
    browser.resize(*WIDE)
    browser.until(
        "document.querySelector('#graph svg').viewBox.baseVal.height < document.querySelector('#graph svg').viewBox.baseVal.width"
    )


def test_cards_leave_no_holes(browser: Browser, address: str) -> None:
    for width in (1440, 1024, 390):
        browser.resize(width, 900)
        opened(browser, address)
        holes = """[...document.querySelectorAll('#overview .columns')].map(grid => {
            const area = grid.getBoundingClientRect(), gap = parseFloat(getComputedStyle(grid).gap);
            const columns = [...grid.children].map(each => each.getBoundingClientRect());
            const ends = [...grid.children].map(each => (each.classList.contains('stack') ? each.lastElementChild : each).getBoundingClientRect().bottom);
            const rows = new Set(columns.map(box => box.top));
            return rows.size === columns.length ? [] : ends.filter(end => Math.abs(end - area.bottom) > 1);
        }).flat()"""
        assert browser.evaluate(holes) == [], width


def test_latency_is_readable_after_a_backfill_and_reset(browser: Browser, address: str) -> None:
    opened(browser, address)
    # Twelve minutes: 687 days at first, some milliseconds later.
    points = [{"time": 1_000_000_000_000 + at * 5000, "rate": 5, "lag": 0, "own_lag": 0, "owned": 1, "partitions": 1, "memory": 1 << 26,
               "latency": OLDEST_DAYS * DAY_MS if at < 60 else 8 + at % 3} for at in range(145)]  # fmt: skip
    history = json.dumps({"interval_ms": 5000, "instances": [{"address": "a", "points": points}]})
    # Answers that are on their way change nothing.
    browser.evaluate(
        f"(window.take = takeHistory, takeHistory = () => {{}}, stop(), past.points.clear(), take({history}), 0)"
    )
    assert browser.evaluate(_TICKS.format("latency")) == ["1 ms", "10 s", "6 h", "1,000 d"]
    # Milliseconds are not on the axis: a tenth of its height is about a factor of ten.
    height = "Math.max(...[...document.querySelector('.chart[data-name=latency] .curve').getAttribute('d').matchAll(/ ([\\d.]+)/g)].map(each => 50 - each[1]).slice(-5))"
    assert 2 < browser.evaluate(height) < 10
    times = "[...document.querySelectorAll('.chart[data-name=rate] .times span')].map(each => each.innerText)"
    assert len(browser.evaluate(times)) >= 2
    press = "[...document.querySelectorAll('#ranges button')].find(each => each.innerText === '{}').click()"
    browser.evaluate(press.format("5 min"))
    assert browser.evaluate("Number(document.querySelector('.chart').dataset.points)") == 61
    assert browser.evaluate(_TICKS.format("latency")) == ["1 ms", "10 ms"]
    browser.evaluate(press.format("15 min"))
    assert browser.evaluate("Number(document.querySelector('.chart').dataset.points)") == 145
    browser.evaluate("byId('reset').click()")
    assert browser.evaluate("byId('reset').getAttribute('aria-pressed')") == "true"
    assert browser.evaluate("document.querySelector('.chart[data-name=latency]').dataset.points") == "0"
    assert "687" not in browser.evaluate(
        "document.querySelector('.chart[data-name=latency] svg').getAttribute('aria-label')"
    )
    browser.evaluate("byId('reset').click()")
    assert "687 days" in browser.evaluate(
        "document.querySelector('.chart[data-name=latency] svg').getAttribute('aria-label')"
    )


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(dark: bool, browser: Browser, address: str) -> None:
    if dark:
        browser.dark()
    opened(browser, address)
    assert severe(browser) == []
    browser.click("#tab-topics")
    browser.until("document.querySelectorAll('#offset-rows .partition').length >= 15")
    assert severe(browser) == []
