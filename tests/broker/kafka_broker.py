"""A real Kafka broker for tests and benchmarks: jars from Maven, one KRaft process on 127.0.0.1, ended by its process id.

>>> with Broker() as broker:  # doctest: +SKIP
...     broker.address
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from streamkit.errors import TransportError
from streamkit_cli.commands import dev
from tests.java import archives
from tests.ports import free_ports
from tests.requirements import require

VERSION = os.environ.get("KAFKA_TEST_VERSION") or dev.VERSION
READY_SECONDS = 180
STOP_SECONDS = 20
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
num.partitions=1
auto.create.topics.enable=false
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
group.min.session.timeout.ms=1000
log.retention.ms=-1
log.retention.check.interval.ms={never}
log.initial.task.delay.ms={never}
log.cleaner.backoff.ms={never}
"""
# Records of tests are decades old: a broker that tidied up would delete a changelog while a test reads it.
_NEVER_MS = 24 * 3_600_000


class BrokerFailed(RuntimeError):
    """The broker did not start; the text ends with the tail of its log."""


def jars(version: str = VERSION) -> Path:
    """Return the folder of a broker's jars, fetched once into STREAMKIT_TEST_CACHE or ~/.cache/streamkit-tests.

    Raises MissingTool, BrokerFailed.
    """
    require("java")
    folder = _jar_folder(version)
    if not _jars_are_there(folder):
        require("mvn")
    try:
        return dev.fetch_jars(folder, version)
    except TransportError as error:
        raise BrokerFailed(str(error)) from error


def _jar_folder(version: str) -> Path:
    cache = os.environ.get("STREAMKIT_TEST_CACHE") or Path.home() / ".cache" / "streamkit-tests"
    return Path(cache) / f"kafka-{version}"


def _jars_are_there(folder: Path) -> bool:
    return any(folder.glob("slf4j-simple-*.jar"))


def _archive(version: str) -> Path:
    """The archive of the classes of a broker, made first where it is missing."""
    folder = jars(version)
    found = archives.archive(folder, folder.parent)

    def train(option: str) -> None:
        with Broker(version=version, measured=True) as broker:
            broker.stop()
            broker._options.append(option)
            broker.start()
            assert broker._process is not None
            # It writes the archive when it ends, which may take longer than `stop` waits.
            broker._process.terminate()
            broker._process.wait()

    archives.make(found, train)
    return found


def cluster_id() -> str:
    """Return a new id of a cluster; one that begins with a dash would be read as an option."""
    return "A" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


class Broker:
    """One broker with its own data folder; `address` is host:port and stays the same over restart()."""

    format_options: tuple[str, ...] = ()
    """Further options of StorageTool format."""

    def __init__(
        self,
        folder: Path | None = None,
        heap: str = "512m",
        settings: str = "",
        version: str = VERSION,
        measured: bool = False,
    ):
        """settings: lines of server.properties that go before the usual ones. measured: its speed matters."""
        self.version = version
        self._owned = folder is None
        self.folder = Path(folder or tempfile.mkdtemp(prefix="streamkit-broker-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "broker.log"
        # The second compiler of the JVM would take half of all CPU time of a broker that has little to do.
        self._options = [f"-Xmx{heap}", "-XX:+UseSerialGC"]
        if not measured:
            self._options += ["-XX:TieredStopAtLevel=1", *archives.options(_archive(version))]
        port, controller = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self._properties = self.folder / "server.properties"
        data = self.folder / "data"
        usual = _SETTINGS.format(port=port, controller=controller, data=data, never=_NEVER_MS)
        # Of a name that stands twice the last one counts.
        self._properties.write_text(usual + settings.format(port=port, controller=controller))
        self._process: subprocess.Popen | None = None
        self._cluster = cluster_id()

    def __enter__(self) -> Broker:
        self.format()
        self.start()
        return self

    def format(self) -> None:
        """Prepare the data folder. Raises BrokerFailed."""
        options = ("-t", self._cluster, "-c", str(self._properties), *self.format_options)
        command = self._java("kafka.tools.StorageTool", "format", *options)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BrokerFailed(f"the broker's storage could not be formatted:\n{done.stdout}{done.stderr}")

    def __exit__(self, *_exc: object) -> None:
        self.stop()
        if self._owned:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start the process and return when it answers. Raises BrokerFailed."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start the process."""
        with self.log.open("ab") as log:
            command = self._java("kafka.Kafka", str(self._properties))
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder)

    def await_ready(self) -> None:
        """Return when the process answers. Raises BrokerFailed."""
        assert self._process is not None
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the process in order; by force when it takes too long."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Stop and start on the same address with the same data."""
        self.stop()
        self.start()

    def log_tail(self, characters: int = 4000) -> str:
        """Return the end of the broker's log."""
        return self.log.read_text(errors="replace")[-characters:] if self.log.exists() else ""

    def _java(self, *arguments: str) -> list[str]:
        logger = "-Dorg.slf4j.simpleLogger"
        # At this level the coordinator of transactions says for which partitions it writes no marker.
        markers = f"{logger}.log.kafka.coordinator.transaction.TransactionMarkerChannelManager=info"
        logging = [f"{logger}.defaultLogLevel=warn", markers]
        return ["java", *self._options, *logging, "-cp", f"{jars(self.version)}/*", *arguments]

    def _wait_until_ready(self, process: subprocess.Popen) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                pass
            if process.poll() is not None or time.monotonic() > deadline:
                raise BrokerFailed(f"the broker did not come up at {self.address}:\n{self.log_tail()}")
