"""Bad files, each with every line that `validate` shows for it: the YAML, topics, settings, functions and stores."""

from __future__ import annotations

import pytest

from streamkit import spec
from streamkit.errors import TopologyError
from streamkit_cli.problems import render
from tests.spec.helpers import HEAD, pipeline, problems

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
            "1:1: A topology needs 'streamkit': add 'streamkit: 1' as the first line",
        ],
    ),
    "no application": (
        "streamkit: 1",
        [
            "1:1: A topology needs 'application': add 'application: NAME'; names of its group and internal topics begin with it",
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
            "4:1: Malformed YAML while scanning for the next token: YAML indents with spaces; a tab stands here",
        ],
    ),
    "list indented apart": (
        HEAD + "include:\n  - a: 1\n   - b: 2",
        [
            "5:4: Malformed YAML: this line is indented by 3, the one above by 2, and the list that begins in line 4 by 2",
        ],
    ),
    "item indented less": (
        HEAD + "include:\n  - a\n - c",
        [
            "5:2: Malformed YAML: this line is indented by 1, the one above by 2, and the mapping that begins in line 1 by 0",
        ],
    ),
    "key indented less": (
        HEAD + "topics:\n  a: {}\n b: {}",
        [
            "5:2: Malformed YAML: this line is indented by 1, the one above by 2, and the mapping that begins in line 1 by 0",
        ],
    ),
    "key indented more": (
        HEAD + "description: a\n topics: {}",
        [
            "4:8: Malformed YAML: 'topics' continues the text of the line above, because it is indented more; indent both lines alike",
        ],
    ),
    "key indented like a list": (
        HEAD + "pipelines:\n  p:\n    steps:\n      - to_stream\n      to: out",
        [
            "7:7: Malformed YAML: this line is indented like the list of line 6, and does not begin with '- '",
        ],
    ),
    "step indented like options": (
        HEAD + "pipelines:\n  p:\n    steps:\n    - peek: value\n      - to_stream",
        [
            "7:7: Malformed YAML: this line is indented like the keys of line 6, and begins with '- '",
        ],
    ),
    "text after a quote": (
        HEAD + "description: 'a' == b",
        [
            "3:18: Malformed YAML: nothing may follow a closing quote; put the whole text in quotes",
        ],
    ),
    "key without a space": (
        HEAD + "description:a\ntopics: {}",
        [
            "4:1: Malformed YAML while scanning a simple key that begins in line 3: a key ends with ': ', a colon and a space",
        ],
    ),
    "tab after text": (
        HEAD + "include:\n  - a\n\t- b",
        [
            "5:1: Malformed YAML while scanning a plain scalar that begins in line 4: YAML indents with spaces; a tab stands here",
        ],
    ),
    "braces of templates": (
        HEAD + "description: {{ value }}",
        [
            "3:14: 'description' must be text, not a mapping",
            "3:15: A key must be text, not a mapping; '{{ value }}' is written 'value'",
        ],
    ),
    "topics in place of pipelines": (
        HEAD + "topics: {t: {}}\npipelines: {a: {from: t}, b: {stream: t, steps: [merge: t]}}",
        [
            "4:23: There is no pipeline 't', but a topic of that name; write 'stream: t' or 'table: t'",
            "4:57: There is no pipeline 't', but a topic of that name; write 'stream: t' or 'table: t'",
        ],
    ),
    "keys of a pipeline beside it": (
        HEAD + "topics: {t: {}}\npipelines:\n  p:\n    stream: t\n  to: t",
        [
            "7:3: 'to' is a key of a pipeline, and begins a pipeline here; indent it more",
        ],
    ),
    "recursive alias": (
        HEAD + "topics: &a {b: *a}",
        [
            "3:16: The alias *a is inside the value that it refers to",
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
            "3:14: The tag '!x' is not part of the language; remove it, or quote the text",
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
    "at": (
        HEAD + "description: @x",
        [
            "3:14: Malformed YAML while scanning for the next token: text that begins with '@' must be quoted",
        ],
    ),
    "open mapping": (
        HEAD + "topics:\n  a: {key: string\npipelines: {}",
        [
            "5:10: Malformed YAML while parsing a flow mapping that begins in line 4: expected ',' or '}'; quote text that has a comma, a bracket or a quote",
        ],
    ),
    "serde without arguments": (
        HEAD + "topics: {a: {value: {json: a.json}}}",
        [
            "3:21: 'value' of the topic 'a': the serde json takes no argument: write json; {json_schema: FILE} checks values by a schema",
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
    "function with a wrong call": (
        pipeline("map_values: f(value)").replace("functions: {}", "functions: {f: {call: m.f}}"),
        ["4:23: 'call' must be of the form package.module:callable, not 'm.f'; write m:f"],
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
    "settings of custom stores": (
        HEAD
        + "stores:\n  a: {type: key_value, segment_interval: 1m, config: {retention: 5}}\n"
        + "  b: {type: versioned, history: 1m, segment_interval: 0, logging: false, config: {}}\n"
        + "  c: {type: session, retention: 1m, segment_interval: 5s, persistent: false}\n"
        + "  d: {type: versioned, history: 1m, caching: true}\n  e: {type: versioned, history: 1m, caching: false}\n",
        [
            "4:42: 'segment_interval' belongs to stores of type window or session or versioned, not key_value",
            "4:55: There is no setting 'retention' of topics; did you mean 'retention.ms'?",
            "5:55: 'segment_interval' of the store 'b' must be at least 1 ms, not the number 0",
            "5:82: 'config' is for the changelog, which 'logging: false' turns off",
            "6:55: 'segment_interval' of the store 'c' is for persistent stores",
            "7:46: 'caching' belongs to stores of type key_value or window or session, not versioned",
        ],
    ),
    "times to live": (
        pipeline("group_by_key", "count: {store: {name: s, ttl: 0, retention: 5m, versioned: 1h}}")
        + "stores:\n  a: {type: window, window_size: 1m, retention: 1h, ttl: 1h}\n  b: {type: key_value, ttl: soon}\n",
        [
            "10:39: 'ttl' of a store must be at least 1 ms, not the number 0",
            "10:39: 'ttl' is only for stores of rows by key, and 'versioned' is for versioned tables, whose rows expire with their history",
            "10:39: 'ttl' is only for stores of rows by key, and 'retention' is for windows and sessions",
            "13:58: 'ttl' belongs to stores of type key_value, not window",
            "14:29: 'ttl' of the store 'b' must be a duration such as 100ms, 30s, 5m, 1h, 7d, PT5M or an integer of milliseconds, not 'soon'",
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_file(name):
    text, expected = CASES[name]
    assert problems(text) == expected


def test_report_with_excerpt():
    text = f"{HEAD}topics: {{}}\ntopic: {{}}\n"
    with pytest.raises(TopologyError) as caught:
        spec.load_text(text, "f.yaml", environment={})
    assert render(caught.value.problems, {"f.yaml": text}, excerpt=True).split("\n") == [
        "f.yaml:4:1: A topology has no key 'topic'; did you mean 'topics'?",
        "    4 | topic: {}",
        "      | ^",
    ]
