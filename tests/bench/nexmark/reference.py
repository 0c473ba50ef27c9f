"""What each query must give, by plain loops over all events: by key the last value, or all values for those of APPENDED."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tests.bench.nexmark.generator import KINDS, SIDE_ROWS

Values = dict[str, Any]
Rows = list[tuple[str, Values]]


@lru_cache(maxsize=4)
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


def _valid(count: int) -> list[tuple[Values, Values]]:
    """Each bid with its auction, if that was open."""
    auctions = dict(_values("auctions", count))
    found = [(auctions[key], bid) for key, bid in _values("bids", count)]
    return [(auction, bid) for auction, bid in found if auction["dateTime"] <= bid["dateTime"] <= auction["expires"]]


def _winners(count: int) -> list[tuple[Values, Values]]:
    """Each auction with the first of its highest bids."""
    winners: dict[int, tuple[Values, Values]] = {}
    for auction, bid in _valid(count):
        if auction["id"] not in winners or bid["price"] > winners[auction["id"]][1]["price"]:
            winners[auction["id"]] = auction, bid
    return list(winners.values())


def q4(count: int) -> Rows:
    prices: defaultdict[str, list[int]] = defaultdict(list)
    for auction, bid in _winners(count):
        prices[str(auction["category"])].append(bid["price"])
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


def q6(count: int) -> Rows:
    prices: defaultdict[str, list[int]] = defaultdict(list)
    for auction, bid in sorted(_winners(count), key=lambda each: each[1]["dateTime"]):
        prices[str(auction["seller"])].append(bid["price"])
    return [(seller, {"average": sum(found[-10:]) // len(found[-10:])}) for seller, found in prices.items()]


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


def q9(count: int) -> Rows:
    rows = []
    for auction, bid in _winners(count):
        own = {name: bid[name] for name in ("auction", "bidder", "price")}
        rows.append((str(auction["id"]), auction | own | {"bid_dateTime": bid["dateTime"], "bid_extra": bid["extra"]}))
    return rows


def _picked(value: Values, *names: str) -> Values:
    return {name: value[name] for name in names}


def _text(time_ms: int, form: str) -> str:
    return time.strftime(form, time.gmtime(time_ms / 1000))


def q10(count: int) -> Rows:
    return [
        (
            key,
            _picked(bid, "auction", "bidder", "price", "dateTime", "extra")
            | {"dt": _text(bid["dateTime"], "%Y-%m-%d"), "hm": _text(bid["dateTime"], "%H:%M")},
        )
        for key, bid in _values("bids", count)
    ]


def q11(count: int) -> Rows:
    sessions: defaultdict[int, list[list[int]]] = defaultdict(list)
    for _, bid in _values("bids", count):
        own = sessions[bid["bidder"]]
        if not own or bid["dateTime"] - own[-1][-1] > 10_000:
            own.append([])
        own[-1].append(bid["dateTime"])
    return [
        (f"{bidder}@{times[0]}", {"bidder": bidder, "number": len(times)})
        for bidder, own in sessions.items()
        for times in own
    ]


def q12(count: int) -> Rows:
    """The sums of all windows: which bids share one, the machine's clock decides."""
    numbers = Counter(bid["bidder"] for _, bid in _values("bids", count))
    return [(str(bidder), {"number": number}) for bidder, number in numbers.items()]


def q13(count: int) -> Rows:
    return [
        (
            key,
            _picked(bid, "auction", "bidder", "price", "dateTime") | {"value": str(bid["auction"] % SIDE_ROWS)},
        )
        for key, bid in _values("bids", count)
    ]


