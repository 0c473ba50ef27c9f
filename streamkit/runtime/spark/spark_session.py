"""The Spark session of a job: checks its requirements, opens it, and turns failures of Spark into one clear line."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit import errors
from streamkit.distribution import install_command
from streamkit.errors import ConfigError, StreamkitError, TransportError, UnreachableError, UsageError
from streamkit.runtime.spark.workers.worker import MARK, Inline, Shared
from streamkit.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_OLDEST_SPARK = (4, 1)
_OLDEST_JAVA = 17
_CONNECT_SECONDS = 5.0
# Without any appender, Spark would use its own configuration.
_QUIET = """rootLogger.level = off
rootLogger.appenderRef.nowhere.ref = nowhere
appender.nowhere.type = Null
appender.nowhere.name = nowhere
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = off
"""
_NOISE = b"WARNING: Using incubator modules"
_RELEASES = {"delta": {"4.1": "4.1.0", "4.2": "4.4.0"}, "iceberg": {"4.1": "1.12.0"}}
"""The releases of formats by the versions of Spark that they were built for."""
_DEFAULTS = {
    "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing": "false",
    "spark.sql.optimizer.disableHints": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
}
"""The defaults that queries rely on. The first: an object is null only if it is null in the file, whichever fields a query reads.
The second: Spark sends small tables to the tasks of a join. The third: a quoted name is not a pattern."""
_EXCLUDED = {
    "spark.sql.optimizer.excludedRules": "catalyst.optimizer.PropagateEmptyRelation",
    "spark.sql.adaptive.optimizer.excludedRules": "execution.adaptive.AQEPropagateEmptyRelation",
}
"""Rules by which Spark computes no side of a join whose other side is empty."""
_FIXED = {
    **{f"spark.sql.files.ignore{kind}": "false" for kind in ("MissingFiles", "CorruptFiles", "InvalidPartitionPaths")},
    **{f"spark.files.ignore{kind}": "false" for kind in ("MissingFiles", "CorruptFiles")},
    "spark.sql.parquet.respectSummaryFiles": "false",
    "spark.sql.legacy.nullValueWrittenAsQuotedEmptyStringCsv": "false",
}
"""Settings that users can't override, because other values would lose data. With the first two, which Delta reads only from the
session, Delta would skip files that it can't read, and with the third one Spark would skip folders. The next two do the same for tables of
Hive. With the next one, Spark would omit columns that a `_metadata` file does not list. With the last one, null and empty text would be the same
in CSV."""
_REFUSED = {
    "spark.sql.timestampType": (
        "TIMESTAMP_NTZ",
        "a timestamp is an instant here; timestamp_ntz is the type without a zone",
    ),
    "spark.sql.parquet.outputTimestampType": (
        "TIMESTAMP_MILLIS",
        "it drops microseconds; TIMESTAMP_MICROS and INT96 keep them",
    ),
    "spark.sql.legacy.timeParserPolicy": (
        "LEGACY",
        "times in the names of folders lose their hours; CORRECTED keeps them",
    ),
    "spark.sql.orc.impl": ("HIVE", "it reads times without a zone as numbers; native reads them as times"),
    "spark.sql.files.ignoredPathSegmentRegex": (
        r"(?!\^\[\._\]$).*",
        "Spark would leave out files, or read hidden ones; a pattern in the path selects files",
    ),
    "spark.sql.files.archive.reader.enabled": ("TRUE", "the contents of archives are not checked; unpack them"),
}
"""Values of settings that would change results, as patterns, with the reason."""
_USUAL = {"spark.sql.session.timeZone": "UTC", "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Settings with other defaults than Spark's. Those that a user has chosen stay.

The first: otherwise Spark SQL in settings, such as `where=ts >= '2026-01-01'`, would depend on the zone of the machine. The second:
Spark's INT96 has no statistics, costs more to write, and some readers return wrong times after 2262 from it.
"""
_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
_PATH_FILTER = "mapreduce.input.pathFilter.class"
"""Hadoop's setting for a class that chooses files by their names."""
_FAILURE = re.compile(re.escape(MARK) + r"(\[.*\])")

_NAMING_MASTER = (
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_HOME",
    "SPARK_REMOTE",
)
"""Variables with which spark-submit, a notebook or an installation of Spark may name a master."""


