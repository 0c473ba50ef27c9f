"""Draws the questions of facts.json, which Java answers: python -m tests.facts.questions writes both.

The answers are kept, so that the tests need no Java.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import uuid
from pathlib import Path
from typing import Any

from tests.java import build

FACTS = Path(__file__).with_name("facts.json")

_SIZES = {"boolean": 1, "short": 2, "integer": 4, "long": 8, "float": 4, "double": 8}
# Bytes at the borders of what UTF-8 allows.
_UTF8 = bytes.fromhex("00417f808fa0bfc0c1c2dfe0e1ecedeef0f1f3f4f5f8ff909f")
_DIGITS = ["0", "1", "f", "F", "a7", "", "+1", "-1", "\u0661", "\uff11", "\uff21", "g", "123456789", "7fffffffffffffff"]


def draw(seed: int) -> dict[str, list[Any]]:
    """Return the questions by topic."""
    dice = random.Random(seed)
    return {
        "timers": [_script(dice) for _ in range(60)],
        "decoded": [_bytes(dice) for _ in range(400)],
        "encoded": [_value(dice) for _ in range(200)],
    }


def _script(dice: random.Random) -> list[Any]:
    """Timers with equal times, made and cancelled by records and by each other (see Timers.java)."""
    made: list[str] = []
    time = 0
    script = []
    for _ in range(dice.randint(2, 8)):
        time += dice.choice((0, 5, 10, 20, 30))
        script.append([time, [_order(dice, made, 2) for _ in range(dice.randint(0, 6))]])
    return script


def _order(dice: random.Random, made: list[str], depth: int) -> Any:
    if depth == 2 and made and dice.random() < 0.25:
        return dice.choice(made)
    name = f"t{dice.randrange(10_000)}"
    inner: list[Any] = [name] if dice.random() < 0.2 else []
    if depth and dice.random() < 0.3:
        inner += [_order(dice, [], depth - 1) for _ in range(dice.randint(1, 3))]
    if depth == 2:
        if made and dice.random() < 0.3:
            inner.append(dice.choice(made))
        made.append(name)
    return [name, dice.choice((5, 10, 10, 10, 20, 30)), inner]


def _bytes(dice: random.Random) -> list[str]:
    serde = dice.choice(("string", "string", "string", "uuid", "uuid", *_SIZES, "void"))
    if serde == "string":
        data = bytes(dice.choices(_UTF8, k=dice.randint(0, 8)))
    elif serde == "uuid":
        data = _uuid(dice).encode()
        if dice.random() < 0.1:
            data += dice.randbytes(1)
    elif serde == "double" and dice.random() < 0.4:
        data = dice.choice((b"\x7f\xf8", b"\xff\xf0", b"\x7f\xf0")) + dice.choice((bytes(6), dice.randbytes(6)))
    elif serde == "float" and dice.random() < 0.4:
        data = dice.choice((b"\x7f\xc0", b"\xff\xe0")) + dice.randbytes(2)
    elif serde == "boolean":
        data = bytes([dice.choice((0, 1, 2, 255))]) * dice.choice((0, 1, 1, 1, 2))
    else:
        data = dice.randbytes(_SIZES.get(serde, 0) + dice.choice((0, 0, 0, 1, -1) if serde in _SIZES else (0, 1)))
    return [serde, data.hex()]


def _uuid(dice: random.Random) -> str:
    if dice.random() < 0.3:
        plain = str(uuid.UUID(bytes=dice.randbytes(16)))
        return dice.choice((plain, plain.upper(), plain.replace("-", ""), f"{{{plain}}}", plain + "0", plain[:-1]))
    parts = [
        dice.choice(_DIGITS[:5] if dice.random() < 0.8 else _DIGITS) for _ in range(dice.choice((4, 5, 5, 5, 5, 6)))
    ]
    return "-".join(parts)


def _value(dice: random.Random) -> list[str]:
    serde = dice.choice(("string", "string", "uuid", *_SIZES))
    if serde == "string":
        units = dice.choices(("0041", "00e9", "20ac", "d83d", "de00", "dc00", "dbff"), k=dice.randint(0, 6))
        return [serde, "".join(units)]
    if serde == "uuid":
        return [serde, _uuid(dice)]
    if serde == "boolean":
        return [serde, dice.choice(("true", "false"))]
    if serde in ("float", "double"):
        # A float's text must be the number itself: what is between two floats is rounded by other rules.
        code = ">f" if serde == "float" else ">d"
        number = struct.unpack(code, dice.randbytes(struct.calcsize(code)))[0]
        special = dice.choice(("0.0", "-0.0", "Infinity", "-Infinity", "NaN"))
        return [serde, special if number != number or dice.random() < 0.3 else repr(number)]
    bits = 8 * _SIZES[serde]
    border = 1 << (bits - 1)
    return [serde, str(dice.choice((0, -1, border - 1, -border, border, -border - 1, dice.randrange(-border, border))))]


def main() -> None:
    questions = draw(1)
    command = build.command(
        "facts/java", "Facts", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8"
    )
    done = subprocess.run(command, input=json.dumps(questions), stdout=subprocess.PIPE, text=True, check=True)
    answers = json.loads(done.stdout)
    lines = [
        f"  {json.dumps(topic)}: [\n    "
        + ",\n    ".join(json.dumps(pair) for pair in zip(asked, answers[topic], strict=True))
        + "\n  ]"
        for topic, asked in questions.items()
    ]
    FACTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
