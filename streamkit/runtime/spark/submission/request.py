"""Runs a batch job from options as text: opens a Spark session, and sends the code to its workers."""

from __future__ import annotations

import inspect
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from streamkit import distribution
from streamkit.errors import ErrorCollector, UsageError
from streamkit.plan.model import Plan, find_topic
from streamkit.runtime.spark.job_options import REST, JobOptions, Place, parse_place
from streamkit.runtime.spark.spark_session import Cluster, classic_context, is_local, open_session
from streamkit.runtime.spark.stage_plan import has_routes, matching, written_topics
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.submit_job import submit
from streamkit.runtime.spark.submission.topic_difference import Difference

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def inputs_of(
    plan: Plan,
    texts: Iterable[str],
    before: Mapping[str, tuple[Place, ...]] = MappingProxyType({}),
    errors: ErrorCollector | None = None,
) -> dict[str, tuple[Place, ...]]:
    """Parse options `TOPIC[=PATH]` into inputs by topic on the log; topics without a path are left out. Raises all UsageErrors.

    before: the inputs of topics that no option names; errors: collects the mistakes in place of raising them.
    """
    places: dict[str, list[Place | None]] = {}
    names, joined, found = {}, dict[str, tuple[Place, ...]](), errors or ErrorCollector()
    for text in texts:
        with found.collecting():
            name, place = parse_place(text, "--input")
            topic = name if matching(plan, name) else find_topic(plan, name).name
            names[topic] = name
            places.setdefault(topic, []).append(place)
    for topic, given in places.items():
        with found.collecting():
            joined[topic] = inputs_of_topic(plan, topic, given, f"--input {names[topic]}")
    if errors is None:
        found.raise_errors()
    # Jobs read topics without a place from the log, like topics without an option.
    return {topic: places for topic, places in {**before, **joined}.items() if places}


def inputs_of_topic(plan: Plan, topic: str, places: Sequence[Place | None], shown: str) -> tuple[Place, ...]:
    """Return the places of a topic's inputs; an empty result if it is read from the log. Raises UsageError.

    shown: how the user named the input, for messages.
    """
    for number, place in enumerate(places):
        if place in places[:number]:
            raise UsageError(f"{shown}: {'the log' if place is None else place.path} is given twice")
    if None not in places:
        return tuple(place for place in places if place is not None)
    if len(places) > 1:
        raise UsageError(f"{shown}: a topic is read either from the log or from places; give each of them a PATH")
    if topic in {written for sub in plan.sub_topologies for written in written_topics(plan, sub)}:
        # The log also contains the application's own records, which the job writes again.
        raise UsageError(
            f"{shown}: the file writes this topic too, and records on the log do not show who wrote them; "
            f"{shown}=PATH reads the records of other writers from files"
        )
    return ()


def outputs_of(
    plan: Plan,
    texts: Iterable[str],
    before: Mapping[str, Place | None] = MappingProxyType({}),
    errors: ErrorCollector | None = None,
) -> dict[str, Place | None]:
    """Parse options `TOPIC[=PATH]` into outputs by topic on the log; None: the log. Raises all UsageErrors.

    before: the outputs of topics that no option names; errors: collects the mistakes in place of raising them.
    """
    entries = {topic.entry: topic.name for topic in plan.external_topics.values()}
    places, found = dict[str, Place | None](), errors or ErrorCollector()
    for text in texts:
        with found.collecting():
            name, place = parse_place(text, "--output")
            topic = entries.get(name, name)
            if name not in entries and name != REST and not any(map(has_routes, plan.sub_topologies)):
                topic = find_topic(plan, name).name
            if topic in places:
                raise UsageError(f"--output {name}: given twice")
            places[topic] = place
    if errors is None:
        found.raise_errors()
    return {**before, **places}


def run_job(
    plan: Plan,
    options: JobOptions,
    cluster: Cluster,
    report: Callable[[str], None] = lambda line: None,
    job_context: Callable[[SparkSession], AbstractContextManager[object]] = nullcontext,
) -> list[Difference]:
    """Run a job in a separate Spark session; return the differences of compared topics.

    job_context: takes the session and returns a context manager around the job. Raises subclasses of StreamkitError.
    """
    spark = open_session(cluster, f"streamkit {plan.application}")
    try:
        ship(spark, plan, cluster.files, report)
        with job_context(spark):
            if options.checkpoint is not None:
                submit_next(plan, options, spark, report)
                return []
            return submit(plan, options, spark, report)
    finally:
        spark.stop()


# Sends code to the workers of a cluster: streamkit itself, and the modules beside the topology file with their data files.


Report = Callable[[str], None]


