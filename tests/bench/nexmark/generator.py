"""The events of Nexmark by a seed: of 50 events one is a person, three are auctions and 46 are bids.

Events have numbers, and each kind is drawn by a generator of its own, so that a kind can be written alone. Ids, the part
of popular auctions, sellers and bidders, prices and sizes are those of the suite; an event comes each millisecond.
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
"""Bytes that a value of a kind has on average."""
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


def persons(count: int) -> Iterator[Event]:
    """The persons among so many events."""
    draw = random.Random(1)
    for number in range(0, count, ROUND):
        own = FIRST_ID + number // ROUND
        state = draw.choice(_STATES)
        value: dict[str, object] = {"id": own, "name": f"{draw.choice(_FIRST)} {draw.choice(_LAST)}"}
        value |= {"email": f"{_text(draw, 7)}@{_text(draw, 5)}.com", "card": f"{draw.randrange(10**16):016d}"}
        value |= {"city": draw.choice(CITIES[state]), "state": state, "dateTime": START_MS + number}
        yield str(own), _padded(draw, value, "persons"), START_MS + number


def auctions(count: int) -> Iterator[Event]:
    """The auctions among so many events."""
    draw = random.Random(2)
    for start in range(0, count, ROUND):
        for place in range(min(AUCTIONS, count - start - PERSONS)):
            time = START_MS + start + PERSONS + place
            own = FIRST_ID + start // ROUND * AUCTIONS + place
            first = _price(draw)
            value: dict[str, object] = {"id": own, "item": _text(draw, 20), "description": _text(draw, 100)}
            value |= {"initialBid": first, "reserve": first + _price(draw), "dateTime": time}
            # As long as three times so many auctions are open on average.
            value["expires"] = time + draw.randrange(1, 2 * AUCTIONS_IN_FLIGHT * ROUND // AUCTIONS)
            value["seller"] = _person(draw, start, HOT_SELLERS, 0)
            value["category"] = FIRST_CATEGORY + draw.randrange(CATEGORIES)
            yield str(own), _padded(draw, value, "auctions"), time


def bids(count: int) -> Iterator[Event]:
    """The bids among so many events."""
    draw = random.Random(3)
    for number in range(count):
        if number % ROUND < PERSONS + AUCTIONS:
            continue
        last = number // ROUND * AUCTIONS + AUCTIONS - 1
        popular = draw.randrange(HOT_AUCTIONS) > 0
        auction = last // POPULAR * POPULAR if popular else last - draw.randrange(min(last, AUCTIONS_IN_FLIGHT) + 1)
        value: dict[str, object] = {"auction": FIRST_ID + auction, "bidder": _person(draw, number, HOT_BIDDERS, 1)}
        value |= {"price": _price(draw), "dateTime": START_MS + number}
        yield str(FIRST_ID + auction), _padded(draw, value, "bids"), START_MS + number


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


def _padded(draw: random.Random, value: dict[str, object], kind: str) -> dict[str, object]:
    """The value with a field `extra`, so that values of a kind have about the size of the suite."""
    length = sum(len(str(each)) for each in value.values())
    value["extra"] = "".join(draw.choices(_LETTERS, k=max(0, SIZES[kind] - length)))
    return value


KINDS: dict[str, Callable[[int], Iterator[Event]]] = {"persons": persons, "auctions": auctions, "bids": bids}


def events(count: int) -> Iterator[tuple[str, Event]]:
    """(kind, event) of all kinds in the order of their times."""
    drawn = [(kind, event) for kind, make in KINDS.items() for event in make(count)]
    return iter(sorted(drawn, key=lambda each: each[1][2]))
