"""A server of S3 (moto) in a thread, some of whose requests fail. Its process has moto by `s3_environment`."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET = "lake"
IMPATIENT = {
    "attempts.maximum": "1",
    "retry.limit": "2",
    "retry.interval": "10ms",
    "retry.throttle.limit": "4",
    "retry.throttle.interval": "10ms",
}
"""Short waits between few attempts."""
_BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@dataclass
class Fault:
    """Answers 503 to requests whose line (METHOD /BUCKET/KEY, COPY for a copy) has a pattern: `count` of them after `skip`.

    is_lost: the store does what the request says, and only its answer is lost. then: what happens before that.
    """

    pattern: str
    count: float = float("inf")
    skip: int = 0
    is_lost: bool = False
    then: Callable[[], None] | None = None

    def hits(self, line: str) -> bool:
        if not re.search(self.pattern, line):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.count -= 1
        return self.count >= 0


@dataclass
class Outage(Fault):
    """Answers 503 to all requests for some seconds, from the first one that has the pattern on."""

    seconds: float = 60
    began: float | None = None
    answered: int = 0

    def hits(self, line: str) -> bool:
        if self.began is None and re.search(self.pattern, line):
            self.began = time.monotonic()
        is_busy = self.began is not None and time.monotonic() - self.began < self.seconds
        self.answered += is_busy
        return is_busy


@dataclass
class Server:
    """The server while it runs. seen: the requests so far, `If-None-Match` behind those that are conditional."""

    faults: list[Fault] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._app = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Condition()
        self._active = 0
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.client = boto3.client(
            "s3", endpoint_url=self.url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
        )
        self.client.create_bucket(Bucket=BUCKET)

    def settings(self, jars: str, patience: Mapping[str, str] = IMPATIENT) -> dict[str, str]:
        """The settings of Spark for this store. patience: those of S3A for attempts and the waits between them."""
        own = {
            "endpoint": self.url,
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "access.key": "a",
            "secret.key": "b",
            **patience,
        }
        return {"spark.jars": jars, **{f"spark.hadoop.fs.s3a.{name}": value for name, value in own.items()}}

    def put(self, key: str, text: str) -> None:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=text.encode())

    def objects(self, prefix: str) -> dict[str, str]:
        """The contents of objects by their keys."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return {key: self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode("latin-1") for key in keys}

    def wait_for_requests(self) -> None:
        """Wait until all requests are answered: S3A ends a rename with its first error, while other copies go on."""
        with self._lock:
            assert self._lock.wait_for(lambda: not self._active, timeout=60)

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            self._active += 1
        try:
            return self._answer_or_fail(environ, start)
        finally:
            with self._lock:
                self._active -= 1
                self._lock.notify_all()

    def _answer_or_fail(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        is_copy = "HTTP_X_AMZ_COPY_SOURCE" in environ
        line = f"{'COPY' if is_copy else environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
        with self._lock:
            self.seen.append(line + (" If-None-Match" if "HTTP_IF_NONE_MATCH" in environ else ""))
            fault = next((each for each in self.faults if each.hits(line)), None)
        if fault is None:
            return self._app(environ, start)
        if fault.then is not None and not fault.is_lost:
            fault.then()
            return self._app(environ, start)
        if fault.is_lost:
            b"".join(self._app(environ, lambda *_: None))
            if fault.then is not None:
                fault.then()
        else:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start("503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(_BUSY)))])
        return [_BUSY]