def q14(count: int) -> Rows:
    rows = []
    for key, bid in _values("bids", count):
        hour = int(_text(bid["dateTime"], "%H"))
        kind = "dayTime" if 8 <= hour <= 18 else "otherTime" if hour in (7, 19) else "nightTime"
        if 1_000_000_000 < bid["price"] * 908 < 50_000_000_000:
            own = _picked(bid, "auction", "bidder", "dateTime", "extra") | {"price": bid["price"] * 908 // 1000}
            rows.append((key, own | {"bidTimeType": kind, "c_counts": bid["extra"].count("c")}))
    return rows


def _ranks(price: int) -> tuple[str, str]:
    return "total", "rank1" if price < 10_000 else "rank2" if price < 1_000_000 else "rank3"


def _totals(bids: list[Values]) -> Values:
    """Bids, their bidders and auctions, of all prices and of each range."""
    counted: dict[str, set[object]] = {
        f"{rank}_{what}": set()
        for rank in ("total", "rank1", "rank2", "rank3")
        for what in ("bids", "bidders", "auctions")
    }
    for bid in bids:
        for rank in _ranks(bid["price"]):
            counted[f"{rank}_bids"].add(bid["dateTime"])
            counted[f"{rank}_bidders"].add(bid["bidder"])
            counted[f"{rank}_auctions"].add(bid["auction"])
    return {name: len(found) for name, found in counted.items()}


def _grouped(count: int, *names: str) -> dict[tuple[Any, ...], list[Values]]:
    """Bids by these fields and their day."""
    groups: defaultdict[tuple[Any, ...], list[Values]] = defaultdict(list)
    for _, bid in _values("bids", count):
        groups[*(bid[name] for name in names), _text(bid["dateTime"], "%Y-%m-%d")].append(bid)
    return groups


def q15(count: int) -> Rows:
    return [(day, {"day": day, **_totals(bids)}) for (day,), bids in _grouped(count).items()]


def q16(count: int) -> Rows:
    return [
        (
            f"{channel}|{day}",
            {"channel": channel, "day": day, "minute": _text(bids[-1]["dateTime"], "%H:%M"), **_totals(bids)},
        )
        for (channel, day), bids in _grouped(count, "channel").items()
    ]


def q17(count: int) -> Rows:
    rows = []
    for (auction, day), bids in _grouped(count, "auction").items():
        prices = [bid["price"] for bid in bids]
        ranks = Counter(rank for price in prices for rank in _ranks(price))
        value = {"auction": auction, "day": day, "min_price": min(prices), "max_price": max(prices)}
        value |= {f"{rank}_bids": ranks[rank] for rank in ("total", "rank1", "rank2", "rank3")}
        value |= {"avg_price": sum(prices) // len(prices), "sum_price": sum(prices)}
        rows.append((f"{auction}@{day}", value))
    return rows


def q18(count: int) -> Rows:
    return list({f"{bid['bidder']}@{bid['auction']}": bid for _, bid in _values("bids", count)}.items())


def q19(count: int) -> Rows:
    bids: defaultdict[str, list[Values]] = defaultdict(list)
    for key, bid in _values("bids", count):
        bids[key].append(bid)
    return [(key, {"bids": sorted(found, key=lambda bid: -bid["price"])[:10]}) for key, found in bids.items()]


def q20(count: int) -> Rows:
    auctions = dict(_values("auctions", count))
    of_auction = ("itemName", "description", "initialBid", "reserve", "expires", "seller", "category")
    return [
        (
            key,
            _picked(bid, "auction", "bidder", "price", "channel", "url")
            | {"bid_dateTime": bid["dateTime"], "bid_extra": bid["extra"]}
            | _picked(auctions[key], *of_auction)
            | {"auction_dateTime": auctions[key]["dateTime"], "auction_extra": auctions[key]["extra"]},
        )
        for key, bid in _values("bids", count)
        if auctions[key]["category"] == 10
    ]


def q21(count: int) -> Rows:
    rows = []
    for key, bid in _values("bids", count):
        found = re.search(r"&channel_id=([^&]*)", bid["url"])
        number = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}.get(bid["channel"].lower())
        number = number or (found[1] if found else None)
        if number is not None:
            rows.append((key, _picked(bid, "auction", "bidder", "price", "channel") | {"channel_id": number}))
    return rows


def q22(count: int) -> Rows:
    return [
        (
            key,
            _picked(bid, "auction", "bidder", "price", "channel")
            | dict(zip(("dir1", "dir2", "dir3"), bid["url"].split("/")[3:6], strict=True)),
        )
        for key, bid in _values("bids", count)
    ]


QUERIES: dict[str, Callable[[int], Rows]] = {
    each.__name__: each
    for each in (
        q0,
        q1,
        q2,
        q3,
        q4,
        q5,
        q6,
        q7,
        q8,
        q9,
        q10,
        q11,
        q12,
        q13,
        q14,
        q15,
        q16,
        q17,
        q18,
        q19,
        q20,
        q21,
        q22,
    )
}
APPENDED = frozenset({"q0", "q1", "q2", "q10", "q13", "q14", "q20", "q21", "q22"})
"""They give a record for a bid, in the order of the bids."""


def final(query: str, rows: list[tuple[str, Any]]) -> Rows:
    """What an output has in the end, of its records in their order: a value of None deletes its key."""
    if query not in APPENDED:
        rows = sorted((key, value) for key, value in dict(rows).items() if value is not None)
    if query == "q12":
        numbers: Counter[str] = Counter()
        for key, value in rows:
            numbers[key.partition("@")[0]] += value["number"]
        rows = [(bidder, {"number": number}) for bidder, number in sorted(numbers.items())]
    return rows
