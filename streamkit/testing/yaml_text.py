"""Writes JSON data as YAML in one line, with quotes only where they are needed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from streamkit.spec.yaml_reader import core

# A plain scalar in every place of YAML, flow mappings included.
_PLAIN = re.compile(r"(?!\d)[\w/][\w./@+-]*( [\w./@+-]+)*")


def flow(value: object) -> str:
    """Return JSON data as one line of YAML.

    >>> flow({"user": "ann", "tags": ["a b", "true"], "n": 1, "x": None})
    '{user: ann, tags: [a b, "true"], n: 1, x: null}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow_key(name)}: {flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and core(value) == value
        return value if plain else json.dumps(value, ensure_ascii=False)
    return _number(value) if isinstance(value, float) else json.dumps(value)


def flow_key(name: str) -> str:
    """Return a key as YAML: keys are text, even if they look like numbers.

    >>> flow_key("a"), flow_key("1"), flow_key("a: b")
    ('a', '1', '"a: b"')
    """
    return name if re.fullmatch(r"[A-Za-z0-9_./-]*[A-Za-z0-9_]", name) else json.dumps(name, ensure_ascii=False)


def _number(value: float) -> str:
    if value != value:
        return ".nan"
    if value in (float("inf"), float("-inf")):
        return ".inf" if value > 0 else "-.inf"
    return repr(value)
