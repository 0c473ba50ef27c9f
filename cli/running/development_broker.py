"""A Kafka broker for development: one KRaft process on this machine, with jars from Maven Central."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

from streamkit.errors import TransportError, UsageError
from streamkit.transport.reachability import silence
from streamkit_cli.guard import print_message

# Not the newest: a broker of 4.3.0 to 4.4.0 that starts or stops takes a partition that has no leader for one that is deleted,
# and ends transactions without their markers there (KRaftMetadataCache.getPartitionLeaderEndpoint).
VERSION = "4.2.1"
HOST = "127.0.0.1"
_PORT = 9092
_READY_SECONDS = 180.0
_LOOK_SECONDS = 0.2
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
        # Into a folder of its own first: a fetch that breaks off, or two at once, leave no half of one.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as partial:
            pom, jars = Path(partial, "pom.xml"), Path(partial, "jars")
            pom.write_text(_POM.format(version=version), encoding="utf-8")
            options = ["-q", "-B", "-Dstyle.color=never", "-f", str(pom), f"-DoutputDirectory={jars}"]
            line = ["mvn", *options, "dependency:copy-dependencies"]
            done = subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
            if done.returncode:
                said = next((each for each in done.stdout.splitlines() if each.startswith("[ERROR]")), done.stderr)
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
        port, controller = free_port(_PORT), free_port(0)
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
            # It outlives neither this process, however that ends, nor an interrupt from the terminal: the application, which
            # gets that too, commits first.
            with_parent = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
            line = [*with_parent, *java, "kafka.Kafka", str(properties)]
            self._process = subprocess.Popen(
                line, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.address = f"{HOST}:{port}"
        self._wait_until_ready(self._process, stop_requested)

    def close(self) -> None:
        """End the process in order; by force when it takes too long."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _wait_until_ready(self, process: subprocess.Popen[bytes], stop_requested: threading.Event) -> None:
        for _ in range(int(_READY_SECONDS / _LOOK_SECONDS)):
            if process.poll() is not None:
                break
            if silence(self.address, tls=False) is None or stop_requested.wait(_LOOK_SECONDS):
                return
        self.close()
        raise self._failure()

    def _failure(self) -> TransportError:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = next((line for line in reversed(lines) if "Exception" in line or "ERROR" in line), "")
        return TransportError(f"the broker did not start: {said.strip() or 'it says nothing'} (its log: {self._log})")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamkit"


def free_port(wanted: int) -> int:
    """Return a port that nothing listens on: the wanted one, which stays the same over runs, if possible."""
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