def ship(spark: SparkSession, plan: Plan, files: Sequence[str] = (), report: Report = lambda line: None) -> None:
    """Send the code that a plan needs to the workers of a cluster; workers on this machine import it directly.

    files: further ones that modules find beside them. The libraries that streamkit imports (orjson, google-re2 and others) must be
    installed there, or be in an archive. Raises UsageError.
    """
    context = classic_context(spark)
    if context is not None and is_local(str(context.master)):
        return
    folder = Path(tempfile.mkdtemp(prefix="streamkit-ship-"))
    package = zip_package(Path(distribution.__file__).parent, folder / "streamkit.zip")
    archived = [contents_of(module_folder) for module_folder in module_folders(plan)]
    archived[0].update(_given(files, archived[0]))
    archives = [
        write_zip(content, folder / f"modules-{number}.zip") for number, content in enumerate(archived) if content
    ]
    names = sorted(name for content in archived for name in content)
    if context is not None:
        context.addPyFile(str(package))
        for archive in archives:
            _add_folder(context, archive)
    else:
        data = [name for name in names if not name.endswith(".py")]
        if data:
            raise UsageError(f"{data[0]}: over Spark Connect only modules reach the workers, and no data files")
        for archive in (package, *archives):
            spark.addArtifacts(str(archive), pyfile=True)
    if names:
        report(f"sent to the workers: {', '.join(names)}")


def _add_folder(context: SparkContext, archive: Path) -> None:
    """Have workers unpack an archive, and import from its folder: modules in an archive could not open files beside them."""
    context.addArchive(f"{archive}#{archive.name}")
    includes = context._python_includes
    assert includes is not None
    includes.append(archive.name)


def module_folders(plan: Plan) -> list[Path]:
    """Return the folders of the topology and of the files that it includes. Raises UsageError if two have a module of the same name.

    A worker has all modules on one path, so it could not distinguish them.
    """
    folders = list(dict.fromkeys(Path(os.path.abspath(file)).parent for file in (plan.file, *plan.included)))
    known: dict[str, Path] = {}
    for folder in folders:
        for path in modules_of(folder):
            top = path.relative_to(folder).parts[0]
            if known.setdefault(top, folder) != folder:
                raise UsageError(
                    f"{known[top] / top} and {folder / top} have one name, by which a worker of a cluster finds only one"
                )
    return folders


def modules_of(folder: Path) -> list[Path]:
    """Return the files of the modules and packages of a folder."""
    return [*folder.glob("*.py"), *(path for package in _packages(folder) for path in package.rglob("*.py"))]


def _packages(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if (entry / "__init__.py").is_file()]


def contents_of(folder: Path) -> dict[str, Path]:
    """Return what workers need of a folder, by path in it: modules, all files of packages, and files that a module names.

    Other files beside modules may be anything, such as the job's input.
    """
    modules = modules_of(folder)
    texts = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in modules)
    data = [path for package in _packages(folder) for path in package.rglob("*") if path.suffix not in (".py", ".pyc")]
    data += [path for path in folder.iterdir() if path.suffix != ".py" and path.name in texts]
    paths = [path for path in (*modules, *data) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path for path in sorted(paths)}


def _given(files: Sequence[str], known: Mapping[str, Path]) -> dict[str, Path]:
    modules: dict[str, Path] = {}
    for name in files:
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"--files {name}: no such file")
        other = modules.get(path.name, known.get(path.name, path))
        if other.resolve() != path.resolve():
            raise UsageError(f"--files {name}: {other} has the same name")
        modules[path.name] = path
    return modules


def zip_package(source: Path, target: Path, version: str | None = None) -> Path:
    """Write streamkit to an archive from which Python imports it, unless the same version is installed.

    version: that of the package, by default the installed one.
    """
    try:
        version = version or distribution.installed_version()
    except PackageNotFoundError:
        version = "none"
    contents = {f"{source.name}/{path.relative_to(source).as_posix()}": path for path in sorted(source.rglob("*.py"))}
    first = contents.pop(f"{source.name}/__init__.py")
    write_zip(contents, target)
    text = (
        f"{first.read_text(encoding='utf-8')}\n\n{inspect.getsource(_take_installed)}\n\n_take_installed({version!r})\n"
    )
    with zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{source.name}/__init__.py", text)
    return target


def write_zip(contents: Mapping[str, Path], target: Path) -> Path:
    """Write files to an archive, by path in it."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in contents.items():
            archive.write(path, name)
    return target


def _take_installed(version: str) -> None:
    """Import the modules of streamkit from an installed copy of this version, which has the native extension where one was built.

    Its source runs in the archive's own `__init__`, so that it imports all that it needs, and nothing of streamkit.
    """
    import sys
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        if installed("streamkit-kafka") != version:
            return
    except PackageNotFoundError:
        return
    path, sys.path = sys.path, [entry for entry in sys.path if not entry.endswith(".zip")]
    try:
        specs = (finder.find_spec("streamkit", None) for finder in sys.meta_path)
        spec = next((spec for spec in specs if spec is not None), None)
    finally:
        sys.path = path
    if spec is not None and spec.submodule_search_locations:
        sys.modules["streamkit"].__path__ = list(spec.submodule_search_locations)
