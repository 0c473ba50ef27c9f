"""The events of Nexmark by a seed: of 50 events one is a person, three are auctions and 46 are bids.

Events have numbers, and each kind is drawn by a generator of its own, so that a kind can be written alone. Fields, ids, the
part of popular auctions, sellers, bidders and channels, prices and sizes are those of the suite; an event comes each
millisecond. Other than there, no event names an auction or a person that only comes later.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

Event = tuple[str, dict[str, object], int]
"""(key, value, time in ms)."""
START_MS = 1_699_999_999_000
"""A second before windows of 10 s begin, so that few events go over more than one."""
ROUND = 50
"""Events of which PERSONS are persons and AUCTIONS are auctions."""
PERSONS, AUCTIONS = 1, 3
FIRST_ID = 1_000
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PERSONS, AUCTIONS_IN_FLIGHT, POPULAR = 1_000, 100, 100
HOT_AUCTIONS, HOT_SELLERS, HOT_BIDDERS = 2, 4, 4
"""One of so many auctions, sellers and bidders is not popular."""
SIZES = {"persons": 200, "auctions": 500, "bids": 100}
"""Bytes that a value of a kind has on average; the suite does not count a bid's channel and URL."""
POPULAR_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
"""Half of the bids come through these, the others through one of CHANNELS."""
CHANNELS = 10_000
SIDE_ROWS = 10_000
"""Rows of the side input of query 13."""
CITIES = {
    "AZ": ("Phoenix",),
    "CA": ("Los Angeles", "San Francisco"),
    "ID": ("Boise",),
    "OR": ("Portland", "Bend"),
    "WA": ("Redmond", "Seattle", "Kent"),
    "WY": ("Cheyenne",),
}
_STATES = tuple(CITIES)
_FIRST = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_NUMBER = 8
"""Bytes as which the suite counts a number."""
_FILL = "".join(random.Random(4).choices(_LETTERS, k=100_000))


def persons(count: int) -> Iterator[Event]:
    """The persons among so many events."""
    draw = random.Random(1)
    for number in range(0, count, ROUND):
        own = FIRST_ID + number // ROUND
        state = draw.choice(_STATES)
        texts = {"name": f"{draw.choice(_FIRST)} {draw.choice(_LAST)}"}
        texts["emailAddress"] = f"{_text(draw, 7)}@{_text(draw, 5)}.com"
        texts["creditCard"] = " ".join(f"{draw.randrange(10_000):04d}" for _ in range(4))
        texts |= {"city": draw.choice(CITIES[state]), "state": state}
        value: dict[str, object] = {"id": own, **texts, "dateTime": START_MS + number}
        value["extra"] = _extra(draw, "persons", 1, *texts.values())
        yield str(own), value, START_MS + number


def auctions(count: int) -> Iterator[Event]:
    """The auctions among so many events."""
    draw = random.Random(2)
    for start in range(0, count, ROUND):
        for place in range(min(AUCTIONS, count - start - PERSONS)):
            time = START_MS + start + PERSONS + place
            own = FIRST_ID + start // ROUND * AUCTIONS + place
            first = _price(draw)
            item, description = _text(draw, 20), _text(draw, 100)
            value: dict[str, object] = {"id": own, "itemName": item, "description": description}
            value |= {"initialBid": first, "reserve": first + _price(draw), "dateTime": time}
            # As long as three times so many auctions are open on average.
            value["expires"] = time + draw.randrange(1, 2 * AUCTIONS_IN_FLIGHT * ROUND // AUCTIONS)
            value["seller"] = _person(draw, start, HOT_SELLERS, 0)
            value["category"] = FIRST_CATEGORY + draw.randrange(CATEGORIES)
            value["extra"] = _extra(draw, "auctions", 6, item, description)
            yield str(own), value, time


def bids(count: int) -> Iterator[Event]:
    """The bids among so many events."""
    draw = random.Random(3)
    popular_channels = [(channel, _url(draw)) for channel in POPULAR_CHANNELS]
    channels = [
        (f"channel-{number}", _url(draw) + (f"&channel_id={draw.randrange(1 << 31)}" if draw.randrange(10) else ""))
        for number in range(CHANNELS)
    ]
    for number in range(count):
        if number % ROUND < PERSONS + AUCTIONS:
            continue
        last = number // ROUND * AUCTIONS + AUCTIONS - 1
        popular = draw.randrange(HOT_AUCTIONS) > 0
        auction = last // POPULAR * POPULAR if popular else last - draw.randrange(min(last, AUCTIONS_IN_FLIGHT) + 1)
        value: dict[str, object] = {"auction": FIRST_ID + auction, "bidder": _person(draw, number, HOT_BIDDERS, 1)}
        channel, url = draw.choice(popular_channels if draw.randrange(2) else channels)
        value |= {"price": _price(draw), "channel": channel, "url": url, "dateTime": START_MS + number}
        value["extra"] = _extra(draw, "bids", 4)
        yield str(FIRST_ID + auction), value, START_MS + number


def side(count: int) -> Iterator[Event]:
    """The side input, whatever the number of events."""
    for number in range(SIDE_ROWS):
        yield str(number), {"value": str(number)}, START_MS


def _person(draw: random.Random, number: int, hot: int, offset: int) -> int:
    """A person that exists at an event; sellers and bidders have popular persons of their own (`offset`)."""
    last = number // ROUND
    if draw.randrange(hot) > 0:
        return FIRST_ID + min(last, last // POPULAR * POPULAR + offset)
    return FIRST_ID + last - draw.randrange(min(last, ACTIVE_PERSONS) + 1)


def _price(draw: random.Random) -> int:
    """Cents: from a dollar to a million, the logarithm evenly spread."""
    return round(10 ** (draw.random() * 6) * 100)


def _text(draw: random.Random, most: int) -> str:
    return "".join(draw.choices(_LETTERS, k=draw.randint(3, most)))


def _url(draw: random.Random) -> str:
    return f"https://www.nexmark.com/{_text(draw, 5)}/{_text(draw, 5)}/{_text(draw, 5)}/item.htm?query=1"


def _extra(draw: random.Random, kind: str, numbers: int, *texts: str) -> str:
    """Letters up to about the size of a kind, by so many numbers and texts that a value has."""
    room = max(0, SIZES[kind] - _NUMBER * numbers - sum(map(len, texts)))
    spread = round(room * 0.2)
    length = room - spread + (draw.randrange(2 * spread) if spread else 0)
    start = draw.randrange(len(_FILL) - length)
    return _FILL[start : start + length]


KINDS: dict[str, Callable[[int], Iterator[Event]]] = {
    "persons": persons,
    "auctions": auctions,
    "bids": bids,
    "side": side,
}
EVENTS = ("persons", "auctions", "bids")


def events(count: int) -> Iterator[tuple[str, Event]]:
    """(kind, event) of all kinds in the order of their times."""
    drawn = [(kind, event) for kind in EVENTS for event in KINDS[kind](count)]
    return iter(sorted(drawn, key=lambda each: each[1][2]))
