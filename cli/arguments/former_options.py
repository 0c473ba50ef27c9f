"""Names of options that another one replaces: they work for one release, with a line on stderr."""

from __future__ import annotations

from streamkit_cli.guard import print_message

_AS_JSON: dict[str, tuple[str, ...]] = {"--json": ("--format", "json")}
FORMER: dict[str, dict[str, tuple[str, ...]]] = {
    "doctor": _AS_JSON,
    "lag": _AS_JSON,
    "replay": {**_AS_JSON, "--max": ("--limit",)},
    "state": _AS_JSON,
    "status": _AS_JSON,
}
"""By command: its former options, and the words that stand for each."""


def renamed(arguments: list[str]) -> list[str]:
    """Return the arguments with present names of options, and print a line for each former one.

    >>> renamed(["lag", "orders.yaml", "--format", "json"])
    ['lag', 'orders.yaml', '--format', 'json']
    """
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    former = FORMER.get(command, {})
    found: list[str] = []
    for at, argument in enumerate(arguments):
        if argument == "--":
            return found + arguments[at:]
        name, equals, value = argument.partition("=")
        if name not in former:
            found.append(argument)
            continue
        words = former[name]
        print_message(f"{name} is now {' '.join(words)}; the former name works in this release for the last time")
        found += [*words[:-1], words[-1] + equals + value]
    return found
