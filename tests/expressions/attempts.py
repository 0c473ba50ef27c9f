"""Attempts to exhaust the machine or to reach the interpreter, by who writes the file or who sends records.

`python -m tests.expressions.attempts` runs all of them in one process with little memory, and prints a JSON line for each.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from time import thread_time
from typing import Any

from streamkit.errors import LimitError, TopologyError
from streamkit.expressions import Function, parse
from streamkit.expressions.budget import MAX_SECONDS, Budget

SPACE = 2 << 30
NAMES = ("key", "value", "aggregate", "timestamp", "headers", "topic", "partition", "offset")
PRIME = 2**61 - 1
MAX_BYTES, MAX_STEPS = 16 << 20, 1_000_000
"""A quarter and a fiftieth of the defaults: an attempt ends the sooner."""


def shared(levels: int, leaf: Any = "x") -> Any:
    """Return 2**levels leaves in as many lists as levels."""
    for _ in range(levels):
        leaf = [leaf, leaf]
    return leaf


def deep(levels: int) -> Any:
    """Return a list of so many levels."""
    made: Any = []
    for _ in range(levels):
        made = [made]
    return made


def ladder(levels: int, last: int) -> Any:
    """Return a list of so many levels, which ends with numbers."""
    made: Any = [*range(300, 1000), last]
    for _ in range(levels):
        made = [made]
    return made


_VALUES: dict[str, Callable[[], Any]] = {
    "text": lambda: "ab" * 500_000,
    "blank": lambda: " " * 1_000_000,
    "tabs": lambda: "\t" * 1_000_000,
    "lines": lambda: "\n" * 1_000_000,
    "accents": lambda: "e\u0301" * 200_000,
    "sharp": lambda: "\u00df\u0149\ufb03" * 200_000,
    "emoji": lambda: "\U0001f600" * 200_000,
    "lone": lambda: "\ud800" * 100_000,
    "digits": lambda: "9" * 1_000_000,
    "commas": lambda: "," * 1_000_000,
    "numbers": lambda: list(range(300_000)),
    "floats": lambda: [number / 7 for number in range(300_000)],
    "words": lambda: [f"word{number}" for number in range(100_000)],
    "equal": lambda: [PRIME * number for number in range(1, 50_000)],
    "pairs": lambda: [[PRIME * number, number] for number in range(1, 50_000)],
    "tuples": lambda: [(PRIME * number, "a") for number in range(1, 20_000)],
    "rows": lambda: [{"a": number, "b": "x" * 20, "c": [number]} for number in range(30_000)],
    "object": lambda: {f"k{number}": number for number in range(100_000)},
    "big": lambda: 2**4000,
    "bigs": lambda: [2**4000 + number for number in range(20_000)],
    "infinite": lambda: float("inf"),
    "nan": lambda: float("nan"),
    "tiny": lambda: 5e-324,
    "shared": lambda: shared(40),
    "deep": lambda: deep(400),
    "wide": lambda: "%9999999d" * 50,
    "named": lambda: "%(a)s" * 100_000,
    "zeros": lambda: [0] * 500_000,
    "ladders": lambda: [ladder(400, number) for number in range(100)],
    "search": lambda: {"pattern": "a[ab]{900}[ab]{900}[ab]{900}c", "text": "ab" * 500_000},
    "small": lambda: {"n": 10**9, "s": "abc", "list": [1, 2, 3], "f": 1.5},
    "one": lambda: 1,
    "none": lambda: None,
    "bytes": lambda: b"\xff" * 1_000_000,
}


@cache
def value_of(name: str) -> Any:
    """Return a value that attempts are on; made at its first use, since the tests' collection imports this module."""
    return _VALUES[name]()


_FAILED = object()
WHOLE, LONG = 50_000, "value" + " + value" * 200

