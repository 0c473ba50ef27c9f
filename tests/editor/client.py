"""A client of `streamkit lsp`: pygls' own, in a thread with an event loop, so that tests are plain functions."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

T = TypeVar("T")
P = TypeVar("P")
PATIENCE_S = 120
"""How long a test waits for the server, which takes milliseconds; the tests of a slow machine may not fail."""


class Client:
    """One server process. capabilities: of the client; options: initializationOptions."""

    def __init__(self, options: dict[str, Any] | None = None, capabilities: lsp.ClientCapabilities | None = None):
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.client = LanguageClient("tests", "1")
        self.diagnostics: queue.Queue[lsp.PublishDiagnosticsParams] = queue.Queue()
        self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda found: self.diagnostics.put(found))
        self.messages: queue.Queue[lsp.ShowMessageParams] = queue.Queue()
        self.client.feature(lsp.WINDOW_SHOW_MESSAGE)(lambda found: self.messages.put(found))
        self.client.feature("streamkit/graphChanged")(lambda params: None)
        self.client.feature(lsp.WORKSPACE_INLAY_HINT_REFRESH)(lambda params: None)
        self.client.feature(lsp.WORKSPACE_CODE_LENS_REFRESH)(lambda params: None)
        self.versions: dict[str, int] = {}
        self.wait(self.client.start_io(sys.executable, "-m", "streamkit_cli", "lsp"))
        params = lsp.InitializeParams(
            capabilities=capabilities or lsp.ClientCapabilities(), initialization_options=options
        )
        self.initialized = self.wait(self.client.initialize_async(params))
        self.tell(self.client.initialized, lsp.InitializedParams())

    def wait(self, answer: Awaitable[T]) -> T:
        """Return the result of a request."""

        async def await_it() -> T:
            return await answer

        return asyncio.run_coroutine_threadsafe(await_it(), self._loop).result(PATIENCE_S)

    def tell(self, notification: Callable[[P], None], params: P) -> None:
        """Send a notification, in the thread of the loop, which alone may write."""
        self._loop.call_soon_threadsafe(notification, params)

    def ask(self, method: str, params: object) -> object:
        """Return the answer to a request that the protocol does not have."""

        async def ask_it() -> object:
            return await self.client.protocol.send_request_async(method, params)

        return self.wait(ask_it())

    def open(self, path: Path, text: str | None = None) -> str:
        """Open a file with a text, by default its own, and return its uri."""
        uri = path.as_uri()
        self.versions[uri] = 1
        document = lsp.TextDocumentItem(uri, "yaml", 1, path.read_text() if text is None else text)
        self.tell(self.client.text_document_did_open, lsp.DidOpenTextDocumentParams(document))
        return uri

    def change(self, uri: str, text: str) -> None:
        """Replace the text of an open file."""
        self.versions[uri] += 1
        version = lsp.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        params = lsp.DidChangeTextDocumentParams(version, [lsp.TextDocumentContentChangeWholeDocument(text)])
        self.tell(self.client.text_document_did_change, params)

    def close(self, uri: str) -> None:
        """Close a file."""
        self.tell(self.client.text_document_did_close, lsp.DidCloseTextDocumentParams(lsp.TextDocumentIdentifier(uri)))

    def problems(self, uri: str) -> list[lsp.Diagnostic]:
        """Wait for the problems of a file's newest version."""
        while True:
            found = self.diagnostics.get(timeout=PATIENCE_S)
            if found.uri == uri and found.version in (self.versions.get(uri), None):
                return list(found.diagnostics)

    def stop(self) -> int:
        """End the server, and return its exit code."""
        self.wait(self.client.shutdown_async(None))
        server = self.client._server
        assert server is not None
        self.tell(self.client.exit, None)
        code = self.wait(server.wait())
        self.wait(self.client.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        return code
