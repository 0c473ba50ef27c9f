"""Bad pipelines and steps, each with every line that `validate` shows for the file."""

from __future__ import annotations

import pytest

from tests.spec.helpers import LINES, pipeline, problems

P = "pipelines:\n  p: "
CASES = {
    "calls without quotes": (
        pipeline(
            'map_values: {value: get(value, "ts", -1)}',
            "filter: {if: lookup_all(value.a, value.b)}",
            'map_values: {value: {"a": value.x}}',
            'map_values: {"a": value.x}',
            'map_values: {value: max(value.a, "a) (", min(1, 2)), store: s}',
            'map: {key: key, value: {"a": get(value, "b", 1)}}',
            "branch: {when: {a: {if: [max(1, 2)]}}}",
        ),
        [
            "9:29: YAML ends this value at its comma: put it in quotes: 'get(value, \"ts\", -1)'",
            "10:22: YAML ends this value at its comma: put it in quotes: 'lookup_all(value.a, value.b)'",
            "10:22: unknown function 'lookup_all'",
            "11:29: 'value' of 'map_values' must be an expression, not a mapping; put it in quotes: '{\"a\": value.x}'",
            "12:21: The step 'map_values' has none of these options; if this is meant as an expression, put it in quotes: '{\"a\": value.x}'",
            "13:29: YAML ends this value at its comma: put it in quotes: 'max(value.a, \"a) (\", min(1, 2))'",
            "14:32: 'value' of 'map' must be an expression, not a mapping; put it in quotes: '{\"a\": get(value, \"b\", 1)}'",
            "14:38: YAML ends this value at its comma: put it in quotes: 'get(value, \"b\", 1)'",
            "15:33: 'if' of the branch 'a' must be an expression, not a list; put it in quotes: '[max(1, 2)]'",
            "16:9: 'to' may not follow a 'branch' step; give each branch its own",
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
    "names without a colon": (
        pipeline("filter value > 3", "filter:value", "group_by: {keey: value}"),
        [
            "9:9: There is no step 'filter value > 3'; write a colon and a blank after the name: 'filter: …'",
            "10:9: There is no step 'filter:value'; write a colon and a blank after the name: 'filter: …'",
            "11:20: The step 'group_by' has no key 'keey'; did you mean 'key'?",
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
        pipeline("filter: valeu > 3", "filter: 'it''s '", "map_values: null", "suppress"),
        [
            "9:17: unknown name 'valeu'; did you mean 'value'? (there are: key, value, timestamp, headers, topic, partition, offset)",
            "10:20: not an expression: unterminated string literal (detected at line 1)",
            "11:9: The step 'map_values' needs 'value'; write map_values: …",
            "12:9: The step 'suppress' needs 'until'; write suppress: window_closes, or suppress: 5m",
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
            "13:31: The store 's' is made twice; the first is in line 10",
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
            "13:54: 'type' already determines 'persistent'; remove one of the two",
            "13:84: 'config' is for the changelog, which 'logging: false' turns off",
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
            "6:58: A 'global_store' has no 'steps': its records go only to the store",
            "6:77: A 'global_store' has no 'to': its records go only to the store",
            "7:24: 'read_only_store' must be one topic, not a list",
            "7:37: 'store' of the read_only_store must be a name; define the store in the section 'stores'",
            "7:57: 'process' of the read_only_store must be of the form package.module:callable, not 'm.f'; write m:f",
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
            "9:25: 'call' of 'process' must be of the form package.module:callable, not 'm.f'; write m:f",
            "9:39: There is no store 's' in 'stores'; the file has no stores",
        ],
    ),
    "branch": (
        pipeline("branch: {when: {a.b: value, c: {}}, default: x y}", "peek: value"),
        [
            "9:25: The name of a branch 'a.b' must be made of letters, digits, _ and -",
            "9:40: The branch 'c' needs 'if'",
            "9:54: The name of a branch 'x y' must be made of letters, digits, _ and -",
            "10:9: A pipeline ends with its 'branch' step; continue with 'from: PIPELINE.BRANCH', or below 'when'",
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
def test_bad_pipeline(name):
    text, expected = CASES[name]
    assert problems(text) == expected
