"""`streamkit dev`: runs a topology while you write it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from streamkit.distribution import install_command
from streamkit.errors import StreamkitError, TransportError, UsageError
from streamkit.plan.model import Plan
from streamkit.runtime.local.supervisor import LIFELINE
from streamkit.runtime.operations.opening import silence
from streamkit.transport.log_interface import NewTopic
from streamkit_cli.command_process import stopping
from streamkit_cli.commands.run import has_http
from streamkit_cli.guard import call, print_message
from streamkit_cli.loading import SETTINGS, STDIN, load_plan, opened, overrides, require_file
from streamkit_cli.options import EnvFile, File, Settings
from streamkit_cli.problems import CheckOptions, validate_files

_LOOK_SECONDS = 0.3
_PORT = 8080

Http = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        help="The address of the page; by default port 8080 on this machine, or a free port.",
        show_default=False,
    ),
]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
Rate = Annotated[
    str, typer.Option("--rate", metavar="N/s", help="How many records per second the file's generators write.")
]
Kafka = Annotated[
    bool, typer.Option("--kafka", help="Also run a Kafka broker, with jars that Maven fetches once; needs Java.")
]
Generate = Annotated[bool, typer.Option("--generate/--no-generate", help="Whether the generators run.")]


def dev(
    file: File,
    http: Http = None,
    opens: Open = False,
    rate: Rate = "10/s",
    generate: Generate = True,
    kafka: Kafka = False,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Run a topology and restart it whenever its files change; mistakes are shown at once, with their positions.

    The log is the embedded one in .streamkit/dev beside the file, unless --set bootstrap.servers names another; output
    is committed every second. --kafka starts a broker, which keeps its data in .streamkit/dev-kafka, and creates the
    file's topics on it. All files in the folder of the topology are watched. SIGTERM and SIGINT end the command.

    Examples:
        streamkit dev orders.yaml --kafka --open
        streamkit dev orders.yaml --rate 100/s --set bootstrap.servers=localhost:9092
    """
    from streamkit_cli.commands.produce import per_second

    if file == STDIN:
        raise UsageError("dev needs a topology file, which it can watch")
    require_file(file)
    per_second(rate)
    if http is None and has_http():
        http = f"{HOST}:{free_port(_PORT)}"
    elif http is None:
        print_message(f"there is no page without the extra http: {install_command('http')}")
    pairs = overrides(settings)
    if kafka and "bootstrap.servers" in pairs:
        raise UsageError("--kafka starts a broker of its own: leave --set bootstrap.servers out")
    options = Options(development_settings(file, pairs), env_file, http, rate if generate else None)
    require_valid_options(file, options)
    with stopping() as stop_requested, ExitStack() as ends:
        if kafka:
            broker = DevelopmentBroker(development_folder(file, kafka=True) / "broker")
            ends.callback(broker.close)
            broker.start(stop_requested)
            print_message(f"a Kafka broker runs at {broker.address}")
            options = options._replace(settings=development_settings(file, pairs, broker.address), creates_topics=True)
        if opens and http is not None:
            threading.Thread(target=_open, args=(http, stop_requested), name="open-page", daemon=True).start()
        development = Development(file, options)
        ends.callback(development.close)
        while not stop_requested.is_set():
            development.look()
            stop_requested.wait(_LOOK_SECONDS)


def _open(address: str, stop_requested: threading.Event) -> None:
    """Open the page as soon as something listens there."""
    host, _, port = address.rpartition(":")
    while not stop_requested.wait(_LOOK_SECONDS):
        try:
            socket.create_connection((host.strip("[]") or "127.0.0.1", int(port)), 1).close()
        except (OSError, ValueError):
            continue
        webbrowser.open(f"http://{address if host else f'127.0.0.1:{port}'}")
        return


# The process of the application, which is started again when its files change.

_WATCHED = {".yaml", ".yml", ".py", ".json", ".avsc", ".proto"}
_PASSED_OVER = {"node_modules", "__pycache__"}
_END_SECONDS = 60.0
"""How long a process may commit and close its stores before it is killed."""

_Files = dict[str, tuple[int, int]]


class Change(StrEnum):
    """The result of checking the files for changes."""

    STARTED = "started"
    RESTARTED = "restarted"
    MISTAKES = "mistakes"
    ENDED = "ended"
    NOTHING = "nothing"


class Options(NamedTuple):
    """The options of the command.

    settings: the pairs of --set and the development settings. rate None: no generators. creates_topics: missing topics of the
    file are created, with one partition unless the file declares more.
    """

    settings: dict[str, str]
    env_file: str | None
    http: str | None
    rate: str | None
    creates_topics: bool = False


