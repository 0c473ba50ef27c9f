"""The rules of docs/architecture.md: imports go one way, foreign libraries stay in their package, modules stay small."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Each package may import itself and what stands further left; packages of one layer may import each other.
LAYERS = (
    (
        "record",
        "errors",
        "distribution",
        "hashing",
        "extension",
        "durations",
        "config",
        "latency",
        "metrics",
        "code",
        "plugins",
        "repeats",
        "rounds",
        "suggestions",
        "user_metrics",
    ),
    ("serdes", "expressions", "state", "transport"),
    ("graph",),
    ("operators",),
    ("spec",),
    ("plan",),
    ("lint", "changes"),
    ("compile",),
    ("runtime",),
    ("testing", "http"),
    ("editor",),
    ("api",),
    ("cli",),
)
RANK = {package: rank for rank, packages in enumerate(LAYERS) for package in packages}
FOREIGN: dict[str, str | tuple[str, ...]] = {
    "cloudpickle": "streamkit/expressions",
    "confluent_kafka": "streamkit/transport/kafka",
    "confluent_kafka.schema_registry": "streamkit/serdes/registry",
    "fastavro": "streamkit/serdes/formats/avro",
    "google.protobuf": "streamkit/serdes/formats/protobuf",
    "google_crc32c": "streamkit/transport/embedded",
    "grpc_tools": "streamkit/serdes/formats/protobuf",
    "jsonschema": "streamkit/serdes/formats/json_schema",
    "kafka": "streamkit/transport/kafka",
    "plyvel": "streamkit/state/engines",
    "rocksdict": "streamkit/state/engines",
    "sqlite3": "streamkit/transport/embedded",
    "opentelemetry": "streamkit/runtime/telemetry",
    "pyspark": "streamkit/runtime/spark",
    "xxhash": "streamkit/expressions",
    "duckdb": "streamkit/runtime/operations",
    "pyarrow": ("streamkit/runtime/spark", "streamkit/runtime/operations", "streamkit/operators/kernels"),
    "numpy": ("streamkit/runtime/spark", "streamkit/operators/kernels"),
    "pandas": ("streamkit/runtime/spark", "streamkit/operators/kernels"),
    "yaml": "streamkit/spec",
    "lsprotocol": "streamkit/editor",
    "pygls": "streamkit/editor",
    "typer": "cli",
    "starlette": "streamkit/http",
    "anyio": "streamkit/http",
    "h11": "streamkit/http",
    "uvicorn": "streamkit/http",
    "prometheus_client": "streamkit/http",
}
HEAVY = (
    "lsprotocol",
    "pygls",
    "streamkit.spec.language_reference",
    "importlib.metadata",
    "confluent_kafka",
    "kafka",
    "plyvel",
    "rocksdict",
    "sqlite3",
    "pyspark",
    "pyarrow",
    "duckdb",
    "numpy",
    "rich",
    "typer",
    "pydantic",
    "starlette",
    "uvicorn",
    "xxhash",
)
MOST_ANY = 402
EXTENSION = "streamkit._native"
SPARK = (
    "stage_plan",
    "fields_read",
    "job_options",
    "workers",
    "spark_session",
    "work_names",
    "rows",
    "sql",
    "job",
    "tables",
    "checkpoint",
    "submission",
    "evolution",
)
"""The rooms of streamkit/runtime/spark: each imports itself and what stands before it."""


@cache
def modules() -> list[Path]:
    return sorted([*ROOT.glob("streamkit/**/*.py"), *ROOT.glob("cli/**/*.py")])


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def parsed(path: Path) -> tuple[str | None, list[tuple[str, bool]]]:
    """A module's docstring, and every module that it imports, with whether that is outside of its functions."""
    tree = ast.parse(text_of(path))
    return ast.get_docstring(tree), list(_imports(tree, True))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def package_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return "cli" if parts[0] == "cli" else parts[1]


def imports(path: Path) -> list[tuple[str, bool]]:
    return parsed(path)[1]


def _imports(around: ast.AST, at_import: bool) -> Iterator[tuple[str, bool]]:
    """Yield modules with whether they are named outside of functions; what only annotations need is, too."""
    for node in ast.iter_child_nodes(around):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, at_import
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, at_import
            for alias in node.names:
                # `from streamkit import record` names a module; `from streamkit.record import X` does not.
                yield f"{node.module}.{alias.name}", at_import
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _imports(node, at_import and not later)


def home_of(module: str) -> str | tuple[str, ...] | None:
    """Where a foreign module belongs, by the longest entry that names it or a package around it."""
    known = [name for name in FOREIGN if f"{module}.".startswith(f"{name}.")]
    return FOREIGN[max(known, key=len)] if known else None


def test_imports_go_one_way() -> None:
    wrong = []
    for path in modules():
        package = package_of(path)
        for name, at_import in imports(path):
            parts = name.split(".")
            if package == "__init__" or parts[0] != "streamkit" or len(parts) < 2 or not at_import:
                continue
            if RANK.get(parts[1], 0) > RANK[package]:
                wrong.append(f"{name_of(path)} is in {package} and imports {name}")
    assert not wrong