@dataclass(frozen=True)
class Cluster:
    """The master that runs a job, with its settings and files."""

    master: str | None = None
    """local[N], spark://…, k8s://…, yarn, sc://…; None: the master of spark-submit or of the environment, else this machine."""
    settings: Mapping[str, str] = field(default_factory=dict)
    py_files: Sequence[str] = ()
    archives: Sequence[str] = ()
    verbose: bool = False
    files: Sequence[str] = ()
    """Data files that workers store beside the Python modules."""


def open_session(cluster: Cluster, name: str) -> SparkSession:
    """Return a session. Raises ConfigError if Spark or Java is missing or too old, UnreachableError if the master does not answer."""
    master = cluster.master or cluster.settings.get("spark.master") or os.environ.get("MASTER") or _default_master()
    _check_spark()
    remote = bool(master) and str(master).startswith("sc://")
    if not remote:
        _check_java()
    _check_master(master)
    name_files_as_python()
    from pyspark.sql import SparkSession

    if is_local(master or ""):
        # Otherwise Spark would serve the job's page, which has no password, on all addresses.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name)
    if master:
        builder = builder.remote(master) if remote else builder.master(master)
    for key, value in _settings(cluster, remote).items():
        builder = builder.config(key, value)
    try:
        with interrupts_kept(), nullcontext() if cluster.verbose else _without_launch_noise():
            spark = builder.getOrCreate()
    except Exception as error:
        raise TransportError(f"Spark did not start at {master or 'the default master'}: {reason(error)}") from error
    try:
        check_meaning(spark)
    except ConfigError:
        spark.stop()
        raise
    context = classic_context(spark)
    for setting, usual in _USUAL.items():
        if setting not in cluster.settings and (context is None or not context.getConf().contains(setting)):
            spark.conf.set(setting, usual)
    if context is not None:
        _set_zone_of_jvm(context)
        if is_local(str(context.master)) and "PYSPARK_PYTHON" not in os.environ:
            # Otherwise Spark would run the first python3 on the path, which may not have streamkit.
            context.pythonExec = sys.executable
    return spark


_AT_AN_INTERRUPT = (
    "KeyboardInterrupt while sending command.",
    "Exception occurred while shutting down connection",
)
"""What Py4J logs, with stack traces, if Ctrl-C ends a call of the JVM."""


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Keep the handler of SIGINT while a session is opened, and Py4J from logging the stack trace of a KeyboardInterrupt.

    PySpark's handler calls the JVM while the interrupted thread may be within a call of it; that fails, with stack traces. The end
    of the session cancels its jobs.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if is_main and before is not None:
            signal.signal(signal.SIGINT, before)
        for name in ("root", "py4j.clientserver"):
            logging.getLogger(name).addFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return record.msg not in _AT_AN_INTERRUPT


def name_files_as_python() -> None:
    """Let a JVM that is started from here take names of files as UTF-8, as Python does in the locale C (PEP 540).

    In ASCII it would pass over files with other names, and write `?` into names of folders.
    """
    if os.environ.get("LC_ALL") in ("C", "POSIX"):
        os.environ["LC_ALL"] = "C.UTF-8"


def is_local(master: str) -> bool:
    """Return whether the workers of a master are on this machine."""
    return master.startswith("local")


def _default_master() -> str | None:
    """Return the master that PySpark takes if nothing names one; None if something may."""
    return None if any(name in os.environ for name in _NAMING_MASTER) else "local[*]"


def _set_zone_of_jvm(context: SparkContext) -> None:
    """Make the JVM read and write ORC files, whose times have no zone, in UTC instead of the machine's zone.

    `_settings` does the same for executors.
    """
    assert context._jvm is not None
    zone = context._jvm.java.util.TimeZone
    zone.setDefault(zone.getTimeZone("UTC"))


def check_meaning(spark: SparkSession) -> None:
    """Raise ConfigError for a setting of a session that would change results."""
    for name, (wrong, why) in _REFUSED.items():
        value = spark.conf.get(name, None)
        if value is not None and re.fullmatch(wrong, value, re.IGNORECASE):
            raise ConfigError(f"{name}={value}: {why}")
    context = classic_context(spark)
    chosen = None if context is None else context._jsc.hadoopConfiguration().get(_PATH_FILTER)
    if chosen:
        raise ConfigError(
            f"{_PATH_FILTER}={chosen}: Spark would leave out the files that this class refuses; a pattern in the path selects files"
        )


