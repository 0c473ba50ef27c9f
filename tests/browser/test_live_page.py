"""The page of a running application in Chromium: its history, graph, records, dead letters and controls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamkit.transport.embedded import EmbeddedTransport
from tests.broker.support import until
from tests.browser.accessibility import severe
from tests.browser.chromium import Browser
from tests.browser.large import large_topology
from tests.http.support import USERS, processed, request, served, write_shop
from tests.http.test_live import bills, order

PHONE = (390, 844)
SIZES = [(1440, 900), (1024, 700), PHONE]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedTransport]:
    transport = EmbeddedTransport(tmp_path / "log")
    yield transport
    transport.close()


@pytest.fixture
def shop(tmp_path: Path, log: EmbeddedTransport) -> Iterator[str]:
    write_shop(log)
    with served(tmp_path / "a", log, **{"commit.interval.ms": 50}) as (address, _):
        processed(address, 3 * len(USERS))
        yield address


@pytest.fixture
def large(tmp_path: Path, log: EmbeddedTransport) -> Iterator[str]:
    with served(tmp_path / "a", log, text=large_topology()) as (address, _):
        yield address


def running(browser: Browser, address: str, view: str = "overview") -> None:
    """Open a view of the page, and wait until it has the state."""
    browser.open(f"http://{address}/#view-{view}")
    browser.until("!byId('state').hidden && byId('topic').options.length > 0")


def still(browser: Browser) -> None:
    """Let no later status or history change the page, whose parts would move between two calls; wait for its layout."""
    browser.evaluate(
        "show = takeHistory = () => {}; "
        "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
    )


def inside(browser: Browser) -> bool:
    """Return whether all nodes lie within the frame of the graph."""
    return browser.evaluate(
        """(frame => [...document.querySelectorAll('#graph .node, #graph .box')].map(each => each.getBoundingClientRect())
        .every(box => box.left >= frame.left - 1 && box.right <= frame.right + 1 && box.top >= frame.top - 1 &&
        box.bottom <= frame.bottom + 1))(byId('graph').getBoundingClientRect())"""
    )


def test_whole_numbers_are_shown_with_all_digits(browser: Browser, shop: str, log: EmbeddedTransport) -> None:
    producer = log.producer()
    value = b'{"n":9007199254740993,"list":[-9223372036854775808],"size":1e300}'
    producer.send([("orders", b"large", value, 50_000, None, None)])
    producer.send([("prices", b"large", (2**63 - 1).to_bytes(8, "big"), 50, None, None)])
    producer.flush()
    producer.close()
    shown = '{"n":9007199254740993,"list":[-9223372036854775808],"size":1e+300}'
    running(browser, shop, "records")
    for topic, text in (("orders", shown), ("prices", "9223372036854775807")):
        browser.evaluate(
            f"byId('b-key').value = 'large'; byId('topic').value = '{topic}'; byId('browse').requestSubmit()"
        )
        browser.until(f"byId('found').textContent.includes({text!r})")
    assert (
        browser.evaluate("text(parsed('[9007199254740991, 9007199254740993]'))")
        == "[9007199254740991,9007199254740993]"
    )


def test_the_charts_are_there_again_after_a_reload(browser: Browser, shop: str) -> None:
    running(browser, shop)
    points = "Number((document.querySelector('.chart[data-name=memory]') || {dataset: {points: 0}}).dataset.points)"
    before = browser.until(points)
    # One point is a line too.
    figures = [{"address": "a", "points": [{"time": 1e12, "rate": 5, "memory": 1}]}]
    browser.evaluate(f"(past.points.clear(), takeHistory({{interval_ms: 5000, instances: {json.dumps(figures)}}}))")
    assert "L" in browser.evaluate("document.querySelector('.chart[data-name=rate] .curve').getAttribute('d')")
    browser.reload()
    # A new point may come before the answer with the earlier ones.
    browser.until(f"{points} >= {before}")
    assert browser.evaluate(
        "document.querySelector('.chart[data-name=rate] svg').getAttribute('aria-label')"
    ).startswith("records/s: now")
    # Nothing is asked for again and again: the state is pushed. What the page asks for once may come after its first states.
    browser.evaluate("performance.clearResourceTimings(); window.first = current; 0")
    browser.until(
        "current !== window.first && (requests => (performance.clearResourceTimings(), window.first = current, "
        "requests === 0))(performance.getEntriesByType('resource').length)"
    )


_TITLES_UNDER_RATES = """(() => {
    const labels = [...document.querySelectorAll('#graph text.live[data-kind=in]')];
    labels.forEach(each => { each.textContent = '178/s · lag 40'; });
    const boxes = labels.map(each => each.getBoundingClientRect());
    return [...document.querySelectorAll('#graph .heading')].filter(each => (title => boxes.some(box =>
        box.left < title.right && title.left < box.right && box.top < title.bottom - 3 && title.top < box.bottom - 3)
    )(each.getBoundingClientRect())).map(each => each.textContent);
})()"""
_DETAILS_OVER_NODE = """(() => {
    const left = each => each.getBoundingClientRect().left;
    const nodes = [...document.querySelectorAll('#graph .node.store')].sort((a, b) => left(a) - left(b));
    const node = 'PLACE' === 'first' ? nodes[0] : nodes[nodes.length - 1];
    node.dispatchEvent(new MouseEvent('click', {bubbles: true}));
    const box = node.getBoundingClientRect(), over = byId('details').getBoundingClientRect();
    return over.left < box.right && box.left < over.right && over.top < box.bottom && box.top < over.bottom;
})()"""


@pytest.mark.parametrize("size", SIZES)
def test_a_large_topology_fits_any_window(size: tuple[int, int], browser: Browser, large: str) -> None:
    browser.resize(*size)
    running(browser, large)
    assert browser.evaluate("document.querySelectorAll('#graph .node').length") > 90
    assert browser.evaluate("document.querySelectorAll('#graph .box').length") == 8
    assert inside(browser)
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    if size[0] >= 1024:
        heights = "[...document.querySelectorAll('#graph .processor .title')].map(each => each.getBoundingClientRect().height)"
        assert browser.evaluate(f"Math.min(...{heights})") >= 7
        still(browser)
        assert browser.evaluate(_TITLES_UNDER_RATES) == []
        for place in ("first", "last"):
            assert browser.evaluate(_DETAILS_OVER_NODE.replace("PLACE", place)) is False


def test_the_lag_of_the_charts_counts_positions_and_what_no_instance_processes(browser: Browser, shop: str) -> None:
    running(browser, shop)
    # Two instances with 20 and 22 records to process, and 2,000 and 2,500 that they have not committed.
    one = {"lag": 2522, "own_lag": 20, "own_committed_lag": 2000, "owned": 4, "partitions": 8}
    two = {"lag": 2022, "own_lag": 22, "own_committed_lag": 2502, "owned": 4, "partitions": 8}
    assert browser.evaluate(f"lagOf({json.dumps([one, two])})") == 42
    # A third one is gone: 300 records wait in its partitions.
    three = [{**each, "lag": each["lag"] + 300, "partitions": 12} for each in (one, two)]
    assert browser.evaluate(f"lagOf({json.dumps(three)})") == 342
    before_a_commit = [{**each, "own_committed_lag": None} for each in three]
    assert browser.evaluate(f"lagOf({json.dumps(before_a_commit)})") == 2322


def test_the_graph_is_dragged_and_zoomed(browser: Browser, large: str) -> None:
    running(browser, large)
    # The charts of the first history move the graph down.
    still(browser)
    box = """((box, frame) => [box.left - frame.left, box.top - frame.top, box.width])(
        document.querySelector('#graph .box').getBoundingClientRect(), byId('graph').getBoundingClientRect())"""
    left, top, width = browser.evaluate(box)
    browser.evaluate("byId('zoom-in').click()")
    assert browser.evaluate(box)[2] == pytest.approx(width * 1.4, rel=0.02)
    middle = browser.evaluate(
        "(box => [box.left + box.width / 2, box.top + box.height / 2])(byId('graph').getBoundingClientRect())"
    )
    before = browser.evaluate(box)
    browser.drag(middle, (middle[0] + 90, middle[1] - 60))
    after = browser.evaluate(box)
    assert [after[0] - before[0], after[1] - before[1]] == pytest.approx([90, -60], abs=2)
    browser.evaluate("byId('fit').click()")
    assert browser.evaluate(box) == pytest.approx([left, top, width], abs=1)
    browser.evaluate("byId('graph').focus()")
    browser.press("+")
    browser.press("ArrowRight")
    assert browser.evaluate(box)[2] > width
    browser.press("0")
    assert browser.evaluate(box) == pytest.approx([left, top, width], abs=1)
    # A sub-topology is shown on its own.
    browser.click("#graph .heading")
    assert browser.evaluate(box)[2] > width


def test_a_node_shows_its_lines_and_rates(browser: Browser, shop: str, log: EmbeddedTransport) -> None:
    running(browser, shop)
    still(browser)
    browser.evaluate(
        "window.node = [...document.querySelectorAll('#graph .node')].find(each => each.textContent.includes('group_by')); node.focus()"
    )
    assert browser.evaluate("document.activeElement === node")
    browser.press("Enter")
    details = browser.until("!byId('details').hidden && byId('details').innerText")
    assert "- group_by: {key: \"{'user': key}\", key_serde: json}" in details
    assert "time per record" in details
    assert "µs in sub-topology" in details
    browser.click("#graph .node.store[data-id$='store:per-window']")
    details = browser.evaluate("byId('details').innerText")
    assert "changes" in details
    assert "rows" in details
    browser.click("#graph .node.topic[data-id='topic orders']")
    browser.evaluate(
        "[...document.querySelectorAll('#details button')].find(each => each.innerText === 'browse').click()"
    )
    browser.until("document.querySelectorAll('#found tbody tr').length === 50")
    assert browser.evaluate("byId('topic').value") == "orders"


def test_records_are_browsed_and_followed(browser: Browser, shop: str, log: EmbeddedTransport) -> None:
    running(browser, shop, "records")
    browser.evaluate("byId('topic').value = 'orders'; byId('b-key').value = 'user-07'; byId('browse').requestSubmit()")
    browser.until("document.querySelectorAll('#found tbody tr').length === 3")
    assert "30001" in browser.evaluate("byId('found').innerText")
    browser.evaluate("byId('b-from').value = '3000'; byId('b-to').value = '30s'; byId('browse').requestSubmit()")
    browser.until("byId('browse-note').innerText.startsWith('1 record, the oldest first')")
    assert "3001" in browser.evaluate("byId('found').innerText")
    browser.evaluate("byId('b-to').value = ''; byId('b-limit').value = '2'; byId('browse').requestSubmit()")
    browser.until("document.querySelectorAll('#found tbody tr').length === 2")
    browser.evaluate("byId('b-from').value = 'soon'; byId('browse').requestSubmit()")
    browser.until("byId('browse-note').innerText.includes('from soon')")
    browser.evaluate("byId('b-from').value = byId('b-key').value = ''; byId('live').click()")
    browser.until("byId('browse-note').innerText === '0 new records'")
    until(lambda: _written(browser, log), "the new record is shown")
    assert browser.evaluate("byId('found').innerText").count("from=a test") >= 1
    browser.evaluate("byId('live').click()")
    assert browser.evaluate("byId('live').getAttribute('aria-pressed')") == "false"


def _written(browser: Browser, log: EmbeddedTransport) -> bool:
    # The stream may begin after the first record.
    order(log, "user-live")
    return browser.evaluate("byId('found').innerText.includes('user-live')")


def test_values_with_separators_of_lines_are_followed(browser: Browser, shop: str, log: EmbeddedTransport) -> None:
    running(browser, shop, "records")
    browser.evaluate("byId('topic').value = 'orders'; byId('live').click()")
    browser.until("byId('browse-note').innerText === '0 new records'")
    # Characters that end a line in JavaScript or Python, and none in a stream of events.
    values = ["one\u2028two\u2029three\u0085four\vfive", "an event: change\n\ndata: {}\r\n", "the last one"]

    def followed() -> bool:
        producer = log.producer()
        rows = [json.dumps({"n": value}, ensure_ascii=False).encode() for value in values]
        producer.send([("orders", b"lines", row, 60_000, None, 0) for row in rows])
        producer.flush()
        producer.close()
        return browser.evaluate("byId('found').textContent.includes('the last one')")

    until(followed, "the last value is shown")
    shown = "[...document.querySelectorAll('#found td.json')].map(each => JSON.parse(each.textContent).n)"
    found = browser.evaluate(shown)
    assert set(found) == set(values)
    assert browser.evaluate("byId('live').getAttribute('aria-pressed')") == "true"


def test_events_are_read_by_the_rules_of_their_format(browser: Browser, shop: str) -> None:
    running(browser, shop)
    text = 'retry: 1\r\n\r\n: a comment\nevent: one\ndata: {"a":\r\ndata:1}\n\ndata: "\u2028"\r\revent: none\n\nevent: two\ndata: 2\n\n'
    read = (
        "(text, size) => { const found = [], read = eventReader((name, data) => found.push([name, data]));"
        " for (let at = 0; at < text.length; at += size) read(text.slice(at, at + size)); return found; }"
    )
    for size in (1, 2, 3, 7, 1000):
        found = browser.evaluate(f"({read})({json.dumps(text)}, {size})")
        assert found == [["one", {"a": 1}], ["message", "\u2028"], ["two", 2]], size


@pytest.mark.parametrize("path", ["/", "/api"])
def test_pages_run_nothing_but_their_own_script(path: str, browser: Browser, shop: str) -> None:
    policy = request(shop, path).headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    browser.open(f"http://{shop}{path}")
    # Style and script are in force, and nothing of the page is blocked.
    assert browser.evaluate("getComputedStyle(document.querySelector('h1')).margin") != ""
    assert browser.errors == []
    browser.evaluate(
        """(() => {
            const script = document.createElement('script');
            script.textContent = 'window.injected = 1';
            document.body.append(script);
            document.body.insertAdjacentHTML('beforeend', '<img src="data:," onerror="window.injected = 2">'
                + '<style>h1 {color: rgb(1, 2, 3)}</style>');
        })()"""
    )
    browser.until("document.querySelector('img').complete")
    assert browser.evaluate("typeof window.injected") == "undefined"
    assert browser.evaluate("getComputedStyle(document.querySelector('h1')).color") != "rgb(1, 2, 3)"
    assert len(browser.errors) >= 3
    browser.errors.clear()


def test_the_newest_records_are_shown_without_a_button(browser: Browser, shop: str) -> None:
    running(browser, shop)
    browser.click("#tab-records")
    browser.until("document.querySelectorAll('#found tbody tr').length === 50")
    assert browser.evaluate("byId('browse-note').innerText").startswith("50 records, the newest first")
    # A page that is opened at this view has them too.
    browser.reload()
    browser.until("document.querySelectorAll('#found tbody tr').length === 50")


def test_topics_are_shown_by_partition(browser: Browser, shop: str, log: EmbeddedTransport) -> None:
    running(browser, shop)
    browser.click("#tab-topics")
    rows = "[...document.querySelectorAll('#offset-rows tbody tr')].map(each => [...each.cells].map(cell => cell.innerText.trim()))"
    browser.until("document.querySelectorAll('#offset-rows .partition').length >= 9")
    found = browser.evaluate(rows)
    head = next(at for at, row in enumerate(found) if row[0].startswith("orders"))
    ends = {int(row[2].replace(",", "")) for row in found[head + 1 : head + 3]}
    assert sum(ends) == 3 * len(USERS) or ends == {30}
    assert found[head][1] == "60 offsets"
    assert [row[0] for row in found[head + 1 : head + 3]] == ["partition 0", "partition 1"]
    assert all(row[4] == "0" and row[7].endswith(shop) for row in found[head + 1 : head + 3]), found
    changelog = next(row for row in found if row[0].startswith("counts-changelog"))
    assert changelog[0].endswith("internal")

    def written() -> bool:
        order(log, "user-new")
        return browser.evaluate(
            "parseFloat(offsets.cells.get('orders written').textContent) > 0 && "
            "parseFloat(offsets.cells.get('orders processed').textContent) > 0"
        )

    until(written, "a rate is shown")
    browser.evaluate("document.querySelector('#offset-rows .toggle[data-topic=orders]').focus()")
    browser.press("Enter")
    browser.until("!offsets.cells.has('orders 0 end')")
    assert browser.evaluate("document.activeElement.dataset.topic") == "orders"
    # What is not seen is not asked for.
    browser.click("#tab-overview")
    assert browser.evaluate("stopOffsets === null")


def test_dead_letters_are_counted_alike_in_tab_and_view(
    browser: Browser, tmp_path: Path, log: EmbeddedTransport
) -> None:
    with bills(tmp_path, log):
        pass
    # The tasks of the second run have dropped two records more: four letters are on the topic.
    with bills(tmp_path, log, letters=4) as address:
        running(browser, address)
        browser.until("byId('letters-total').innerText === '4'")
        # The total comes from the topic, maybe before a status that knows of these two.
        browser.until("sum(current.drops, each => each.dead_letters) === 2")
        browser.click("#tab-letters")
        browser.until("byId('letters-note').innerText.startsWith('4: ')")
        assert browser.evaluate("byId('letters-total').innerText") == "4"


def test_changes_of_a_store_are_followed(browser: Browser, shop: str, log: EmbeddedTransport) -> None:
    running(browser, shop, "state")
    browser.evaluate(
        "byId('store').value = 'counts'; byId('store').onchange(); byId('q-key').value = 'user-live'; byId('follow').click()"
    )

    def followed() -> bool:
        order(log, "user-live")
        return browser.evaluate("document.querySelectorAll('#answer tbody tr').length > 0")

    until(followed, "a change is shown")
    assert "user-live" in browser.evaluate("byId('answer').innerText")


def test_dead_letters_are_shown_and_replayed(browser: Browser, tmp_path: Path, log: EmbeddedTransport) -> None:
    with bills(tmp_path, log) as address:
        running(browser, address)
        browser.until("byId('letters-total').innerText === '2'")
        # The table of drops comes with a later answer than the letters.
        browser.until("byId('drops').innerText.includes('paid.map_values failed: KeyError')")
        drops = browser.evaluate("byId('drops').innerText")
        assert "topic bills, partition 0, offset 1: field 'euros' is missing" in drops
        browser.evaluate("byId('tab-letters').click()")
        browser.until("document.querySelectorAll('#letter-rows tbody tr').length === 2")
        assert "KeyError" in browser.evaluate("byId('letter-rows').innerText")
        # No word is broken, however small the screen is.
        browser.resize(*PHONE)
        assert browser.evaluate("document.querySelector('#letter-rows button').getBoundingClientRect().height") < 40
        browser.evaluate("document.querySelector('#letter-rows button').click()")
        browser.until("byId('letters-note').innerText.startsWith('1 replayed')")
        # It fails again, and is a letter again.
        until(lambda: request(address, "/dead-letters").json["letters"][0]["dead_letter"]["offset"] > 1, "a new letter")
        browser.evaluate("byId('replay-all').click()")
        browser.until("byId('letters-note').innerText.startsWith('2 replayed')")


def test_an_instance_is_paused_and_gets_threads(browser: Browser, shop: str) -> None:
    running(browser, shop)
    press = "[...document.querySelectorAll('#instances button')].find(each => each.innerText === '{}').click()"
    browser.evaluate(press.format("pause"))
    browser.until("byId('state').innerText === 'PAUSED'")
    browser.until("document.querySelector('#instances .badge').innerText === 'PAUSED'")
    browser.evaluate("byId('pause').click()")
    browser.until("byId('state').innerText === 'RUNNING' && byId('pause').innerText === 'pause all'")
    browser.evaluate(press.format("+ thread"))
    browser.until("document.querySelectorAll('#instances .thread').length === 3")
    browser.evaluate(press.format("− thread"))
    browser.until("document.querySelectorAll('#instances .thread').length === 2")
    browser.evaluate("byId('tab-events').click()")
    browser.until("byId('event-rows').innerText.includes('rebalance')")


def test_the_views_are_reached_by_keys(browser: Browser, shop: str) -> None:
    running(browser, shop)
    browser.evaluate("byId('tab-overview').focus()")
    browser.press("ArrowRight")
    assert browser.evaluate("document.activeElement.id") == "tab-records"
    assert browser.evaluate("!byId('records').hidden && byId('overview').hidden")
    browser.press("ArrowLeft", times=2)
    assert browser.evaluate("document.activeElement.id") == "tab-events"
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.id") != "tab-overview"


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(dark: bool, browser: Browser, tmp_path: Path, log: EmbeddedTransport) -> None:
    if dark:
        browser.dark()
    with bills(tmp_path, log) as address:
        running(browser, address)
        browser.click("#graph .node.processor")
        # What is hidden is not examined: each view is opened.
        for view in ("overview", "records", "state", "letters", "events"):
            browser.evaluate(f"byId('tab-{view}').click()")
            if view == "records":
                browser.evaluate("byId('topic').value = 'bills'; byId('browse').requestSubmit()")
                browser.until("document.querySelectorAll('#found tbody tr').length === 3")
            if view == "letters":
                browser.until("document.querySelectorAll('#letter-rows tbody tr').length === 2")
            assert severe(browser) == [], view
        # It would be found.
        browser.evaluate("byId('events').append(make('input', {}), make('button', {}))")
        assert len(severe(browser)) == 2


def test_the_page_of_a_phone_has_nothing_beside_the_screen(browser: Browser, shop: str) -> None:
    browser.resize(*PHONE)
    browser.dark()
    running(browser, shop)
    for view in ("overview", "records", "state", "letters", "events"):
        browser.evaluate(f"byId('tab-{view}').click()")
        assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), view
    browser.evaluate("byId('tab-overview').click()")
    still(browser)
    places = browser.evaluate("[...document.querySelectorAll('header .figure')].map(each => each.offsetTop)")
    assert len(set(places)) == 1
    click = "new MouseEvent('click', {bubbles: true})"
    browser.evaluate(f"document.querySelector('#graph .node.store').dispatchEvent({click})")
    closing = "(box => byId('details').getBoundingClientRect().top < box.top)(document.querySelector('#details .close').getBoundingClientRect())"
    assert browser.evaluate(closing)
    assert inside(browser)
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(11, 16, 23)"
