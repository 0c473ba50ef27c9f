"""Bad files, each with every line that `validate` shows for it."""

from __future__ import annotations

import pytest

from streamkit import spec
from streamkit.errors import TopologyError
from streamkit.spec.report import render
from tests.spec.helpers import HEAD, LINES, pipeline, problems

P = "pipelines:\n  p: "
CASES = {
    "empty": (
        "",
        [
            "1:1: The file is empty; a topology begins with 'streamkit: 1'",
        ],
    ),
    "list": (
        "- a",
        [
            "1:1: A topology must be a mapping that begins with 'streamkit: 1', not a list",
        ],
    ),
    "version": (
        "streamkit: 1.0\napplication: a",
        [
            "1:12: 'streamkit', the version of the language, must be 1, not the number 1.0",
        ],
    ),
    "application": (
        "streamkit: 1\napplication: 'a b'",
        [
            "2:14: 'application' 'a b' has ' ', which is not among the letters, digits and ._- that Kafka allows",
        ],
    ),
    "number as text": (
        "streamkit: 1\napplication: 5",
        [
            "2:14: 'application' must be text, not the number 5 (write \"5\" for the text)",
        ],
    ),
    "missing": (
        "application: a",
        [
            "1:1: A topology needs 'streamkit'",
        ],
    ),
    "unknown top level": (
        HEAD + "topic: {}",
        [
            "3:1: A topology has no key 'topic'; did you mean 'topics'?",
        ],
    ),
    "duplicate": (
        HEAD + "topics:\n  a: {key: string, key: long}",
        [
            "4:20: The key 'key' stands twice; the first is in line 4",
        ],
    ),
    "merge key": (
        HEAD + "topics:\n  a: &a {}\n  b: {<<: *a}",
        [
            "5:7: Merge keys (<<) are not part of the language; write the entries out",
        ],
    ),
    "two documents": (
        HEAD + "---\na: 1",
        [
            "3:1: A second document begins here; a file holds one topology",
        ],
    ),
    "unclosed": (
        HEAD + "topics: {a: [",
        [
            "3:14: Malformed YAML while parsing a flow node: did not find expected node content",
        ],
    ),
    "tab": (
        HEAD + "topics:\n\ta: 1",
        [
            "4:1: Malformed YAML while scanning for the next token: a tab, or a character that must be quoted, stands here",
        ],
    ),
    "recursive alias": (
        HEAD + "topics: &a {b: *a}",
        [
            "3:16: The alias *a stands inside of what it refers to",
        ],
    ),
    "unknown alias": (
        HEAD + "topics: *a",
        [
            "3:9: The alias *a has no anchor &a before it",
        ],
    ),
    "tag": (
        HEAD + "description: !x y",
        [
            "3:14: The tag '!x' is not part of the language; remove it",
        ],
    ),
    "control character": (
        HEAD + "description: \x07",
        [
            "3:14: The character U+0007 may not stand in a YAML file",
        ],
    ),
    "complex key": (
        HEAD + "topics: {[a]: {}}",
        [
            "3:10: A key must be text, not a list",
        ],
    ),
    "topic name": (
        HEAD + "topics: {'a b': {}, x: {topic: ..}}",
        [
            "3:10: The name of a topic 'a b' has ' ', which is not among the letters, digits and ._- that Kafka allows",
            "3:32: The name of a topic '..' may not be '.' or '..'",
        ],
    ),
    "topic options": (
        HEAD + "topics: {a: {partitions: 0, replication_factor: 0, reset: erliest, timestamp: wallclok, keys: x}}",
        [
            "3:26: 'partitions' must be a whole number of at least 1, not the number 0",
            "3:49: 'replication_factor' must be a whole number of at least 1, not the number 0",
            "3:59: 'reset' must be earliest, latest, none or by_duration, not 'erliest'; did you mean 'earliest'?",
            "3:79: 'timestamp' is 'wallclok'; did you mean 'wallclock'?",
            "3:89: The topic 'a' has no key 'keys'; did you mean 'key'?",
        ],
    ),
    "topic resets": (
        HEAD + "topics: {a: {reset: by_duration}, b: {reset: {by_duration: -1h}}, c: {reset: {duration: 1h}}}",
        [
            "3:21: 'reset' needs a duration; write reset: {by_duration: 1h}",
            "3:60: 'by_duration' of 'reset' must be a duration such as 100ms, 30s, 5m, 1h, 7d, PT5M or an integer of milliseconds, not '-1h'",
            "3:78: 'reset' needs 'by_duration'",
            "3:79: 'reset' has no key 'duration'; did you mean 'by_duration'?",
        ],
    ),
    "topic config": (
        HEAD + "topics: {a: {config: {retention: 5}}}",
        [
            "3:23: There is no setting 'retention' of topics; did you mean 'retention.ms'?",
        ],
    ),
    "serde": (
        HEAD + "topics: {a: {key: strng}}",
        [
            "3:19: 'key' of the topic 'a': no serde is called 'strng'; did you mean 'string'?",
        ],
    ),
    "config": (
        HEAD + "config: {num.stream.threads: x, num.stream.thread: 1, group.id: g, producer.fetch.max.bytes: 1}",
        [
            "3:30: num.stream.threads must be a whole number, not 'x'",
            "3:33: There is no setting 'num.stream.thread'; did you mean 'num.stream.threads'?",
            "3:55: group.id can't be set: the group is 'application:' of the file",
            "3:68: producer.fetch.max.bytes can't be set: fetch.max.bytes is a setting of consumer",
        ],
    ),
    "config nested": (
        HEAD + "config: {consumer: {x: 1}}",
        [
            "3:20: 'consumer' must be a value; names are written out: consumer.…: value",
        ],
    ),
    "function": (
        HEAD + "functions: {f: {}, 9: {call: m:f}, g: {params: [a], expr: a + b}}",
        [
            "3:13: The function 'f' must have either 'call', or 'params' and 'expr'",
            "3:20: The name of a function '9' must be a letter, then letters, digits or _",
            "3:63: unknown name 'b' (there are: headers, a)",
        ],
    ),
    "store": (
        HEAD + "stores: {a: {type: window}, b: {type: map}, c: {type: session, history: 5s}, d: {}}",
        [
            "3:10: The store 'a' needs 'retention', since its type is window",
            "3:10: The store 'a' needs 'window_size', since its type is window",
            "3:39: 'type' of the store 'b' must be key_value, window, session or versioned, not 'map'",
            "3:45: The store 'c' needs 'retention', since its type is session",
            "3:73: 'history' belongs to stores of type versioned, not session",
            "3:81: The store 'd' needs 'type'",
        ],
    ),
    "variable": (
        HEAD + "description: ${NOT_SET} ${9}",
        [
            "3:14: The variable NOT_SET is not set; set it, or give a default: ${NOT_SET:-default}",
            "3:14: `${` begins a variable: write ${NAME} or ${NAME:-default}, or $${ for the text `${`",
        ],
    ),
    "origins": (
        LINES + P + "{stream: in, table: in}\n  q: {}\n  r: {from: p, name: x}",
        [
            "5:3: The pipeline 'p' must begin with exactly one of stream, table, global_table, global_store, read_only_store, from, not both stream and table",
            "6:3: The pipeline 'q' must begin with exactly one of stream, table, global_table, global_store, read_only_store, from, not none",
            "7:22: 'name' belongs to stream, table, global_table, not to 'from'",
        ],
    ),
    "topic reference": (
        LINES + P + "{stream: inn}\n  q: {stream: [in, oout], to: ot}",
        [
            "5:15: There is no topic 'inn' in 'topics'; did you mean 'in'?",
            "6:20: There is no topic 'oout' in 'topics'; did you mean 'out'?",
            "6:31: There is no topic 'ot' in 'topics'; did you mean 'out'?",
        ],
    ),
    "pattern": (
        LINES + P + "{stream: {pattern: '['}}",
        [
            "5:25: 'pattern' is no regular expression: missing ]: [",
        ],
    ),
    "stream with store": (
        LINES + P + "{stream: in, store: s}",
        [
            "5:26: A stream has no store; only 'table' and 'global_table' take 'store'",
        ],
    ),
    "pipeline reference": (
        LINES + P + "{from: q}\n  q: {from: r}\n  r: {from: p}\n  s: {from: pp}\n  t: {from: p.x}",
        [
            "7:13: Pipelines refer to each other in a circle: p -> q -> r -> p",
            "8:13: There is no pipeline 'pp'; did you mean 'p'?",
            "9:13: The pipeline 'p' has no branches; write 'p' alone",
        ],
    ),
    "pipeline name": (
        LINES + "pipelines:\n  p.q: {stream: in}",
        [
            "5:3: The name of a pipeline 'p.q' must be made of letters, digits, _ and -",
        ],
    ),
    "steps": (
        pipeline("fliter: value", "[a]", "filter: {if: value, nme: x}", "window: 5m", "filter"),
        [
            "9:9: There is no step 'fliter'; did you mean 'filter'?",
            "10:9: A step must be a name, or a name with its options, not a list",
            "11:29: The step 'filter' has no key 'nme'; did you mean 'name'?",
            "12:17: The step 'window' takes options only, not '5m'; write window: {tumbling, hopping, advance, sliding, session, grace, emit} with those that you need",
            "13:9: The step 'filter' needs 'if'; write filter: …",
        ],
    ),
    "two names": (
        pipeline("{filter: value, peek: value}"),
        [
            "9:9: A step is one name; indent the options of 'filter' below it, or begin a new '- '",
        ],
    ),
    "unquoted": (
        pipeline('map_values: {"city": value.city}', "map_values: [value, 1]", "filter: {if: [a]}"),
        [
            "9:21: The step 'map_values' has none of these options; if this is meant as an expression, put it in quotes: '{\"city\": value.city}'",
            "10:21: 'value' of 'map_values' must be an expression, not a list; put it in quotes: '[value, 1]'",
            "11:22: 'if' of 'filter' must be an expression, not a list; put it in quotes: '[a]'",
        ],
    ),
    "expression": (
        pipeline("filter: valeu > 3", "filter: 'it''s '", "map_values: null"),
        [
            "9:17: unknown name 'valeu'; did you mean 'value'? (there are: key, value, timestamp, headers, topic, partition, offset)",
            "10:20: not an expression: unterminated string literal (detected at line 1)",
            "11:9: The step 'map_values' needs 'value'; write map_values: …",
        ],
    ),
    "name": (
        pipeline("filter: {if: value, name: a b}"),
        [
            "9:35: 'name' of 'filter' 'a b' has ' ', which is not among the letters, digits and ._- that Kafka allows",
        ],
    ),
    "duration": (
        pipeline("group_by_key", "window: {tumbling: 5x}", "count"),
        [
            "10:28: 'tumbling' of 'window' must be a duration such as 100ms, 30s, 5m, 1h, 7d, PT5M or an integer of milliseconds, not '5x'",
        ],
    ),
    "on_error": (
        pipeline("filter: {if: value, on_error: stop}", "peek: {do: value, on_error: {dead_letter: none}}"),
        [
            "9:39: 'on_error' must be fail, continue or {dead_letter: TOPIC}, not 'stop'",
            "10:51: There is no topic 'none' in 'topics'; known are in, out",
        ],
    ),
    "store twice": (
        pipeline("group_by_key", "count: s", "to_stream", "group_by_key", "count: {store: {name: s}}"),
        [
            "13:24: The store 's' is made twice; the first is in line 10",
        ],
    ),
    "settings of custom stores": (
        HEAD
        + "stores:\n  a: {type: key_value, segment_interval: 1m, config: {retention: 5}}\n"
        + "  b: {type: versioned, history: 1m, segment_interval: 0, logging: false, config: {}}\n"
        + "  c: {type: session, retention: 1m, segment_interval: 5s, persistent: false}\n",
        [
            "4:42: 'segment_interval' belongs to stores of type window or session or versioned, not key_value",
            "4:55: There is no setting 'retention' of topics; did you mean 'retention.ms'?",
            "5:55: 'segment_interval' of the store 'b' must be at least 1 ms, not the number 0",
            "5:82: 'config' is for the changelog, which 'logging: false' does without",
            "6:55: 'segment_interval' of the store 'c' is for persistent stores",
        ],
    ),
    "times to live": (
        pipeline("group_by_key", "count: {store: {name: s, ttl: 0, retention: 5m, versioned: 1h}}")
        + "stores:\n  a: {type: window, window_size: 1m, retention: 1h, ttl: 1h}\n  b: {type: key_value, ttl: soon}\n",
        [
            "10:39: 'ttl' of a store must be at least 1 ms, not the number 0",
            "10:39: 'ttl' is for rows by their keys, and 'versioned' for tables with a history, whose versions expire by it",
            "10:39: 'ttl' is for rows by their keys, and 'retention' for windows and sessions",
            "13:58: 'ttl' belongs to stores of type key_value, not window",
            "14:29: 'ttl' of the store 'b' must be a duration such as 100ms, 30s, 5m, 1h, 7d, PT5M or an integer of milliseconds, not 'soon'",
        ],
    ),
    "settings of a step's store": (
        pipeline(
            "group_by_key",
            "count: {store: {type: rocksdb, segment_interval: 0, config: {cleanup.policies: compact}}}",
            "to_stream",
            "group_by_key",
            "count: {store: {type: in_memory, persistent: true, logging: false, config: {segment.ms: 5}}}",
        ),
        [
            "10:31: 'type' of a store must be persistent or in_memory, not 'rocksdb'",
            "10:58: 'segment_interval' of a store must be at least 1 ms, not the number 0",
            "10:70: There is no setting 'cleanup.policies' of topics; did you mean 'cleanup.policy'?",
            "13:54: 'type' already says what 'persistent' would",
            "13:84: 'config' is for the changelog, which 'logging: false' does without",
        ],
    ),
    "stores kept from topics": (
        LINES
        + "stores: {s: {type: key_value}}\n"
        + P
        + "{global_store: in, store: s, source_name: x, steps: [peek: value], to: out}\n"
        + "  q: {read_only_store: [in], store: {name: s}, process: m.f}\n"
        + "  r: {read_only_store: no, store: t}\n"
        + "  u: {global_store: in}\n"
        + "  v: {table: in, process: m:f}\n"
        + "  w: {stream: in, steps: [merge: {with: {global_store: in}}]}\n",
        [
            "6:48: 'source_name' belongs to read_only_store, not to 'global_store'",
            "6:58: A 'global_store' has no 'steps': its records go to the store only",
            "6:77: A 'global_store' has no 'to': its records go to the store only",
            "7:24: 'read_only_store' must be one topic, not a list",
            "7:37: 'store' of the read_only_store must be a name; what the store is stands in 'stores'",
            "7:57: 'process' of the read_only_store must be of the form package.module:callable, not 'm.f'",
            "8:24: There is no topic 'no' in 'topics'; known are in, out",
            "8:35: There is no store 't' in 'stores'; known are s",
            "9:21: A 'global_store' needs 'store', the name of one of the file's stores",
            "10:27: 'process' belongs to global_store and read_only_store, not to 'table'",
            "11:41: 'with' of 'merge' must be a pipeline, or have exactly one of stream, table, global_table",
            "11:42: 'with' of 'merge' has no key 'global_store'; did you mean 'global_table'?",
        ],
    ),
    "store without name": (
        pipeline("group_by_key", "count: {store: {caching: 5}}"),
        [
            "10:34: 'caching' of a store must be true or false, not the number 5",
        ],
    ),
    "process": (
        pipeline("process: {call: m.f, stores: [s]}"),
        [
            "9:25: 'call' of 'process' must be of the form package.module:callable, not 'm.f'",
            "9:39: There is no store 's' in 'stores'; the file has no stores",
        ],
    ),
    "branch": (
        pipeline("branch: {when: {a.b: value, c: {}}, default: x y}", "peek: value"),
        [
            "9:25: The name of a branch 'a.b' must be made of letters, digits, _ and -",
            "9:40: The branch 'c' needs 'if'",
            "9:54: The name of a branch 'x y' must be made of letters, digits, _ and -",
            "10:9: A pipeline ends with its 'branch' step; go on with 'from: PIPELINE.BRANCH', or below 'when'",
        ],
    ),
    "branches in a list": (
        pipeline("branch: {when: [value, {steps: []}, {if: value, name: a.b, chained: 1}, {if: [value]}], default: 5}"),
        [
            "9:32: The branch '2' needs 'if'",
            "9:63: The name of a branch 'a.b' must be made of letters, digits, _ and -",
            "9:77: 'chained' of the branch 'a.b' must be true or false, not the number 1",
            "9:86: 'if' of the branch '4' must be an expression, not a list; put it in quotes: '[value]'",
            "9:106: 'default' of 'branch' must be text, not the number 5 (write \"5\" for the text)",
            "10:9: 'to' may not follow a 'branch' step; give each branch its own",
        ],
    ),
    "reference to a branch without a name": (
        LINES
        + "pipelines:\n  p:\n    stream: in\n    steps:\n      - branch: {when: [value], default: true}\n  q: {from: p.2}",
        [
            "9:13: The pipeline 'p' has no branch '2'; known are 0, 1",
        ],
    ),
    "branch reference": (
        LINES
        + "pipelines:\n  p:\n    stream: in\n    steps:\n      - branch: {when: {a: value}}\n  q: {from: p.b}\n  r: {from: p}",
        [
            "9:13: The pipeline 'p' has no branch 'b'; known are a",
            "10:13: The pipeline 'p' ends with branches; name one of them: p.a",
        ],
    ),
    "to": (
        pipeline("peek: value", ends="to: {topic: out, route: value}"),
        [
            "10:9: 'to' must be a topic, or have exactly one of topic, route",
        ],
    ),
    "for_each": (
        pipeline("peek: value", ends="for_each: m:f"),
        [
            "10:15: 'for_each' must be {call: module:callable}, not 'm:f'",
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_file(name):
    text, expected = CASES[name]
    assert problems(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        "a: " * 50_000,
        "- " * 50_000,
        "{a: " * 50_000,
        HEAD + "description: " + "9" * 100_000,
        HEAD + "description: '" + "x" * 100_000,
        HEAD + "topics: {" + ", ".join(f"t{i}: {{keyy: x}}" for i in range(300)) + "}",
        "x" * 10_000_001,
    ],
    ids=["lists", "mappings", "sequences", "flow mappings", "digits", "open quote", "many", "long"],
)
def test_hostile_text_is_a_clean_problem(text):
    found = problems(text)
    assert found
    assert all(len(line) < 500 for line in found)


def test_alias_bomb_is_refused():
    rows = "".join(f"  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
    found = problems(f"{HEAD}config:\n  a0: &a0 [x]\n{rows}")
    assert "once its aliases are written out" in found[-1]


@pytest.mark.parametrize("data", [b"\xff\xfea\x00", b"application: \xe9", b"\x00", b"a: \xed\xa0\x80"])
def test_bytes_that_are_no_text(tmp_path, data):
    path = tmp_path / "t.yaml"
    path.write_bytes(data)
    with pytest.raises(TopologyError) as caught:
        spec.load(path)
    assert caught.value.problems[0].position.line == 1


def test_report_with_excerpt():
    text = f"{HEAD}topics: {{}}\ntopic: {{}}\n"
    with pytest.raises(TopologyError) as caught:
        spec.load_text(text, "f.yaml", environment={})
    assert render(caught.value.problems, {"f.yaml": text}, excerpt=True).split("\n") == [
        "f.yaml:4:1: A topology has no key 'topic'; did you mean 'topics'?",
        "    4 | topic: {}",
        "      | ^",
    ]