def test_the_rooms_of_spark_go_one_way() -> None:
    home, wrong = "streamkit.runtime.spark.", []
    for module, imported in import_graph().items():
        room = module.removeprefix(home).partition(".")[0]
        others = {name.removeprefix(home).partition(".")[0] for name in imported if name.startswith(home)}
        if module.startswith(home):
            wrong += [f"{module} imports {other}" for other in others if SPARK.index(other) > SPARK.index(room)]
    assert not wrong


def test_foreign_libraries_stay_in_their_package() -> None:
    homes = [(name_of(path), name, home_of(name)) for path in modules() for name, _ in imports(path)]
    assert not [
        f"{path} imports {name}, which belongs in {home}"
        for path, name, home in homes
        if home is not None and not path.startswith(home)
    ]


def names_of_any() -> dict[str, set[str]]:
    """Return by module the names under which other modules import `Any`: `Operand: TypeAlias = Any`."""
    found = {}
    for path in modules():
        aliases = [node for node in ast.parse(text_of(path)).body if isinstance(node, ast.AnnAssign)]
        found[module_of(path)] = {
            each.target.id
            for each in aliases
            if isinstance(each.target, ast.Name) and isinstance(each.value, ast.Name) and each.value.id == "Any"
        }
    return found


def test_few_types_are_any() -> None:
    """`Key`, `Value` and `Json` are for data of any type; `Any`, under whatever name, switches the checks off."""
    exported, found = names_of_any(), {}
    for path in modules():
        tree = ast.parse(text_of(path))
        names = {"Any"} | exported[module_of(path)]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                names |= {
                    each.asname or each.name for each in node.names if each.name in exported.get(str(node.module), ())
                }
        found[name_of(path)] = sum(isinstance(node, ast.Name) and node.id in names for node in ast.walk(tree))
    assert sum(found.values()) <= MOST_ANY, {name: count for name, count in found.items() if count}


# What would let an operator write text where a piece belongs, or leave the writer's blocks.
_TEXT = re.compile(r"\bCode\(|\{\w+\.source|symbol\(f|gen: Any|\bgen\.(line|lines|depth|_depth|block|fill_empty)\b")


def test_operators_join_pieces_and_write_no_text() -> None:
    writer = "streamkit/operators/codegen/code_writer.py"  # which turns pieces into lines
    operators = [
        path for path in modules() if name_of(path).startswith("streamkit/operators/") and name_of(path) != writer
    ]
    assert len(operators) > 40
    lines = [(name_of(path), line) for path in operators for line in text_of(path).splitlines()]
    assert [(name, line) for name, line in lines if _TEXT.search(line)] == []


def module_of(path: Path) -> str:
    """Return the name by which other modules import a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "cli" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph() -> dict[str, set[str]]:
    """Return the modules that each module imports, also in functions and for annotations alone."""
    known = {module_of(path): path for path in modules()}
    graph: dict[str, set[str]] = {}
    for module, path in known.items():
        graph[module] = set()
        for node in ast.walk(ast.parse(text_of(path))):
            if isinstance(node, ast.Import):
                graph[module] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                # `from streamkit import record` imports a module, `from streamkit.record import Record` a name of one.
                members = {f"{node.module}.{alias.name}" for alias in node.names} - {EXTENSION}
                graph[module] |= {member if member in known else str(node.module) for member in members}
        graph[module] = graph[module] & known.keys() - {module}
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that reach each other."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        found, waiting = set[str](), [start]
        while waiting:
            for module in graph[waiting.pop()] - found:
                found.add(module)
                waiting.append(module)
        reached[start] = found
    groups = {tuple(sorted(other for other in reached[one] if one in reached[other])) for one in graph}
    return sorted(list(group) for group in groups if group)


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}) == [["a", "b", "c"]]


def test_no_files_import_each_other_in_a_circle() -> None:
    """An import in a function or below TYPE_CHECKING counts like any other: it hides a circle and does not end it."""
    assert circles(import_graph()) == []


def test_every_package_has_a_rank() -> None:
    assert {package_of(path) for path in modules()} - {"__init__"} <= RANK.keys()


def test_local_and_spark_do_not_know_each_other() -> None:
    for path in modules():
        for one, other in (("local", "spark"), ("spark", "local")):
            if name_of(path).startswith(f"streamkit/runtime/{one}/"):
                assert not [name for name, _ in imports(path) if name.startswith(f"streamkit.runtime.{other}")]


def test_every_module_has_a_docstring() -> None:
    assert not [name_of(path) for path in modules() if text_of(path).strip() and not parsed(path)[0]]


def test_importing_the_plan_loads_nothing_heavy() -> None:
    code = f"import sys, streamkit.plan; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_kafka_is_used_without_the_native_extension() -> None:
    code = """
import sys
sys.modules["streamkit._native"] = None
import streamkit.transport.kafka.kafka_admin, streamkit.transport.kafka.kafka_consumer, streamkit.transport.kafka.kafka_producer
from streamkit.transport.kafka import native_client
print(native_client.missing())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout.strip(), done.stderr) == (
        "it was not built; building it at installation needs a C compiler and the Python headers",
        "",
    )


def test_every_operator_is_registered_once_under_its_name() -> None:
    from streamkit.operators import OPERATORS

    kinds = [type(operator) for operator in OPERATORS.values()]
    assert len(set(kinds)) == len(kinds)
    assert [(name, operator) for name, operator in OPERATORS.items() if name != operator.name] == []
