"""A real schema registry for tests: Apicurio Registry from Maven, in memory, by Confluent's REST API.

>>> with SchemaRegistry() as registry:  # doctest: +SKIP
...     registry.url
"""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.ports import free_ports
from tests.requirements import require

VERSION = "2.6.13.Final"
READY_SECONDS = 180
STOP_SECONDS = 20
LISTENS = "Listening on: http"
_API = "/apis/ccompat/v7"


class RegistryFailed(RuntimeError):
    """The registry did not start; the text ends with the tail of its log."""


def _folder() -> Path:
    cache = os.environ.get("STREAMKIT_TEST_CACHE") or Path.home() / ".cache" / "streamkit-tests"
    return Path(cache) / f"apicurio-registry-{VERSION}"


def _fetched() -> Path:
    """Return the folder of the registry's jars, fetched once."""
    require("java")
    folder = _folder()
    if not folder.exists():
        require("mvn")
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Under another name first: a fetch that breaks off, or two sessions at once, leave no half of one.
        with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
            artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
            command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={partial}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=partial)
            if done.returncode:
                raise RegistryFailed(f"mvn could not fetch the registry:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
            made = Path(partial) / "made"
            with tarfile.open(next(Path(partial).glob("*.tar.gz"))) as archive:
                archive.extractall(made, filter="data")
            try:
                made.rename(folder)
            except OSError:
                if not folder.exists():
                    raise
    return folder


class SchemaRegistry:
    """One registry process; `url` is the address of its Confluent API, `apicurio_url` that of its own."""

    def __init__(self) -> None:
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}{_API}"
        self.apicurio_url = f"http://127.0.0.1:{self._port}/apis/registry/v2"
        self._log: list[str] = []
        self._listens = False
        self._listens_or_ended = threading.Event()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> SchemaRegistry:
        jar = next(_fetched().glob("*-runner.jar"))
        options = [f"-Dquarkus.http.port={self._port}", "-Dquarkus.http.host=127.0.0.1", "-Xmx300m"]
        # Quick to start rather than quick for long.
        command = ["java", "-XX:TieredStopAtLevel=1", *options, "-jar", str(jar)]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read_log, args=(self._process,), daemon=True)
        self._reader.start()
        self._listens_or_ended.wait(READY_SECONDS)
        if not self._listens:
            self.__exit__()
            raise RegistryFailed(f"the registry did not start:\n{''.join(self._log)[-3000:]}")
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._reader.join()

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._log.append(line)
                if LISTENS in line:
                    self._listens = True
                    self._listens_or_ended.set()
        self._listens_or_ended.set()

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """Return what the registry answers. Raises urllib.error.HTTPError for a refusal."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data, method=method)
        request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        with urllib.request.urlopen(request, timeout=READY_SECONDS) as answer:
            return json.loads(answer.read())

    def register(self, subject: str, schema: Any, kind: str = "AVRO") -> int:
        """Register a schema (text, or data that becomes JSON) and return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return int(self.ask(f"subjects/{subject}/versions", {"schema": text, "schemaType": kind})["id"])

    def versions(self, subject: str) -> list[int]:
        """Return the versions of a subject, none where there is no such subject."""
        try:
            return list(self.ask(f"subjects/{subject}/versions"))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return []
            raise