# By what the attempt is on: the value, and the expressions over it.
ATTEMPTS: dict[str, dict[str, list[str]]] = {
    "texts": {
        "text": [
            "value.casefold() == value.upper()",
            "[value.find(value[x:]) for x in range(1000)]",
            "[value.index('ba' * x + 'z') for x in range(1000)]",
            "[value.count('a' * x) for x in range(1, 2000)]",
            "[value.replace('a', value[:100]) for x in range(3)]",
            "value.replace('', value)",
            "value.replace('a', 'b' * 100).replace('b', 'c' * 100)",
            "value.join(value)",
            "value.join(value.split('b'))",
            "[value.join(['a', 'b']) for x in range(100)]",
            "[value.split('a', x) for x in range(300)]",
            "[value.rsplit('ab') for x in range(30)]",
            "[value.partition(value[x:]) for x in range(100)]",
            "[value.rpartition('b' + 'a' * x) for x in range(5000)]",
            "[value.startswith(value) for x in value]",
            "[value.endswith(value[1:]) for x in value]",
            "[value.startswith(tuple(value)) for x in range(100)]",
            "[value.removeprefix(value[:x]) for x in range(300)]",
            "[value.removesuffix(value[x:]) for x in range(300)]",
            "value.ljust(10000000, 'x') + value.rjust(10000000, 'y')",
            "[value.center(9000000) for x in range(50)]",
            "[value.zfill(9000000) for x in range(50)]",
            "value.ljust(10 ** 18)",
            "value.translate({97: value, 98: value})",
            "value.translate({97: 'x' * 1000000})",
            "value.translate(value.maketrans('ab', 'ba'))",
            "[value.title() for x in range(200)]",
            "[value.swapcase() for x in value]",
            "[x for x in value if x in value and value in value + x]",
            "[value == value[:-1] + x for x in value]",
            "[value < value[1:] for x in value]",
            "max([value[x:] for x in range(200)])",
            "sorted([value[x:] for x in range(0, 1000)])",
            "sorted(value, key=lambda x: value)",
            "min(value, key=lambda x: value.count(x))",
            "{value[x:]: x for x in range(200)}",
            "[value[::-1] for x in range(100)]",
            "[value[x::2] for x in value]",
            "'%s' % value * 100",
            "'%s%s%s%s' % (value, value, value, value)",
            "'%1000000s' % value",
            "'%.1000000f' % 1.5",
            "f'{value}' * 20",
            "f'{[value, value, value]}' + f'{[value]!r}' + f'{value!a}'",
            "[f'{value}{x}' for x in value]",
            "str([value] * 30)",
            "[str([x, value]) for x in range(100)]",
            "list(value) * 20",
            "[list(value) for x in range(30)]",
            "tuple(value) + tuple(value) + tuple(value) + tuple(value) + tuple(value) + tuple(value) + tuple(value)",
            "dict(zip(value, enumerate(value)))",
            "list(zip(value, value, value, value))",
            "[list(enumerate(value)) for x in range(10)]",
            "[value.encode('utf-32').decode('utf-32') for x in range(20)]",
            "value.encode('ascii').hex(':')",
            "[value.encode().hex() for x in range(50)]",
            "value * 11",
            "value * 10 + value * 10 + value * 10 + value * 10 + value * 10 + value * 10 + value * 10",
            LONG,
            "[*value] + [*value] + [*value] + [*value] + [*value] + [*value] + [*value] + [*value] + [*value]",
            "[y for x in [value, value] for y in x for z in value]",
            "[[[z for z in value] for y in value] for x in value]",
            "any(x == y for x in value for y in value if x + y == 'zz')",
            "sum(1 for x in value for y in value)",
            "sum([[x] for x in value], [])",
            "sum([list(value) for x in range(100)], [])",
            "re_match('(a|b|ab)*c', value)",
            "[re_match('a{1,50}b{1,50}' * 20, value) for x in range(500)]",
            "re_split('', value[:50_000])",
            "[re_split('a', value[:50_000]) for x in range(20)]",
            "re_match('((a{1,100}){1,100}){1,100}', value)",
            "re_match(value[:100000], value)",
            "[header(value) for x in value]",
        ],
        "blank": ["[value.strip() for x in value]", "value.split() + value.splitlines()", "[value.rstrip(value) for x in range(9)]"],
        "tabs": ["value.expandtabs(1000)", "value.expandtabs()", "value.expandtabs(2 ** 31 - 1)", "value.expandtabs(2 ** 63)"],
        "lines": ["[value.splitlines() for x in range(30)]", "[value.splitlines(True) for x in value]", "value.split('\\n') * 10"],
        "accents": ["[value.casefold() for x in value]", "value.upper().lower().title()", "value.isidentifier() or value.isnumeric()"],
        "sharp": ["value.upper()", "value.casefold().upper()", "[value.upper() for x in range(100)]", "[value.title() for x in range(100)]"],
        "emoji": ["value.encode('utf-16').hex()", "f'{value!a}'", "value.encode('ascii', 'xmlcharrefreplace')", "value.encode('ascii', 'backslashreplace').hex()"],
        "lone": ["value.encode()", "value + 'x'", "value.encode('utf-8', 'replace')", "f'{value!a}'"],
        "bytes": ["[value.hex() for x in range(60)]", "value.decode('latin-1') * 9", "[value.find(x) for x in value]", "list(value) + list(value)", "value.decode('ascii', 'backslashreplace')"],
        "commas": ["[value.split(',') for x in range(20)]", "[x.split(',') for x in value.split(',')]", "value.replace(',', ',' * 11)"],
        "wide": ["value % tuple(range(50))", "[value % x for x in range(10)]"],
        "named": ["value % {'a': value}", "value % {'a': 'x' * 100}"],
    },
    "numbers": {
        "digits": ["int(value)", "float(value)", "[float(value) for x in value]", "int(value, 36)", "value.isdecimal() and value.isdigit()", "[int(value[:4000]) for x in value]"],
        "big": ["value * value", "value ** value", "value << value", "str(value) * 1000", "[value % x for x in range(1, 100000)]", "[value // 3 for x in range(10 ** 6)]", "[str(value) for x in range(10 ** 6)]", "round(value, -1000)", "float(value)", "value / 3", "[value.bit_count() for x in range(10 ** 6)]", "value.to_bytes(10 ** 9, 'big')", "value.to_bytes(600).hex()", "~value & value | value ^ -value", "divmod(value, 3)", "pow(value, value, value)"],
        "bigs": ["sum(value)", "sorted(value)", "set(value)", "{x: 1 for x in value}", "[x * y // (y + 1) for x in value for y in value]", "[x ** 2 for x in value]", "[f'{x}' for x in value]", "max(value) - min(value)"],
        "one": ["2 ** 10 ** 10", "10 ** 5000", "1 << 10 ** 9", "(2 ** 4000) ** value", "range(10 ** 9)", "[x for x in range(10 ** 6) for y in range(10 ** 6)]", "len(range(10 ** 6)) + sum(range(10 ** 6))", "list(range(10 ** 6)) * 20", "[range(10 ** 6)] * 100", "[list(range(10 ** 6)) for x in range(20)]", "'x' * 10 ** 9", "[0] * 10 ** 9", "[[0] * 1000000] * 1000000", "(1,) * 10 ** 8", "'%*d' % (10 ** 9, value)", "'%999999999d' % value", "value.to_bytes(10 ** 10, 'big')", "'0'.zfill(10 ** 12)", "int('1' * 5000)", "int('f' * 2000, 16)", "1e308 * 10", "str(1e308) * 10 ** 6", "0.1 + 0.2", "-(-(-value))", "value if value else 1 / 0", "[value for x in range(10 ** 6) if x in range(10 ** 6)]", "[0.5 in range(10 ** 6) for x in range(1000)]", "set(range(10 ** 6)) | set(range(10 ** 6))", "sorted(range(10 ** 6), key=lambda x: -x)", "sorted(range(10 ** 6), key=lambda x: 'x' * 1000)", "{x: {y: y for y in range(1000)} for x in range(1000)}", "{(x, y) for x in range(2000) for y in range(2000)}", "zip(range(10 ** 6), range(10 ** 6))", "any(x > 10 ** 7 for x in range(10 ** 6) for y in range(10 ** 6))", "min(range(10 ** 6), key=lambda x: sum(range(1000)))"],
        "infinite": ["int(value)", "round(value)", "value.is_integer()", "value.as_integer_ratio()", "range(value)", "value - value == value", "str(value) * 10 ** 7"],
        "nan": ["{value: 1, value + 0: 2}", "sorted([value, 1, value, 2])", "value == value", "max(value, 1)", "int(value)"],
        "tiny": ["value / 2", "str(value)", "1 / value", "value.as_integer_ratio()", "value.hex()", "f'{value}'"],
        "floats": ["[x in value for x in value]", "sum(value)", "sorted(value)[0]", "{x: value for x in value}", "[str(x) for x in value]", "[x.hex() for x in value]", "[x.as_integer_ratio() for x in value]"],
        "numbers": ["[x for x in value if x not in value]", "[value.index(x) for x in value]", "[value.count(x) for x in value]", "[value[x:] for x in value]", "[sum(value[:x]) for x in value]", "[[y for y in value] for x in value]", "value * 40", "value + value + value", "sorted(value, key=lambda x: [value, x])", "min(value, key=lambda x: value[x:])", "[max(value) for x in value]", "all(x < max(value) for x in value)", "dict(enumerate(value))", "set(value) & set(value)", "[value == value.copy() for x in value]", "[value < value + [1] for x in value]", "list(zip(value, value)) * 9", "str(value) * 5", "f'{value}{value}'", "[x, *value, *value, *value]", "[{*value} for x in value]", "[(x, y) for x, y in zip(value, value)]", "[a for a, *b in [value for x in value]]", "len([value] * 300000)"],
    },
    "memory": {
        "zeros": ["[[set(), set(), set()] for x in value]", "[[x ** 1290, 9 ** 1290, 7 ** 1290] for x in value]", "[x + 1 << 4000 for x in value]", "[str(x + 1 << 4000) for x in value]", "[[[[[[[[[x]]]]]]]] for x in value]", "[{'a': {'b': {'c': {'d': x}}}} for x in value]", "[list(enumerate('abcdef')) for x in value]"],
        "text": ["[[{}, {}, {}, {}, {}, {}, {}, {}, {}] for x in value]", "[[x.upper(), x.lower(), x.title(), x + 'a'] for x in value]", "re_search('a[ab]{900}[ab]{900}[ab]{900}c', value)"],
        "search": ["re_search(value.pattern, value.text)", "[re_search('a[ab]{900}' + str(x), value.text[:500]) for x in range(500)]"],
        "ladders": ["sorted(value)", "[x for x in value for y in value if x < y]", "[max(value) for x in value]"],
        "small": ["url_decode('%41' * value.n)", "url_decode('%41' * 600000)", "[uuid5('dns', str(x)) for x in range(500000)]"],
    },
    "hashes": {
        "equal": ["set(value)", "{*value}", "{x for x in value}", "{x: x for x in value}", "dict(zip(value, value))", "{float(x) for x in value}", "{x + 0.0: 1 for x in value}", "{(x, x) for x in value}", "{x // 1 for x in value}", "{-x for x in value}", "set(value).union(value)", "set([1]) | {x for x in value}", "[x in {y for y in value} for x in value]", "merge({}, {x: 1 for x in value})", "{**{x: 1 for x in value}}", "{}.fromkeys(value)", "set() ^ set(value)", "{1}.issubset(value)", "{1}.symmetric_difference(value)", "{tuple([x]) for x in value}", "{(x, 'a'): 1 for x in value}", "{x % (2 ** 61 - 1) for x in value}", "len({x * 2 for x in value})"],
        "pairs": ["dict(value)", "{x[0]: x[1] for x in value}", "{tuple(x) for x in value}", "{k: v for k, v in value}", "dict([(x[0], 1) for x in value])"],
        "tuples": ["set(value)", "{x: 1 for x in value}", "dict([(x, 1) for x in value])", "{(x, x) for x in value}"],
    },
    "shapes": {
        "rows": ["[x for x in value if x in value]", "[merge(x, {'all': value}) for x in value]", "[{**x, 'all': value} for x in value]", "sorted(value, key=lambda x: [y.a for y in value])", "[[y for y in value if y.a == x.a] for x in value]", "{x.b + str(x.a): x for x in value}", "[x | {'d': 1} for x in value]", "str(value) + f'{value}'", "[str(value) for x in value]", "sum([x.c for x in value], [])", "[x.get('a') for x in value]", "value == value[::-1]", "[list(x.items()) for x in value]", "[x.keys() for x in value]", "max(value, key=lambda x: value.index(x))"],
        "object": ["[merge(value, {'x': x}) for x in value]", "[value.items() for x in value]", "{k: value for k in value}", "[value | {x: 1} for x in value]", "[x for x in value if x in value.values()]", "list(value.items()) * 9", "sorted(value.items())", "[value == {**value} for x in value]", "dict(value, a=value, b=value)", "value.a.b.c"],
        "shared": ["value == [value, value][0]", "value == value[0]", "str(value)", "f'{value}'", "[value, value]", "sorted([value, value])", "value in [value[0], value[1]]", "value * 3", "{'a': value}", "[x for x in value]", "tuple(value) == tuple(value[0])", "min(value, value[0])", "'%s' % value", "[value].index(value[0])", "sum([value, value], [])", "len(value)", "value[0][0]", "value < value[1]"],
        "deep": ["str(value)", "value == value[0]", "[value]", "f'{value!r}'", "sorted([value, [value]])", "value < [value]", "'%s' % [value]"],
        "small": ["value.n * value.s", "value.s * value.n", "value.list * value.n", "value.s.ljust(value.n)", "range(value.n)", "[x for x in range(value.n)]", "value.s.zfill(value.n)", "'%*s' % (value.n, value.s)", "value.n ** value.n", "value.n << value.n", "f'{value.s}' * value.n", "value.s.center(value.n, 'x')", "value.s.expandtabs(value.n)", "value.n.to_bytes(value.n)", "value.s[:value.n]", "value.list[-value.n:]", "value.missing", "value['missing']", "value.get('missing', [value] * 1000)", "re_match('a{' + str(value.n) + '}', value.s)", "re_match('(' * 1000 + ')' * 1000, value.s)", "round(value.f, value.n)", "int(value.s, value.n)", "[*value.list, *range(value.n)]"],
        "none": ["value.x", "value + 1", "len(value)", "[x for x in value]", "value[0]", "str(value) * 10 ** 8"],
    },
    "interpreter": {
        "small": ["value.__class__", "value['__class__']", "value.get('__class__')", "value.get.__self__", "'{0.__class__}'.format(value)", "'{a}'.format_map(value)", "f'{value:>{value.n}}'", "f'{value!r:10}'", "f'{value.__class__}'", "'%(__class__)s' % value", "type(value)", "getattr(value, 's')", "vars(value)", "dir(value)", "globals()", "sorted([1], key=getattr)", "sorted([1], key=type)", "sorted([1], key=eval)", "sorted([1], key=value.get)", "sorted([1], key=len.__call__)", "max([1], key=lambda x: x.__class__)", "(x for x in value).gi_frame", "(lambda: 0).__globals__", "(lambda x: x)(1)", "[x := 1]", "print(value)", "open('/etc/passwd')", "exec('1')", "input()", "breakpoint()", "help()", "memoryview(b'x')", "object()", "super()", "value.update({'a': 1})", "value.clear()", "value.list.append(1)", "value.list.sort()", "value.pop('n')", "[value.list.extend([1]) for x in [1]]", "value.setdefault('a', 1)", "now.__self__", "header.__globals__", "merge.__code__", "re_match.__module__", "str.join", "str.format", "int.from_bytes", "dict.fromkeys", "(1).real.__class__", "value.s.__len__()", "value.s.format(value)", "value.s.encode('rot13')", "value.s.encode('idna')", "b'x'.decode('zlib')", "b'x'.decode('unicode_escape')", "value.s.encode('utf-7')", "str(b'x', 'hex')", "_y_b.bytes", "_x_str(1)", "_x_k_str(1, 2)", "rt.store('x')", "value.mro", "value.s.maketrans.__self__", "async_x", "await value", "yield", "lambda: value", "[*(lambda: 1)]", "value.f.fromhex('0x1p-1074')", "value.n.real.imag.denominator", "\\u005f\\u005fimport\\u005f\\u005f('os')", "ｅval('1')", "ｖalue.ｓ", "value.ｃlear()", "value.s.ｆormat(value)", "__ｉmport__('os')", "value.\u200bs", "0x" + "f" * 1000, "0b" + "1" * 5000, "1_000_000 ** 1000", "1e999", "1j * 1j", "...", "value[...]", "value[::0]", "{}[value]", "value @ value", "not " * 100 + "value", "value if " * 100 + "value" + " else 1" * 100],
    },
}  # fmt: skip