def _settings(cluster: Cluster, remote: bool) -> dict[str, str]:
    settings: dict[str, str] = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        # With a limit in bytes, Spark computes the size of the batch after each row. For the column of headers, the time for
        # this is proportional to the batch, and exceeds that of all other work.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        # Unless Spark may write several folders at a time, it sorts the rows of a task by folder.
        "spark.sql.maxConcurrentOutputFileWriters": "32",
    }
    if not remote:
        settings["spark.ui.showConsoleProgress"] = "false"
        # As `name_files_as_python` for the JVM of the driver: services have the locale C.
        settings["spark.executorEnv.LC_ALL"] = "C.UTF-8"
        # Otherwise each column that Python creates sends its call site to the JVM, in ten calls.
        settings["spark.python.sql.dataFrameDebugging.enabled"] = "false"
        if not cluster.verbose:
            settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile=file:{_quiet_file()}"
    if cluster.py_files:
        settings["spark.submit.pyFiles"] = ",".join(cluster.py_files)
    if cluster.archives:
        settings["spark.archives"] = ",".join(cluster.archives)
    if not remote and not _is_of_spark_submit():
        own = cluster.settings.get(_EXECUTOR_OPTIONS, "")
        return {**settings, **cluster.settings, **_FIXED, _EXECUTOR_OPTIONS: f"{own} -Duser.timezone=UTC".strip()}
    return {**settings, **cluster.settings, **_FIXED}


