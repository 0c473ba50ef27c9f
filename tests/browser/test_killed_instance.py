"""The page while an instance is killed, in Chromium: what it owned is red, and its records wait."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.browser.accessibility import severe
from tests.browser.chromium import Browser
from tests.browser.killed import killed_instance


def test_a_killed_instance_is_gone_and_its_partitions_are_red(browser: Browser, tmp_path: Path) -> None:
    with killed_instance(tmp_path) as (left, killed, write):
        browser.open(f"http://{left.address}/")
        browser.until("byId('instances-total').innerText === '2' && byId('state').innerText === 'RUNNING'")
        killed.end(signal.SIGKILL)
        write(400)
        browser.until("byId('state').innerText === 'GONE' && byId('lag').innerText === '200'")
        assert browser.evaluate("byId('instances-total').innerText") == "1 of 2"
        assert killed.address in browser.until("!byId('problem').hidden && byId('problem').innerText")
        assert browser.evaluate("byId('state').className") == "badge bad"
        rows = "[...document.querySelectorAll('#waiting tr.lost')].map(each => each.innerText)"
        assert len(browser.until(f"{rows}.length === 2 && {rows}")) == 2
        red = browser.evaluate("getComputedStyle(document.querySelector('#waiting tr.lost td')).color")
        assert red == "rgb(185, 28, 28)"
        assert browser.evaluate("document.querySelectorAll('#instances .task.lost').length") == 2
        # Partitions that no member of the group owns are red too. In one call: the next status comes within a second.
        unowned = "{...current, inputs: current.inputs.map(each => ({...each, state: 'UNOWNED', owner: null}))}"
        found = browser.evaluate(f"(show({unowned}), {rows})")
        assert [row.split("\t")[:2] for row in found] == [[f"events {n}", "no owner"] for n in range(4)]
        assert severe(browser) == []
