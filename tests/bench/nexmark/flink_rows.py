"""What Flink's SQL writes, in the form of the other programs: (key, value), and a list where SQL has several rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.bench.nexmark.reference import Rows, Values

KEYS = {
    "q3": "{id}",
    "q4": "{category}",
    "q5": "{start}",
    "q6": "{seller}",
    "q7": "{start}",
    "q8": "{id}@{start}",
    "q9": "{id}",
    "q11": "{bidder}@{start}",
    "q12": "{bidder}@{start}",
    "q15": "{day}",
    "q16": "{channel}|{day}",
    "q17": "{auction}@{day}",
    "q18": "{bidder}@{auction}",
}
"""The keys of the queries, of the fields of their rows; by default the auction."""
NOT_IN_VALUES = {"q4": ("category",), "q6": ("seller",), "q11": ("start",), "q12": ("start",)}


def of_flink(query: str, values: Sequence[Values]) -> Rows:
    """The rows of a query; those of an updated table are its last ones."""
    groups: defaultdict[str, list[Values]] = defaultdict(list)
    rows: Rows = []
    for value in values:
        row = dict(value)
        if "starttime" in row:
            row["start"] = round(datetime.fromisoformat(row.pop("starttime")).replace(tzinfo=UTC).timestamp() * 1000)
        key = KEYS.get(query, "{auction}").format(**row)
        groups[key].append(row)
        rows.append((key, {name: field for name, field in row.items() if name not in NOT_IN_VALUES.get(query, ())}))
    if query == "q5":
        return [
            (key, {"number": found[0]["num"], "auctions": sorted(row["auction"] for row in found)})
            for key, found in groups.items()
        ]
    if query == "q7":
        return [
            (key, {"price": found[0]["price"], "bids": _ordered(found, "dateTime", "start")})
            for key, found in groups.items()
        ]
    if query == "q19":
        return [(key, {"bids": _ordered(found, "place", "place")}) for key, found in groups.items()]
    return rows


def _ordered(rows: list[Values], by: str, without: str) -> list[Values]:
    """The rows in the order of a field, without a field."""
    return [
        {name: field for name, field in row.items() if name != without} for row in sorted(rows, key=lambda row: row[by])
    ]
