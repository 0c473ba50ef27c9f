"""Pairs of topologies: an old version, what is edited, and what `diff` has to find.

Findings are written `verdict: subject name`; those that are safe are left out, but for what `notes` has words of.
"""

from __future__ import annotations

from dataclasses import dataclass

WORDS = """\
streamkit: 1
application: pair
topics: {lines: {value: string}, counts: {value: long}, other: {value: string}, loud: {value: string}}
pipelines:
  words:
    stream: lines
    steps:
      - flat_map_values: {values: value.lower().split(), value_serde: string}
      - group_by: value
      - count
      - to_stream
    to: counts
"""
NAMED = WORDS.replace("- count\n", "- count: counts\n").replace(
    "group_by: value", "group_by: {key: value, name: by-word}"
)
TOTALS = """\
streamkit: 1
application: pair
topics: {sales: {value: json, partitions: 2}, totals: {value: json}}
pipelines:
  totals:
    stream: sales
    steps:
      - group_by_key
      - aggregate: {initial: "{'n': 0}", add: "{'n': aggregate.n + value.n}", store: totals}
      - to_stream
    to: totals
"""
WINDOWS = """\
streamkit: 1
application: pair
topics: {clicks: {value: string}, out: {key: {windowed: string, size: 60s}, value: long}}
pipelines:
  windows:
    stream: clicks
    steps:
      - group_by_key
      - window: {tumbling: 60s}
      - count: per-key
      - to_stream: {key: "key.key"}
    to: out
"""
WINDOWS = WINDOWS.replace("{windowed: string, size: 60s}", "string")
SESSIONS = WINDOWS.replace("tumbling: 60s", "session: 30s")
SUPPRESS = WINDOWS.replace(
    "      - to_stream", "      - suppress: {until: window_closes, name: final}\n      - to_stream"
)
STREAMS = """\
streamkit: 1
application: pair
topics: {left: {value: string}, right: {value: string}, out: {value: string}}
pipelines:
  right:
    stream: right
  joined:
    stream: left
    steps:
      - join: {with: right, within: 10s, value: left + right, value_serde: string}
    to: out
"""
TABLES = """\
streamkit: 1
application: pair
topics: {users: {value: string}, clicks: {value: string}, out: {value: string}, more: {value: string}}
pipelines:
  users:
    table: users
  joined:
    stream: clicks
    steps:
      - join: {with: users, value: left + right, value_serde: string}
    to: out
"""
REKEYED = TABLES.replace("      - join", "      - select_key: {key: value, key_serde: string}\n      - join")
FOREIGN = """\
streamkit: 1
application: pair
topics: {orders: {value: string}, customers: {value: string}, out: {value: string}}
pipelines:
  customers: {table: customers, store: customers}
  joined:
    table: orders
    store: orders
    steps:
      - join: {with: customers, on: value, value: left + right, value_serde: string, name: customer}
      - to_stream
    to: out
"""
TWO = """\
streamkit: 1
application: pair
topics: {a: {value: string}, b: {value: string}, a-counts: {value: long}, b-counts: {value: long}}
pipelines:
  a:
    stream: a
    steps: [group_by_key, {count: a-store}, to_stream]
    to: a-counts
  b:
    stream: b
    steps: [group_by_key, {count: b-store}, to_stream]
    to: b-counts
"""
EXPLICIT = """\
streamkit: 1
application: pair
topics: {a: {value: string}, counts: {value: long}}
pipelines:
  a:
    stream: a
    steps:
      - repartition: {partitions: 2, name: spread}
      - group_by_key
      - count: counts
      - to_stream
    to: counts
"""
STORES = """\
streamkit: 1
application: pair
topics: {a: {value: string}, out: {value: string}}
stores:
  seen: {type: key_value, key: string, value: long}
pipelines:
  a:
    stream: a
    steps:
      - process: {call: "tests.changes.processors:Once", stores: [seen]}
    to: out
"""
GLOBAL = """\
streamkit: 1
application: pair
topics: {rates: {value: string}, clicks: {value: string}, out: {value: string}, counts: {value: long}}
pipelines:
  rates: {global_table: rates}
  joined:
    stream: clicks
    steps:
      - join: {with: rates, on: value, value: left + right, value_serde: string}
    to: out
"""