def _is_of_spark_submit() -> bool:
    """Return whether spark-submit started this process, possibly with settings that are not known here."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _quiet_file() -> str:
    # Spark logs its log configuration before its settings apply; only a configuration file prevents that.
    handle, path = tempfile.mkstemp(prefix="streamkit-", suffix=".properties")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(_QUIET)
    return path


@contextmanager
def _without_launch_noise() -> Iterator[None]:
    """Forward stderr of the JVM, without its warning about a module that Spark itself loads."""
    real = os.dup(2)
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)

    def forward() -> None:
        with os.fdopen(reader, "rb") as lines, os.fdopen(real, "wb", buffering=0) as out:
            for line in lines:
                if not line.startswith(_NOISE):
                    out.write(line)

    threading.Thread(target=forward, name="spark-stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(real, 2)


def _check_spark() -> None:
    try:
        import pyarrow  # noqa: F401 - so that a missing pyarrow is reported now
        import pyspark
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: {install_command('spark')}") from error
    version = tuple(map(int, re.findall(r"\d+", pyspark.__version__)[:2]))
    if version < _OLDEST_SPARK:
        wanted = ".".join(map(str, _OLDEST_SPARK))
        raise ConfigError(f"PySpark {pyspark.__version__} is too old: streamkit needs {wanted} or newer")


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    if shutil.which(java) is None:
        where = f"there is no {java} (JAVA_HOME)" if home else "there is no `java` on the path"
        raise ConfigError(f"Spark needs Java {_OLDEST_JAVA} or newer, and {where}")
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"Spark needs Java {_OLDEST_JAVA} or newer, and {java} does not answer: {error}") from error
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if match and int(match.group(1)) < _OLDEST_JAVA:
        raise ConfigError(f"Spark needs Java {_OLDEST_JAVA} or newer, and {java} is Java {match.group(1)}")


def _check_master(master: str | None) -> None:
    """Try the address of a master: Spark itself fails only after minutes, with many lines."""
    if master and not re.match(r"(local(\[|$)|local-cluster\[|yarn$|(spark|k8s|sc)://)", master):
        raise UsageError(f"--master {master}: expected local[*], spark://HOST:PORT, k8s://…, yarn or sc://HOST")
    scheme, separator, rest = (master or "").partition("://")
    if not separator or scheme not in ("spark", "sc"):
        return
    failure: Exception | None = None
    for address in rest.partition("/")[0].split(","):
        host, _, port = address.partition(":")
        try:
            socket.create_connection(
                (host, int(port or (7077 if scheme == "spark" else 15002))), _CONNECT_SECONDS
            ).close()
            return
        except (OSError, ValueError) as error:
            failure = error
    text = getattr(failure, "strerror", None) or failure
    raise UnreachableError(f"no Spark master answers at {master}: {text}")


@contextmanager
def translated(place: str = "") -> Iterator[None]:
    """Turn an exception of Spark into a StreamkitError of one line, or into the StreamkitError that a worker raised.

    `place`: the input that the block reads, because Spark's messages about columns and types do not name it.
    """
    try:
        with without_error_log():
            yield
    except (StreamkitError, KeyboardInterrupt):
        raise
    except Exception as error:
        own = _own_error(error)
        if own is not None:
            raise own from error
        if not _is_of_spark(error):
            raise
        raise TransportError(f"{place and f'{place}: '}Spark: {reason(error)}") from error


@contextmanager
def without_error_log() -> Iterator[None]:
    """Keep PySpark from logging analysis exceptions, with their stack traces, that the block expects or reports."""
    from pyspark.logger import PySparkLogger

    # The first look-up creates a logger, and PySpark later calls it with arguments that only a PySparkLogger accepts.
    logs = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("DataFrame", "SQL")]
    before = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    try:
        yield
    finally:
        for log, disabled in zip(logs, before, strict=True):
            log.disabled = disabled


def _own_error(error: Exception) -> StreamkitError | None:
    # Looks for the mark first, because a query raises marked failures as USER_RAISED_EXCEPTION too.
    match = _FAILURE.search(str(error))
    if match is None:
        raised = re.search(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: P0001)?$", str(error), re.MULTILINE)
        return None if raised is None else TransportError(raised[1])
    name, text = json.JSONDecoder().raw_decode(match.group(1))[0]
    kind = getattr(errors, name, StreamkitError)
    try:
        return kind(text)
    except TypeError:
        return StreamkitError(text)


def _is_of_spark(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j", "grpc")


_FORMATS = ("json", "parquet", "orc", "csv", "avro", "text", "xml", "delta", "iceberg", "table")
# The first pattern that a message of Spark has decides its remedy.
_REMEDIES: Mapping[str, Callable[[re.Match[str]], str | None]] = {
    r"\[PATH_ALREADY_EXISTS\] Path (\S+) already exists": lambda found: f"{found[1]} exists; --overwrite replaces it",
    r"\[FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file (\S+?)\. ": lambda found: (
        f"{found[1]} was deleted while the job read it; this run was discarded"
    ),
    # Spark's message names only the file; the error is in the cause.
    r"(?ms)NO_HINT\] Encountered error while reading file (\S+?)\. .*?^Caused by: [\w.$]+: ([^\n]+)": lambda found: (
        f"{found[1]} can't be read: {found[2]}"
    ),
    r"\[CANNOT_MERGE_SCHEMAS\]": lambda found: (
        f"files have {_different_types(found.string)}; read them as two inputs, with a pattern for the files of each type"
    ),
    r"\(TIMESTAMP\(NANOS,": lambda found: (
        "a column has times in nanoseconds: --conf spark.sql.legacy.parquet.nanosAsLong=true reads it as whole numbers, and "
        "timestamp_micros(COLUMN div 1000) makes them times"
    ),
    r"\[UNABLE_TO_INFER_SCHEMA\]": lambda found: "no file has columns; remove empty files",
    r"\[COLUMN_ALREADY_EXISTS\] The column `(.+?)` already exists": lambda found: (
        f"there are two columns {found[1]}; if their names differ in case, --conf spark.sql.caseSensitive=true tells them apart"
    ),
    r"\[CONFLICTING_DIRECTORY_STRUCTURES\]": lambda found: (
        f"{_two_folders(found.string)} have folders NAME=VALUE, which Spark reads as columns in only one directory: give each "
        "directory its own --input"
    ),
    r"(?s)\A(?=.*(?:DATA_SOURCE_NOT_FOUND|Failed to find data source)).*?data source: (\w+)": lambda found: (
        _in_package(f"the format {found[1]}", found[1])
        or f"there is no format {found[1]!r}{did_you_mean(found[1], _FORMATS, f'known are {listed(_FORMATS)}, and those of packages')}"
    ),
    r"Class org\.apache\.hadoop\.fs\.s3a\.S3AFileSystem not found": lambda found: (
        f"s3a:// is in a package: add --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop_version()}"
    ),
    r'No FileSystem for scheme "(s3n?)"': lambda found: f"Spark does not know {found[1]}://; write s3a://",
    # Spark 4.3 words this message differently from 4.1 and 4.2.
    r"plugin class (?:for catalog '\w+': |')(\S+\.(iceberg|delta)\.[\w.]*\w)": lambda found: _in_package(
        f"the class {found[1]}", found[2]
    ),
    "ArrowException: Unknown error: Wrapping": lambda found: (
        "a text is not UTF-8 in a row: cast(COLUMN as binary) reads it as bytes, and "
        "decode(cast(COLUMN as binary), 'ISO-8859-1') as Latin-1"
    ),
}


def reason(error: Exception) -> str:
    """Return the line of Spark's exception that names the cause, with a remedy if one is known."""
    matches = ((re.search(pattern, str(error)), remedy) for pattern, remedy in _REMEDIES.items())
    remedies = (remedy(match) for match, remedy in matches if match is not None)
    return next(filter(None, remedies), None) or _first_line(error)