class Development:
    """The processes of one topology, `run` and `generate`: they start again after each change that is valid."""

    def __init__(self, file: str, options: Options):
        self._file = file
        self._options = options
        self._pairs = [f"{name}={value}" for name, value in options.settings.items()]
        self._seen: _Files = {}
        self._included: Sequence[str] = ()
        self._application: subprocess.Popen[bytes] | None = None
        self._generator: subprocess.Popen[bytes] | None = None
        # Children see the end of this process however it ends.
        self._lifeline, self._lifeline_writer = os.pipe()

    def look(self) -> Change:
        """Check once whether files have changed or the application has ended, and react."""
        files = self._files()
        if files != self._seen:
            first, self._seen = not self._seen, files
            options = CheckOptions(excerpt=None, settings=self._pairs, env_file=self._options.env_file)
            if call(lambda: validate_files([self._file], options)):
                what = "the version before it keeps running" if self._application else "it starts when they are fixed"
                print_message(f"{self._file} has mistakes; {what}")
                return Change.MISTAKES
            self._restart()
            return Change.STARTED if first else Change.RESTARTED
        if self._application is not None and self._application.poll() is not None:
            code, self._application = self._application.returncode, None
            self._stop()
            print_message(f"{self._file} has ended with exit code {code}; it starts again after the next change")
            return Change.ENDED
        return Change.NOTHING

    def close(self) -> None:
        """End the processes in order."""
        self._stop()
        os.close(self._lifeline_writer)
        os.close(self._lifeline)

    @property
    def process(self) -> int | None:
        """The id of the application's process; None while it does not run."""
        return self._application.pid if self._application else None

    def _restart(self) -> None:
        again = self._application is not None
        self._stop()
        plan = load_plan(self._file, self._pairs, self._options.env_file)
        self._included = plan.included
        if self._options.creates_topics:
            _create_topics(plan)
        shared = ("--env-file", self._options.env_file) if self._options.env_file else ()
        http = ("--http", self._options.http) if self._options.http else ()
        self._application = self._start("run", self._file, "--no-live", *http, *shared)
        if plan.generators and self._options.rate is not None:
            self._generator = self._start("generate", self._file, "--rate", self._options.rate, *shared)
        print_message(f"{self._file} {'is restarted' if again else 'runs'}{self._summary()}")

    def _summary(self) -> str:
        page = f"; its page: http://{self._options.http}" if self._options.http else ""
        return f"{page}; its generators write {self._options.rate}" if self._generator else page

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment: Mapping[str, str] = {
            **os.environ,
            SETTINGS: json.dumps(self._options.settings),
            LIFELINE: str(self._lifeline),
        }
        return subprocess.Popen(
            [sys.executable, "-m", "streamkit_cli", *arguments],
            stdin=subprocess.DEVNULL,
            env=environment,
            pass_fds=(self._lifeline,),
        )

    def _stop(self) -> None:
        # The generator ends first, so that the application can process what it has written.
        for process in (self._generator, self._application):
            if process is not None:
                process.terminate()
                try:
                    process.wait(_END_SECONDS)
                except BaseException as error:
                    # A second interrupt is ignored too.
                    process.kill()
                    process.wait()
                    if not isinstance(error, subprocess.TimeoutExpired):
                        raise
        self._generator = self._application = None

    def _files(self) -> _Files:
        """Return the time and size of each file that the topology may depend on: those of its folder, and included ones."""
        files: _Files = {}
        for folder, folders, names in os.walk(Path(self._file).resolve().parent):
            folders[:] = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
            for name in names:
                if os.path.splitext(name)[1] in _WATCHED:
                    _note(files, os.path.join(folder, name))
        for path in (self._file, *self._included):
            _note(files, os.path.realpath(path))
        return files


def _note(files: _Files, path: str) -> None:
    # Editors replace files: one may be missing for a moment.
    with suppress(OSError):
        state = os.stat(path)
        files[path] = (state.st_mtime_ns, state.st_size)


def _create_topics(plan: Plan) -> None:
    with opened(plan) as log, closing(log.admin()) as admin:
        existing = admin.topics([*plan.external_topics])
        missing = [topic for name, topic in plan.external_topics.items() if name not in existing]
        # A single broker can hold one replica only, whatever the file requests.
        admin.create_topics([NewTopic(topic.name, topic.partitions or 1, topic.config) for topic in missing])


def development_folder(file: str, *, kafka: bool) -> Path:
    """Return the folder of a development run's log and state; with a broker it is a different one than with the embedded log."""
    return Path(file).resolve().parent / ".streamkit" / ("dev-kafka" if kafka else "dev")


def development_settings(file: str, pairs: dict[str, str], broker: str | None = None) -> dict[str, str]:
    """Return the settings of a development run: its own log and state beside the file, and frequent commits.

    broker: HOST:PORT of a broker for development, which has one node and no security.
    """
    of_broker = {"security.protocol": "PLAINTEXT", "replication.factor": "1"} if broker else {}
    return {
        "bootstrap.servers": broker or "embedded",
        "state.dir": str(development_folder(file, kafka=broker is not None)),
        "commit.interval.ms": "1000",
        **of_broker,
        **pairs,
    }