@dataclass(frozen=True)
class Pair:
    """edits: texts of the old version and what stands there in the new one."""

    name: str
    old: str
    edits: tuple[tuple[str, str], ...]
    expected: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    java: bool = True
    """Whether the programs of tests/fuzz can stand for it in Java."""

    @property
    def new(self) -> str:
        """The text of the new version."""
        text = self.old
        for before, after in self.edits:
            assert before in text, (self.name, before)
            text = text.replace(before, after)
        return text


def pair(
    name: str, old: str, *edits: tuple[str, str], expect: str = "", notes: tuple[str, ...] = (), java: bool = True
) -> Pair:
    expected = tuple(line.strip() for line in expect.strip().splitlines())
    return Pair(name, old, edits, expected, notes, java)


_COUNT3, _COUNT4 = "KSTREAM-AGGREGATE-STATE-STORE-0000000003", "KSTREAM-AGGREGATE-STATE-STORE-0000000004"
_SECOND = "  b:\n    stream: b\n    steps: [group_by_key, {count: b-store}, to_stream]\n    to: b-counts\n"
_FIRST = "  a:\n    stream: a\n    steps: [group_by_key, {count: a-store}, to_stream]\n    to: a-counts\n"
_OUTER = ("- join:", "- outer_join:"), ("left + right", "str(left) + str(right)")
PAIRS = [
    pair("nothing", WORDS),
    pair("comment-and-description", WORDS, ("application: pair\n", "application: pair\ndescription: Counts\n")),
    # Steps before a store without a name
    pair(
        "filter-before-count",
        WORDS,
        ("      - group_by", "      - filter: len(value) > 2\n      - group_by"),
        expect=f"renamed: store {_COUNT4}\nrecords left behind: topic {_COUNT4}-repartition",
        notes=("filter is new",),
    ),
    pair(
        "step-removed-before-count",
        WORDS.replace("      - group_by", "      - peek: len(value)\n      - group_by"),
        ("      - peek: len(value)\n", ""),
        expect=f"renamed: store {_COUNT3}\nrecords left behind: topic {_COUNT3}-repartition",
    ),
    pair("filter-before-named-count", NAMED, ("      - group_by", "      - filter: len(value) > 2\n      - group_by")),
    pair("filter-after-count", WORDS, ("      - to_stream\n", "      - to_stream\n      - filter: value > 1\n")),
    pair(
        "expression-changes", WORDS, ("value.lower()", "value.upper()"), notes=("flat_map_values does something else",)
    ),
    pair(
        "pinned-by-the-old-name",
        WORDS,
        ("      - group_by", "      - filter: len(value) > 2\n      - group_by"),
        ("- count\n", f"- count: {_COUNT3}\n"),
    ),
    # What findings propose
    pair(
        "join-pinned",
        STREAMS,
        ("stream: left\n    steps:\n", "stream: left\n    steps:\n      - filter: value > ''\n"),
        (
            "within: 10s",
            "within: 10s, this_store: {name: KSTREAM-JOINTHIS-0000000004-store}, "
            "other_store: {name: KSTREAM-JOINOTHER-0000000005-store}",
        ),
    ),
    pair(
        "table-pinned",
        TABLES,
        ("  users:\n", "  more: {table: more, store: more}\n  users:\n"),
        ("table: users", "table: users\n    store: users-STATE-STORE-0000000000"),
        expect="restore: sub-topology 1\nstop: sub-topology 0",
    ),
    pair(
        "repartition-pinned",
        REKEYED,
        ("      - select_key", "      - filter: value > ''\n      - select_key"),
        ("value_serde: string}\n    to: out", "value_serde: string, name: KSTREAM-KEY-SELECT-0000000004}\n    to: out"),
    ),
    # Names of stores
    pair(
        "store-gets-a-name",
        WORDS,
        ("- count\n", "- count: counts\n"),
        expect="renamed: store counts\nrecords left behind: topic counts-repartition",
    ),
    pair("store-loses-its-name", NAMED, ("- count: counts\n", "- count\n"), expect=f"renamed: store {_COUNT3}"),
    pair("store-renamed", NAMED, ("- count: counts\n", "- count: totals\n"), expect="renamed: store totals"),
    pair("store-of-processors-renamed", STORES, ("seen", "known"), expect="renamed: store known", java=False),
    pair(
        "table-gets-a-name", TABLES, ("table: users", "table: users\n    store: users"), expect="renamed: store users"
    ),
    pair("suppress-renamed", SUPPRESS, ("name: final", "name: last"), expect="renamed: store last-store"),
    pair(
        "foreign-key-join-renamed",
        FOREIGN,
        ("name: customer", "name: buyer"),
        expect="""
        renamed: store buyer-subscription-store
        records left behind: topic buyer-subscription-registration-topic
        records left behind: topic buyer-subscription-response-topic""",
    ),
    pair(
        "global-table-renamed",
        GLOBAL,
        ("global_table: rates", "global_table: rates, store: rates"),
        notes=("is read again from its topic",),
    ),
    pair(
        "join-of-streams-shifts",
        STREAMS,
        ("stream: left\n    steps:\n", "stream: left\n    steps:\n      - filter: value > ''\n"),
        expect="""
        renamed: store KSTREAM-JOINOTHER-0000000006-store
        renamed: store KSTREAM-JOINTHIS-0000000005-store""",
    ),
    # Repartition topics
    pair(
        "group-renamed", NAMED, ("name: by-word", "name: words"), expect="records left behind: topic words-repartition"
    ),
    pair(
        "repartition-renamed",
        EXPLICIT,
        ("name: spread", "name: wide"),
        expect="records left behind: topic wide-repartition",
    ),
    pair(
        "repartition-goes",
        REKEYED,
        ("      - select_key: {key: value, key_serde: string}\n", ""),
        expect="records left behind: topic KSTREAM-KEY-SELECT-0000000004-repartition\nstop: sub-topology 0\nstop: sub-topology 1",
    ),
    pair(
        "repartition-comes",
        TABLES,
        ("      - join", "      - select_key: {key: value, key_serde: string}\n      - join"),
        expect="stop: sub-topology 0\nstop: sub-topology 1",
    ),
    # Tasks
    pair(
        "pipeline-added-behind",
        TWO.replace(_SECOND, ""),
        (_FIRST, _FIRST + _SECOND),
        expect="stop: sub-topology 1",
        notes=("store b-store is new and starts empty",),
    ),
    pair(
        "pipeline-added-in-front",
        TWO.replace(_FIRST, ""),
        (_SECOND, _FIRST + _SECOND),
        expect="restore: sub-topology 1\nstop: sub-topology 0",
    ),
    pair(
        "pipeline-removed-behind", TWO, (_SECOND, ""), expect="stop: sub-topology 1", notes=("store b-store is gone",)
    ),
    pair("pipeline-removed-in-front", TWO, (_FIRST, ""), expect="restore: sub-topology 0\nstop: sub-topology 0"),
    pair(
        "pipelines-swapped",
        TWO,
        (_FIRST + _SECOND, _SECOND + _FIRST),
        expect="restore: sub-topology 0\nrestore: sub-topology 1",
    ),
    pair(
        "input-added",
        TWO,
        ("stream: a\n", "stream: [a, c]\n"),
        ("a: {value", "c: {value: string}, a: {value"),
        expect="stop: sub-topology 0",
    ),
    pair(
        "input-replaced",
        TWO,
        ("stream: a\n", "stream: c\n"),
        ("a: {value", "c: {value: string}, a: {value"),
        expect="stop: sub-topology 0",
    ),
    pair(
        "global-table-added",
        TABLES,
        ("  users:\n", "  more: {global_table: more}\n  users:\n"),
        ("table: users\n", "table: users\n    store: users-STATE-STORE-0000000000\n"),
        expect="restore: sub-topology 1",
    ),
    pair(
        "sub-topologies-join",
        TWO,
        (
            "{count: b-store}, to_stream]",
            "{count: b-store}, {join: {with: a-table, value: left + right, value_serde: long}}, to_stream]",
        ),
        (
            "  a:\n    stream: a\n    steps: [group_by_key, {count: a-store}, to_stream]",
            "  a-table:\n    stream: a\n    steps: [group_by_key, {count: a-store}]\n  a:\n    from: a-table\n    steps: [to_stream]",
        ),
        expect="restore: store b-store\nstop: sub-topology 0\nstop: sub-topology 1",
    ),
    # Rows of changelogs
    pair(
        "value-serde",
        TOTALS,
        ("store: totals}", "store: totals, value_serde: string}"),
        ("totals: {value: json}", "totals: {value: string}"),
        ("{'n': 0}", "''"),
        ("{'n': aggregate.n + value.n}", "aggregate + 'x'"),
        expect="incompatible: store totals\nunknown: topic totals",
    ),
    pair(
        "key-serde",
        NAMED,
        ("key: value, name", "key: len(value), key_serde: long, name"),
        ("counts: {value: long}", "counts: {key: long, value: long}"),
        expect="incompatible: store counts\nincompatible: topic by-word-repartition\nunknown: topic counts",
    ),
    pair(
        "count-becomes-sum",
        NAMED,
        ("- count: counts\n", "- aggregate: {initial: 0.5, add: aggregate + 1, value_serde: double, store: counts}\n"),
        ("counts: {value: long}", "counts: {value: double}"),
        expect="incompatible: store counts\nunknown: topic counts",
    ),
    pair(
        "aggregate-of-json-changes",
        TOTALS,
        ("aggregate.n + value.n", "aggregate.n + 1"),
        expect="unknown: store totals",
    ),
    pair("window-size", WINDOWS, ("tumbling: 60s", "tumbling: 120s"), expect="incompatible: store per-key"),
    pair(
        "window-size-below-suppress",
        SUPPRESS,
        ("tumbling: 60s", "tumbling: 120s"),
        expect="incompatible: store final-store\nincompatible: store per-key",
    ),
    pair(
        "tumbling-becomes-hopping",
        WINDOWS,
        ("tumbling: 60s", "hopping: 60s, advance: 30s"),
        notes=("its advance was 60000 ms, is 30000 ms",),
    ),
    pair("tumbling-becomes-session", WINDOWS, ("tumbling: 60s", "session: 60s"), expect="incompatible: store per-key"),
    pair(
        "windows-come",
        NAMED,
        ("      - count: counts\n", "      - window: {tumbling: 60s}\n      - count: counts\n"),
        ("- to_stream", "- to_stream: {key: key.key}"),
        expect="incompatible: store counts",
    ),
    pair(
        "sliding-difference",
        WINDOWS.replace("tumbling: 60s", "sliding: 60s"),
        ("sliding: 60s", "sliding: 30s"),
        expect="incompatible: store per-key",
    ),
    pair(
        "grace-grows",
        WINDOWS,
        ("tumbling: 60s", "tumbling: 60s, grace: 240s"),
        expect="restore: store per-key\nrestore: store per-key",
        notes=("its grace was 0 ms, is 240000 ms",),
    ),
    pair(
        "grace-shrinks",
        WINDOWS.replace("tumbling: 60s", "tumbling: 60s, grace: 240s"),
        ("grace: 240s", "grace: 0s"),
        expect="restore: store per-key",
    ),
    pair(
        "session-gap",
        SESSIONS,
        ("session: 30s", "session: 40s"),
        expect="restore: store per-key",
        notes=("its gap was 30000 ms, is 40000 ms",),
    ),
    pair(
        "retention",
        WINDOWS,
        ("count: per-key", "count: {store: {name: per-key, retention: 10m}}"),
        expect="restore: store per-key\nrestore: store per-key",
    ),
    pair(
        "join-window",
        STREAMS,
        ("within: 10s", "within: 20s"),
        expect="""
        restore: store KSTREAM-JOINOTHER-0000000005-store
        restore: store KSTREAM-JOINTHIS-0000000004-store""",
    ),
    pair(
        "inner-becomes-outer",
        STREAMS,
        *_OUTER,
        expect="""
        renamed: store KSTREAM-OUTEROTHER-0000000005-store
        renamed: store KSTREAM-OUTERTHIS-0000000004-store""",
    ),
    pair(
        "versions-come",
        TABLES,
        ("table: users", "table: users\n    store: {name: users, versioned: 1h}"),
        expect="renamed: store users",
    ),
    pair(
        "table-becomes-versioned",
        TABLES.replace("table: users", "table: users\n    store: users"),
        ("store: users", "store: {name: users, versioned: 1h}"),
        expect="restore: store users",
    ),
    pair(
        "versioned-becomes-plain",
        TABLES.replace("table: users", "table: users\n    store: {name: users, versioned: 1h}"),
        ("{name: users, versioned: 1h}", "users"),
        expect="incompatible: store users",
    ),
    # Where state lies
    pair(
        "in-memory",
        NAMED,
        ("count: counts", "count: {store: {name: counts, persistent: false}}"),
        expect="restore: store counts",
    ),
    pair(
        "on-disk",
        NAMED.replace("count: counts", "count: {store: {name: counts, persistent: false}}"),
        ("persistent: false", "persistent: true"),
        expect="restore: store counts",
    ),
    pair(
        "no-changelog",
        NAMED,
        ("count: counts", "count: {store: {name: counts, logging: false}}"),
        expect="renamed: store counts",
    ),
    pair(
        "changelog-comes",
        NAMED.replace("count: counts", "count: {store: {name: counts, logging: false}}"),
        ("logging: false", "logging: true"),
        expect="renamed: store counts",
    ),
    pair("cache-goes", NAMED, ("count: counts", "count: {store: {name: counts, caching: false}}")),
    pair(
        "source-topic-is-changelog",
        TABLES,
        ("application: pair\n", "application: pair\nconfig: {topology.optimization: all}\n"),
        expect="restore: store users-STATE-STORE-0000000000",
    ),
    pair(
        "source-topic-is-no-changelog",
        TABLES.replace("application: pair\n", "application: pair\nconfig: {topology.optimization: all}\n"),
        ("config: {topology.optimization: all}\n", ""),
        expect="renamed: store users-STATE-STORE-0000000000",
    ),
    # Partitions
    pair(
        "partitions-of-an-input-with-state",
        TOTALS,
        ("partitions: 2", "partitions: 4"),
        expect="incompatible: store totals\nincompatible: topic sales",
    ),
    pair(
        "partitions-of-an-input-without-state",
        TWO.replace("a: {value: string}", "a: {value: string, partitions: 2}", 1)
        .replace("group_by_key, {count: a-store}, to_stream", "peek: len(value)")
        .replace("a-counts: {value: long}", "a-counts: {value: string}"),
        ("partitions: 2", "partitions: 3"),
        expect="stop: topic a",
    ),
    pair(
        "partitions-of-a-repartition",
        EXPLICIT,
        ("partitions: 2", "partitions: 3"),
        expect="incompatible: topic spread-repartition",
    ),
    # The application
    pair(
        "another-application", NAMED, ("application: pair", "application: other"), expect="renamed: application other"
    ),
    pair(
        "application-and-store",
        NAMED,
        ("application: pair", "application: other"),
        ("count: counts", "count: totals"),
        expect="renamed: application other\nrenamed: store totals",
    ),
    pair(
        "state-directory",
        NAMED,
        ("application: pair\n", "application: pair\nconfig: {state.dir: /elsewhere}\n"),
        expect="restore: setting state.dir",
    ),
    pair(
        "input-serde",
        TABLES.replace("clicks: {value: string}", "clicks: {value: uuid}"),
        ("clicks: {value: uuid}", "clicks: {value: string}"),
    ),
    pair(
        "input-serde-other-bytes",
        TABLES,
        ("clicks: {value: string}", "clicks: {value: long}"),
        ("left + right", "right"),
        expect="unknown: topic clicks",
    ),
    pair(
        "output-replaced",
        NAMED,
        ("to: counts", "to: totals"),
        ("counts: {value", "totals: {value: long}, counts: {value"),
    ),
]
