"""One stream thread over a log in memory, driven round by round, and a store that keeps a list."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from streamkit.config import Config
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.local.internal_topics import TopicsOnLog
from streamkit.runtime.local.setup import Settings, Shared
from streamkit.runtime.local.states import ThreadState
from streamkit.runtime.local.stream_thread import StreamThread
from streamkit.serdes import serde as serdes
from streamkit.state.definitions import StoreDef
from streamkit.state.directory import StateDirectory
from tests.runtime.fake_log import FakeLog
from tests.runtime.fakes import Clock, FakeProgram

IN = TopicPartition("in", 0)
LOG = TopicPartition("app-counts-changelog", 0)


class ListStore:
    """Keeps what was restored; `log` is its changelog, `kept` what outlasts it: the position as of its last commit."""

    persistent = durable = True
    name = "counts"

    def __init__(self, services: Any = None, kept: dict[int, int] | None = None):
        self.kept = {} if kept is None else kept
        self.noted = dict(self.kept)
        self.restored: list[tuple] = []
        self.log = services.log if services else None
        self.commits = 0
        self.pending: list[bytes] = []

    def restore_batch(self, keys, values, timestamps, headers):
        self.restored.extend(zip(keys, values, strict=True))

    def rows(self):
        return iter(self.restored)

    def flush(self):
        for value in self.pending:
            self.log(value, value, 1, None)
        self.pending = []

    def commit(self):
        self.commits += 1
        self.kept.update(self.noted)

    def position(self, partition):
        return self.kept.get(partition)

    def note_position(self, partition, position):
        self.noted[partition] = position

    def uncommitted_bytes(self):
        return sum(map(len, self.pending))

    def forget(self):
        pass

    def close(self):
        pass


def changelog_rows(count: int) -> list[tuple]:
    return [(LOG.topic, str(n).encode(), b"v", n, None, 0) for n in range(count)]


def run_round(thread: StreamThread) -> None:
    """Run a round of a thread; between its assignment and the rest its updater does what there is."""
    thread._committer.begin()
    thread._take_assignment()
    while any(task.active for task in thread._tasks.updater._tasks.values()):
        thread._tasks.updater.round()
    thread._round()


class Harness:
    """One stream thread, driven round by round in the test's own thread."""

    def __init__(self, tmp_path, program: FakeProgram, settings: Settings | None = None, stores: tuple[str, ...] = ()):
        self.clock = Clock(0)
        self.log = FakeLog({"in": 1, "out": 1})
        sub = SimpleNamespace(id=0, nodes={}, is_global=False, stores=stores, source_topics=("in",))
        serde: Any = serdes.Serde
        definitions = {name: StoreDef(name, "key_value", serde, serde, changelog_topic=name) for name in stores}
        plan: Any = SimpleNamespace(
            application="app",
            config=Config("app"),
            sub_topologies=(sub,),
            stores=definitions,
            external_topics={},
            internal_topics={"again": SimpleNamespace(kind="repartition")},
            internal_name=lambda topic: f"app-{topic}",
            changelog_name=lambda name: f"app-{name}-changelog",
        )
        self.shared = Shared(
            plan,
            self.log,
            settings or Settings(),
            StateDirectory(tmp_path, "app"),
            TopicsOnLog({"in": 1}, {0: program.topics}),
            clock=self.clock,
            elapsed=self.clock,
            programs={0: program},  # type: ignore[dict-item]
        )
        self.thread = StreamThread("t", self.shared)
        stores: Any = SimpleNamespace(open=lambda spec, name, services: self._store(services))
        self.thread._tasks.stores = stores
        self.stores: list[ListStore] = []
        self.kept: dict[int, int] = {}
        self.thread._committer.open()
        self.thread._to(ThreadState.STARTING)
        self.thread.assign([TaskId(0, 0)])

    def _store(self, services):
        self.stores.append(ListStore(services, self.kept))
        return self.stores[-1]

    def send(self, count: int) -> None:
        start = len(self.log.rows[IN])
        self.log.append([("in", None, str(n).encode(), n, None, 0) for n in range(start, start + count)])

    def values(self, topic: str = "out") -> list[bytes]:
        return [row[2] for row in self.log.rows[TopicPartition(topic, 0)]]

    def round(self) -> None:
        run_round(self.thread)
