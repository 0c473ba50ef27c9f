"""What each query must give, by plain loops over all events: by key the last value, or the values in order for queries 0 to 2."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from tests.bench.nexmark.generator import KINDS

Values = dict[str, Any]
Rows = list[tuple[str, Values]]


def _values(kind: str, count: int) -> Rows:
    return [(key, value) for key, value, _ in KINDS[kind](count)]


def q0(count: int) -> Rows:
    return _values("bids", count)


def q1(count: int) -> Rows:
    return [(key, value | {"price": value["price"] * 908 // 1000}) for key, value in _values("bids", count)]


def q2(count: int) -> Rows:
    bids = _values("bids", count)
    return [
        (key, {"auction": each["auction"], "price": each["price"]}) for key, each in bids if each["auction"] % 123 == 0
    ]


def q3(count: int) -> Rows:
    persons = dict(_values("persons", count))
    sold = [
        (key, persons[str(each["seller"])], each) for key, each in _values("auctions", count) if each["category"] == 10
    ]
    return [
        (key, {"name": seller["name"], "city": seller["city"], "state": seller["state"], "id": each["id"]})
        for key, seller, each in sold
        if seller["state"] in ("OR", "ID", "CA")
    ]


def q4(count: int) -> Rows:
    auctions = dict(_values("auctions", count))
    highest: dict[str, int] = {}
    for key, bid in _values("bids", count):
        if auctions[key]["dateTime"] <= bid["dateTime"] <= auctions[key]["expires"]:
            highest[key] = max(bid["price"], highest.get(key, 0))
    prices: defaultdict[str, list[int]] = defaultdict(list)
    for key, price in highest.items():
        prices[str(auctions[key]["category"])].append(price)
    return [(category, {"average": sum(found) // len(found)}) for category, found in prices.items()]


def q5(count: int) -> Rows:
    numbers: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for _, bid in _values("bids", count):
        last = bid["dateTime"] // 2_000 * 2_000
        for start in range(last - 8_000, last + 1, 2_000):
            numbers[start][bid["auction"]] += 1
    rows = []
    for start, found in numbers.items():
        most = max(found.values())
        hottest = sorted(auction for auction, number in found.items() if number == most)
        rows.append((str(start), {"number": most, "auctions": hottest}))
    return rows


def q7(count: int) -> Rows:
    windows: defaultdict[int, list[Values]] = defaultdict(list)
    for _, bid in _values("bids", count):
        own = {name: bid[name] for name in ("auction", "bidder", "price", "dateTime")}
        windows[bid["dateTime"] // 10_000 * 10_000].append(own)
    highest = {start: max(bid["price"] for bid in found) for start, found in windows.items()}
    return [
        (str(start), {"price": highest[start], "bids": [bid for bid in found if bid["price"] == highest[start]]})
        for start, found in windows.items()
    ]


def q8(count: int) -> Rows:
    sellers = {(each["seller"], each["dateTime"] // 10_000) for _, each in _values("auctions", count)}
    rows = []
    for key, person in _values("persons", count):
        window = person["dateTime"] // 10_000
        if (person["id"], window) in sellers:
            start = window * 10_000
            rows.append((f"{key}@{start}", {"id": person["id"], "name": person["name"], "start": start}))
    return rows


QUERIES: dict[str, Callable[[int], Rows]] = {each.__name__: each for each in (q0, q1, q2, q3, q4, q5, q7, q8)}
