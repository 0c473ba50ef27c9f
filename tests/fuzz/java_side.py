"""Kafka Streams' answers: one long-lived JVM that runs folders of cases."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.fuzz.compare import Answer
from tests.java import build

# Many small state directories are made and deleted: memory is faster than a disk where the machine has such a folder.
_FAST = Path("/dev/shm")


class Oracle:
    """The interpreter process: `run` names it a folder, and it writes its answers there.

    kafka: the version of Kafka Streams that it runs on, where that is not the usual one.
    """

    def __init__(self, kafka: str = ""):
        self._scratch = Path(tempfile.mkdtemp(prefix="fuzz-oracle-", dir=_FAST if _FAST.is_dir() else None))
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={self._scratch}"]
        command = build.command("fuzz/java", "Oracle", *options, kafka=kafka)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *_exc: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def run(self, folder: Path) -> None:
        """Answer a case's folder, or every case in a folder of them."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{folder}\n")
        self._process.stdin.flush()
        if self._process.stdout.readline().rstrip("\n") != str(folder):
            raise RuntimeError("the Java interpreter ended early")


def answer(folder: Path) -> Answer:
    """Read what Java wrote into a case's folder."""
    result = Answer()
    describe = folder / "describe.txt"
    if describe.exists():
        result.describe = describe.read_text(encoding="utf-8")
    error = folder / "error.txt"
    if error.exists():
        result.stage, _, result.error = error.read_text(encoding="utf-8").partition("\n")
        return result
    with (folder / "expected.jsonl").open(encoding="utf-8") as lines:
        result.records = [json.loads(line) for line in lines]
    with (folder / "changelogs.jsonl").open(encoding="utf-8") as lines:
        result.changelogs = [json.loads(line) for line in lines]
    result.stores = json.loads((folder / "stores.json").read_text(encoding="utf-8"))
    result.keys = json.loads((folder / "keys.json").read_text(encoding="utf-8"))
    result.dropped = json.loads((folder / "dropped.json").read_text(encoding="utf-8"))
    return result