def _first_line(error: Exception) -> str:
    """Return the first line of an exception that says more than where it was raised: in Python, the last one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception): ", line)]
    if "Traceback (most recent call last):" in lines and raised:
        return raised[-1]
    for line in lines:
        if line.startswith("Caused by:"):
            continue
        text = re.sub(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ", "", line)
        if not text.startswith(("An error occurred while calling", ":", "at ")):
            return text
        if text.startswith(": "):
            return re.sub(r"^: (?:[a-z]\w*\.)+[A-Z]\w*: ", "", text)
    return type(error).__name__


def _two_folders(text: str) -> str:
    return " and ".join(sorted(re.findall(r"^\t(\w+:/.*)$", text, re.MULTILINE))[:2])


def _in_package(what: str, name: str) -> str | None:
    """Return the remedy for something that is in a package of a format; None for an unknown one."""
    package = package_of(name)
    return package and f"{what} is in a package: {package}"


def _different_types(text: str) -> str:
    """Return the first column whose types Spark could not merge, from its message with two schemas."""
    first, second = (_columns(schema) for schema in re.findall(r'"STRUCT<(.*)>"', text))
    name = next(name for name, kind in first.items() if second.get(name, kind) != kind)
    return f"{name} as {first[name]} and as {second[name]}"


def _columns(schema: str) -> dict[str, str]:
    """Return the types of columns by name. A comma inside brackets belongs to a type."""
    columns = [""]
    for letter in schema:
        is_open = sum(map(columns[-1].count, "<(")) > sum(map(columns[-1].count, ">)"))
        if letter == "," and not is_open:
            columns.append("")
        else:
            columns[-1] += letter
    return {name.strip(): kind for name, _, kind in (column.partition(": ") for column in columns)}


def package_of(name: str) -> str | None:
    """Return the remedy for a missing format: the settings that add its package for the installed version of PySpark."""
    import pyspark

    version = ".".join(pyspark.__version__.split(".")[:2])
    if name == "avro":
        return f"add --conf spark.jars.packages=org.apache.spark:spark-avro_2.13:{pyspark.__version__}"
    releases = _RELEASES.get(name)
    if releases is None:
        return None
    if version not in releases:
        newest = max(releases)
        return (
            f"there is no known release for Spark {version}; run the command in an environment with pyspark=={newest}.*"
        )
    package, settings = {
        "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-", {}),
        "delta": (
            "io.delta:delta-spark_",
            {
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            },
        ),
    }[name]
    added = {"spark.jars.packages": f"{package}{version}_2.13:{releases[version]}", **settings}
    return f"add {' '.join(f'--conf {setting}={value}' for setting, value in added.items())}"


def hadoop_version() -> str:
    """Return the version of Hadoop in the installed PySpark; packages of Hadoop must have the same version."""
    import pyspark

    jars = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    return next((jar.stem.rpartition("-")[2] for jar in jars), "VERSION, that of hadoop-client-api among Spark's jars")


def changed_meaning(spark: SparkSession) -> str | None:
    """Return a setting of the session, as NAME=VALUE, that may change what a query means; None if there is none."""
    values = {name: spark.conf.get(name, usual) for name, usual in _DEFAULTS.items()}
    return next(
        (f"{name}={value}" for name, value in values.items() if (value or "").lower() != _DEFAULTS[name].lower()), None
    )


def every_row(spark: SparkSession) -> dict[str, str]:
    """Return the settings with which Spark computes each row of a query: also one of which a join makes nothing may fail."""
    excluded = {
        name: ",".join(filter(None, (spark.conf.get(name, ""), f"org.apache.spark.sql.{rule}")))
        for name, rule in _EXCLUDED.items()
    }
    dropped = ("spark.sql.constraintPropagation.enabled", "spark.sql.optimizer.dynamicPartitionPruning.enabled")
    return {**excluded, **dict.fromkeys(dropped, "false")}


def tells_case(spark: SparkSession) -> bool:
    """Return whether a session distinguishes names that differ only in case."""
    return str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"


@contextmanager
def changed_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session in a block."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def share(spark: SparkSession, data: bytes) -> Shared:
    """Make data available in every worker."""
    context = classic_context(spark)
    return Inline(data) if context is None else context.broadcast(data)


def classic_context(spark: SparkSession) -> SparkContext | None:
    """Return the SparkContext of a session; None with Spark Connect."""
    return None if type(spark).__module__.startswith("pyspark.sql.connect") else spark.sparkContext
