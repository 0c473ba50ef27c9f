"""The server: one client over the standard streams; requests are answered from the latest analyses."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, TypeVar

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

from streamkit.distribution import installed_version

if TYPE_CHECKING:
    from streamkit.editor.project import Project, Published

P = TypeVar("P")
R = TypeVar("R")
logger = logging.getLogger(__name__)
GRAPH_CHANGED = "streamkit/graphChanged"


class EditorServer:
    """A server with its project, which a thread creates: its imports take longer than the first answer may."""

    def __init__(self, env_file: str | None) -> None:
        self._env_file = env_file
        # Whole texts: line ends of the protocol and of Python differ, so that changes of lines could be misplaced.
        sync = lsp.TextDocumentSyncKind.Full
        self.server = LanguageServer("streamkit", installed_version(), text_document_sync_kind=sync)
        self._options: object = None
        self._project: asyncio.Future[Project] | None = None
        self._register(lsp.INITIALIZE, self._initialize)
        self._register(lsp.INITIALIZED, self._initialized)
        self._register(lsp.SHUTDOWN, self._shutdown)
        self._register(lsp.TEXT_DOCUMENT_DID_OPEN, self._did_open)
        self._register(lsp.TEXT_DOCUMENT_DID_CHANGE, self._did_change)
        self._register(lsp.TEXT_DOCUMENT_DID_CLOSE, self._did_close)

    def _register(self, feature: str, answer: Callable[[P], Awaitable[R]], options: object = None) -> None:
        # The library sets attributes of handlers, which methods do not take.
        async def handler(params: P) -> R:
            return await answer(params)

        register: Callable[..., Callable[..., object]] = self.server.feature
        register(feature, options)(handler)

    async def project(self) -> Project:
        """Return the project."""
        if self._project is None:
            # Not at `initialize`: the imports would compete with the answer.
            loop = asyncio.get_running_loop()
            encoding = str(self.server.workspace.position_encoding)
            self._project = loop.run_in_executor(None, self._create, loop, encoding)
        return await asyncio.shield(self._project)

    def _create(self, loop: asyncio.AbstractEventLoop, encoding: str) -> Project:
        from streamkit.editor.project import Options, Project

        def publish(found: Published) -> None:
            params = lsp.PublishDiagnosticsParams(found.uri, found.diagnostics, found.version)
            loop.call_soon_threadsafe(self.server.text_document_publish_diagnostics, params)

        def analysed(uri: str, version: int | None) -> None:
            loop.call_soon_threadsafe(self.server.protocol.notify, GRAPH_CHANGED, {"uri": uri, "version": version})

        return Project(Options.of(self._options, self._env_file), encoding, publish, analysed)

    # -- The state of the client ---------------------------------------------------------------------------------------

    async def _initialize(self, params: lsp.InitializeParams) -> None:
        self._options = params.initialization_options

    async def _initialized(self, params: lsp.InitializedParams) -> None:
        await self.project()

    async def _shutdown(self, params: None) -> None:
        if self._project is not None:
            (await self.project()).worker.close()

    async def _did_open(self, params: lsp.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        (await self.project()).open(document.uri, document.text, document.version)

    async def _did_change(self, params: lsp.DidChangeTextDocumentParams) -> None:
        document = params.text_document
        text = self.server.workspace.get_text_document(document.uri).source
        (await self.project()).open(document.uri, text, document.version)

    async def _did_close(self, params: lsp.DidCloseTextDocumentParams) -> None:
        (await self.project()).close(params.text_document.uri)


def serve(env_file: str | None = None) -> None:
    """Serve one client until it exits. env_file: variables, unless the client names another file."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    # What anything prints must not stand between messages.
    messages = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    with redirect_stdout(sys.stderr):
        EditorServer(env_file).server.start_io(stdout=messages)
