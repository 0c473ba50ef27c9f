"""What Java answered (see questions.py), asked of streamkit."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any

from streamkit import serdes
from streamkit.code import Code, symbol
from streamkit.errors import SerdeError
from streamkit.runtime.execution.punctuation import PunctuationQueue, Punctuator
from streamkit.serdes.serde import Serde
from tests.facts.questions import FACTS

_FACTS = json.loads(FACTS.read_text(encoding="utf-8"))


class Timers:
    """Carries out a script of timers on a queue, as Timers.java does on a task."""

    def __init__(self) -> None:
        self.fired: list[list[Any]] = []
        self._queue = PunctuationQueue()
        self._timers: dict[str, Punctuator] = {}

    def run(self, script: list[Any]) -> list[list[Any]]:
        highest = 0
        for time, orders in script:
            self.carry_out(orders)
            highest = max(highest, time)
            self._queue.punctuate(highest, lambda punctuator, now: punctuator.callback(now))
        return self.fired

    def carry_out(self, orders: list[Any]) -> None:
        for order in orders:
            if isinstance(order, str):
                self._timers[order].cancel()
            else:
                self.schedule(*order)

    def schedule(self, name: str, interval: int, orders: list[Any]) -> None:
        waiting = [orders]

        def fire(now: int) -> None:
            self.fired.append([name, now])
            if waiting:
                self.carry_out(waiting.pop())

        self._timers[name] = self._queue.schedule(Punctuator(0, interval, fire, 0))


def test_timers_that_are_due_together_fire_in_the_order_of_java() -> None:
    assert mismatches("timers", lambda script: Timers().run(script)) == []


def mismatches(topic: str, answer_of: Callable[[list[str]], Any]) -> list[tuple]:
    """The questions that are answered otherwise than in Java; None is a refusal."""
    found = []
    for question, answer in _FACTS[topic]:
        try:
            given = answer_of(question)
        except SerdeError:
            given = None
        if given != answer:
            found.append((question, answer, given))
    return found


def test_bytes_are_decoded_as_in_java() -> None:
    assert mismatches("decoded", lambda question: decoded(serdes.parse(question[0]), bytes.fromhex(question[1]))) == []


def decoded(serde: Serde, data: bytes) -> list[str]:
    """The value as text and its bytes when it is written again; all ways to read and write must agree."""
    value = serde.decode(data)
    again = encoded(serde, value)
    inline = serde.decode_source(symbol("x"))
    assert inline is None or repr(evaluated(inline, serde, data)) == repr(value)
    canonical = serde.canonical_source(symbol("x"))
    assert canonical is None or not evaluated(canonical, serde, data) or data.hex() == again
    return [shown(value), again]


def encoded(serde: Serde, value: Any) -> str:
    data = serde.encode(value).hex()
    inline = serde.encode_source(symbol("x"))
    assert inline is None or evaluated(inline, serde, value).hex() == data
    return data


def evaluated(piece: Code, serde: Serde, value: Any) -> Any:
    return eval(piece.source, {**serde.inline_globals, "x": value})


def shown(value: Any) -> str:
    """What Java's toString gives; of numbers that are not whole the bits of the double."""
    if isinstance(value, float):
        return struct.pack(">d", value if value == value else math.nan).hex()
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_values_are_encoded_as_in_java() -> None:
    assert mismatches("encoded", lambda question: encoded(serdes.parse(question[0]), parsed(*question))) == []


def parsed(name: str, text: str) -> Any:
    if name == "string":
        return "".join(chr(int(text[at : at + 4], 16)) for at in range(0, len(text), 4))
    if name == "boolean":
        return text == "true"
    if name in ("float", "double"):
        return float(text)
    return text if name == "uuid" else int(text)