def require_valid_options(file: str, options: Options) -> None:
    """Raise the error of a wrong --set or --env-file, which no change to a file can fix."""
    try:
        load_plan(file, [f"{name}={value}" for name, value in options.settings.items()], options.env_file)
    except StreamkitError as error:
        if error.exit_code == 2:
            raise


# A Kafka broker for development: one KRaft process on this machine, with jars from Maven Central.

# Not the newest version: while it starts or stops, a broker of 4.3.0 to 4.4.0 mistakes a partition without a leader for a
# deleted one, and ends transactions without writing their markers there (KRaftMetadataCache.getPartitionLeaderEndpoint).
VERSION = "4.2.1"
HOST = "127.0.0.1"
_BROKER_PORT = 9092
_READY_SECONDS = 180.0
_BROKER_LOOK_SECONDS = 0.2
_STOP_SECONDS = 30.0
_HEAP = "512m"
_CLUSTER = "streamkit-development0"
"""The id of the cluster; Kafka expects 22 characters of base64."""
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>streamkit</groupId>
  <artifactId>broker</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version></dependency>
    <!-- Kafka logs through SLF4J 1.7; without a binding its log would be empty. -->
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
default.replication.factor=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


def fetch_jars(folder: Path, version: str = VERSION) -> Path:
    """Return the folder of a broker's jars, which Maven fills once. Raises UsageError without it, TransportError."""
    if not any(folder.glob("slf4j-simple-*.jar")):
        if shutil.which("mvn") is None:
            raise UsageError(
                "Maven fetches the broker, and there is no mvn on the path (Debian, Ubuntu: apt-get install maven)"
            )
        print_message(f"Maven fetches Kafka {version} into {folder}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Fetch into a separate folder first, so that a failed fetch, or two at once, never leave an incomplete folder.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as partial:
            pom, jars = Path(partial, "pom.xml"), Path(partial, "jars")
            pom.write_text(_POM.format(version=version), encoding="utf-8")
            options = ["-q", "-B", "-Dstyle.color=never", "-f", str(pom), f"-DoutputDirectory={jars}"]
            command = ["mvn", *options, "dependency:copy-dependencies"]
            done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
            if done.returncode:
                said = next((line for line in done.stdout.splitlines() if line.startswith("[ERROR]")), done.stderr)
                raise TransportError(f"Maven could not fetch Kafka {version}: {said.removeprefix('[ERROR]').strip()}")
            if not folder.exists():
                jars.rename(folder)
    return folder


class DevelopmentBroker:
    """A broker that keeps its data in a folder; `address` is HOST:PORT once it has started."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._log = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def start(self, stop_requested: threading.Event) -> None:
        """Start the process, and return when it answers or a stop is requested. Raises UsageError, TransportError."""
        if shutil.which("java") is None:
            raise UsageError("the broker needs Java 17 or newer, and there is no java on the path")
        jars = fetch_jars(_cache() / f"kafka-{VERSION}")
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        properties = self._folder / "server.properties"
        port, controller = free_port(_BROKER_PORT), free_port(0)
        data = self._folder.resolve() / "data"
        properties.write_text(
            _PROPERTIES.format(host=HOST, port=port, controller=controller, data=data), encoding="utf-8"
        )
        java = [
            "java",
            f"-Xmx{_HEAP}",
            "-XX:+UseSerialGC",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            f"{jars}/*",
        ]
        storage = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", _CLUSTER, "-c", str(properties)]
        with self._log.open("wb") as log:
            if subprocess.run(
                [*java, *storage], stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False
            ).returncode:
                raise self._failure()
            # The broker ends with this process, however that ends. An interrupt from the terminal does not reach it,
            # since the application gets the same interrupt and has to commit first.
            with_parent = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
            line = [*with_parent, *java, "kafka.Kafka", str(properties)]
            self._process = subprocess.Popen(
                line, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.address = f"{HOST}:{port}"
        self._wait_until_ready(self._process, stop_requested)

    def close(self) -> None:
        """Stop the process cleanly, or kill it if that takes too long."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _wait_until_ready(self, process: subprocess.Popen[bytes], stop_requested: threading.Event) -> None:
        for _ in range(int(_READY_SECONDS / _BROKER_LOOK_SECONDS)):
            if process.poll() is not None:
                break
            if silence(self.address, tls=False) is None or stop_requested.wait(_BROKER_LOOK_SECONDS):
                return
        self.close()
        raise self._failure()

    def _failure(self) -> TransportError:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = next((line for line in reversed(lines) if "Exception" in line or "ERROR" in line), "")
        return TransportError(
            f"the broker did not start: {said.strip() or 'it printed nothing'} (its log: {self._log})"
        )


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamkit"


def free_port(wanted: int) -> int:
    """Return a port that nothing listens on: if possible the wanted one, so that it stays the same between runs."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            bound: int = probe.getsockname()[1]
            return bound
    raise UsageError(f"no port of {HOST} is free for the broker")
