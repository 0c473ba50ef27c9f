"""The rules of docs/architecture.md: imports go one way, foreign libraries stay in their package, modules stay small."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Each package may import itself and what stands further left; packages of one layer may import each other.
LAYERS = (
    ("record", "errors", "durations", "config", "metrics", "code", "plugins", "repeats", "rounds", "suggestions"),
    ("serdes", "expressions", "state", "transport"),
    ("graph",),
    ("operators",),
    ("spec",),
    ("plan",),
    ("lint", "changes"),
    ("compile",),
    ("runtime",),
    ("testing", "http"),
    ("api",),
    ("cli",),
)
RANK = {package: rank for rank, packages in enumerate(LAYERS) for package in packages}
FOREIGN = {
    "confluent_kafka": "streamkit/transport/kafka",
    "confluent_kafka.schema_registry": "streamkit/serdes/registry",
    "fastavro": "streamkit/serdes/avro",
    "google.protobuf": "streamkit/serdes/protobuf",
    "grpc_tools": "streamkit/serdes/protobuf",
    "jsonschema": "streamkit/serdes/json_schema",
    "kafka": "streamkit/transport/kafka",
    "plyvel": "streamkit/state",
    "rocksdict": "streamkit/state",
    "sqlite3": "streamkit/transport/embedded",
    "pyspark": "streamkit/runtime/spark",
    "pyarrow": "streamkit/runtime/spark",
    "numpy": "streamkit/runtime/spark",
    "yaml": "streamkit/spec",
    "typer": "cli",
    "starlette": "streamkit/http",
    "anyio": "streamkit/http",
    "h11": "streamkit/http",
    "uvicorn": "streamkit/http",
    "prometheus_client": "streamkit/http",
}
HEAVY = (
    "confluent_kafka",
    "kafka",
    "plyvel",
    "rocksdict",
    "sqlite3",
    "pyspark",
    "pyarrow",
    "numpy",
    "rich",
    "typer",
    "pydantic",
    "starlette",
    "uvicorn",
)
MOST_LINES = 450


def modules() -> list[Path]:
    return sorted([*ROOT.glob("streamkit/**/*.py"), *ROOT.glob("cli/**/*.py")])


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def package_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return "cli" if parts[0] == "cli" else parts[1]


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every module that a file imports, and whether the import runs when the file is imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef) or _typing_only(outer)
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) not in inside
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, id(node) not in inside
            for alias in node.names:
                # `from streamkit import record` names a module; `from streamkit.record import X` does not.
                yield f"{node.module}.{alias.name}", id(node) not in inside


def home_of(module: str) -> str | None:
    """Where a foreign module belongs, by the longest entry that names it or a package around it."""
    known = [name for name in FOREIGN if f"{module}.".startswith(f"{name}.")]
    return FOREIGN[max(known, key=len)] if known else None


def _typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    package = package_of(path)
    if package == "__init__":
        return
    wrong = []
    for name, at_import in imports(path):
        parts = name.split(".")
        if parts[0] != "streamkit" or len(parts) < 2 or parts[1] not in RANK or not at_import:
            continue
        if RANK[parts[1]] > RANK[package]:
            wrong.append(name)
    assert not wrong, f"{name_of(path)} is in {package} and imports {wrong}"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_foreign_libraries_stay_in_their_room(path: Path) -> None:
    for name, _ in imports(path):
        home = home_of(name)
        assert home is None or name_of(path).startswith(home), f"{name} belongs in {home}"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_modules_are_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


# What would let an operator write text where a piece belongs, or leave the writer's blocks.
_TEXT = re.compile(r"\bCode\(|\{\w+\.source|symbol\(f|gen: Any|\bgen\.(line|lines|depth|_depth|block|fill_empty)\b")


@pytest.mark.parametrize("path", sorted(ROOT.glob("streamkit/operators/*.py")), ids=name_of)
def test_operators_join_pieces_and_write_no_text(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if _TEXT.search(line)] == []


def test_every_room_has_a_rank() -> None:
    assert {package_of(path) for path in modules()} - {"__init__"} <= RANK.keys()


def test_local_and_spark_do_not_know_each_other() -> None:
    for path in modules():
        for one, other in (("local", "spark"), ("spark", "local")):
            if name_of(path).startswith(f"streamkit/runtime/{one}/"):
                assert not [name for name, _ in imports(path) if name.startswith(f"streamkit.runtime.{other}")]


def test_every_module_says_what_it_is() -> None:
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in modules()}
    assert not [name for name, text in texts.items() if text.strip() and not ast.get_docstring(ast.parse(text))]


def test_importing_the_plan_loads_nothing_heavy() -> None:
    code = f"import sys, streamkit.plan; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_every_operator_is_registered_once_under_its_name() -> None:
    from streamkit.operators import OPERATORS

    kinds = [type(operator) for operator in OPERATORS.values()]
    assert len(set(kinds)) == len(kinds)
    assert all(name == operator.name for name, operator in OPERATORS.items())
