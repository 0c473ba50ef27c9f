"""Three brokers, so that leaders and coordinators move when one of them goes."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

from tests.broker.kafka_broker import VERSION, Broker, cluster_id
from tests.ports import free_ports


class _Node(Broker):
    """One broker and controller of several."""

    def __init__(self, folder: Path, number: int, ports: list[tuple[int, int]], cluster: str, version: str):
        super().__init__(folder, version=version)
        port, controller = ports[number - 1]
        copies = len(ports)
        voters = ",".join(f"{each}@127.0.0.1:{other}" for each, (_, other) in enumerate(ports, 1))
        listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
        self.address = f"127.0.0.1:{port}"
        self._cluster = cluster
        changes = {
            "node.id": number,
            "controller.quorum.voters": voters,
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": copies - 1,
        }
        text = self._properties.read_text()
        for name, value in changes.items():
            text = re.sub(rf"(?m)^{re.escape(name)}=.*$", f"{name}={value}", text)
        # Writes that one broker alone has seen would be lost with it.
        self._properties.write_text(f"{text}min.insync.replicas={copies - 1}\n")


class Brokers(Broker):
    """Several brokers behind the interface of one: what is done to `it` is done to one that is drawn."""

    def __init__(self, folder: Path, count: int, seed: int, version: str = VERSION):
        self.folder = folder
        ports = free_ports(2 * count)
        pairs = list(zip(ports[::2], ports[1::2], strict=True))
        cluster = cluster_id()
        self.nodes = [_Node(folder / str(number), number, pairs, cluster, version) for number in range(1, count + 1)]
        self.address = ",".join(node.address for node in self.nodes)
        self._draw = random.Random(seed)
        self._down: Broker | None = None

    def __enter__(self) -> Brokers:
        for node in self.nodes:
            node.format()
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.await_ready()
        return self

    def __exit__(self, *_exc: object) -> None:
        # By force: in order, the last ones would wait for a majority of controllers.
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self) -> None:
        self._draw.choice(self.nodes).restart()

    def kill(self) -> None:
        self._down = self._draw.choice(self.nodes)
        self._down.kill()

    def start(self) -> None:
        if self._down is not None:
            self._down.start()
            self._down = None

    def log_tail(self, characters: int = 4000) -> str:
        return "\n".join(node.log_tail(characters) for node in self.nodes)