def every() -> Iterator[tuple[str, str, str]]:
    """Yield the kind of each attempt, the name of its value, and its text."""
    for kind, by_value in ATTEMPTS.items():
        for name, texts in by_value.items():
            for text in texts:
                yield kind, name, text


def attempt(text: str, value: Any, is_input: bool = True) -> dict[str, Any]:
    """Return what an expression ends in: whether it counts, its outcome, and what it took of the budget.

    is_input: whether a record may have the value, and not only an expression before this one, for which all are counted.
    """
    try:
        expression = parse(text, NAMES, functions={"twice": Function("twice", ("x",), "[x, x]")})
    except TopologyError as error:
        places = [(problem.position.line, problem.position.column) for problem in error.problems]
        return {"end": "problem", "message": str(error), "places": places}
    budget = Budget(MAX_BYTES, MAX_STEPS)
    twin = expression if expression.draws else expression.counted or expression
    known = {"value": value, "headers": [], "now": lambda: 0, "_y_b": budget}
    names = sorted({*expression.names, "value"})
    source = twin.template
    for name in names:
        source = source.replace(f"\0{name}\0", name)
    function = eval(f"lambda {', '.join([*names, '_y_b'])}: {source}", {"__builtins__": {}, **twin.globals()})
    found: dict[str, Any] = {"draws": expression.draws, "end": "value"}
    try:
        found["value"] = function(*[known.get(name, 0) for name in names], budget)
    except LimitError as error:
        found |= {"end": "limit", "message": str(error)}
    except RecursionError:
        # As the runtime names it (streamkit.runtime.execution.dead_letters).
        found |= {"end": "error", "message": "a value is nested too deeply"}
    except Exception as error:
        found |= {"end": "error", "message": f"{type(error).__name__}: {error}"[:200]}
    found |= {"steps": budget.max_steps - budget.steps, "bytes": budget.max_bytes - budget.bytes}
    if not expression.draws and (is_input or found["end"] == "value"):
        # This is what a program runs that counts nothing.
        try:
            plain = expression.function(names)(*[known.get(name, 0) for name in names])
        except Exception:
            plain = _FAILED
        found["same"] = found["end"] == "value" and _alike(plain, found["value"])
    found.pop("value", None)
    found["megabytes"] = _peak_megabytes()
    return found


def _peak_megabytes() -> int:
    """Return the most memory that this process has had; `ru_maxrss` also counts that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def _alike(one: Any, other: Any) -> bool:
    try:
        # NaN is not equal to itself, also within containers.
        return one == other or repr(one) == repr(other)
    except RecursionError:
        return True


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
    # Also for what is evaluated when the expression is read.
    Budget.__init__.__defaults__ = (MAX_BYTES, MAX_STEPS, MAX_SECONDS)
    for kind, name, text in every():
        if len(sys.argv) > 1 and sys.argv[1] not in (kind, text):
            continue
        began = thread_time()
        found = attempt(text, value_of(name), name != "shared")
        print(
            json.dumps({"kind": kind, "on": name, "text": text, **found, "seconds": thread_time() - began}), flush=True
        )
