"""The server: one client over the standard streams; requests are answered from the latest analyses."""

from __future__ import annotations

import asyncio
import gc
import importlib
import io
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import redirect_stdout, suppress
from typing import TYPE_CHECKING, TypeVar

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from streamkit.distribution import installed_version
from streamkit.editor import KINDS
from streamkit.errors import StreamkitError, UsageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from streamkit.editor.project import Project, Published
    from streamkit.editor.texts import Text

P = TypeVar("P")
R = TypeVar("R")
logger = logging.getLogger(__name__)
GRAPH_CHANGED = "streamkit/graphChanged"
_REQUEST_FAILED = -32803
"""LSPErrorCodes.RequestFailed"""
_ANSWERS = (
    "typing_help", "quick_fixes", "navigation", "formatting", "drawings", "programs",
)  # fmt: skip
"""The modules that answer requests; imported after the first response to the client."""
_ANALYSIS_TIMEOUT_S = 10.0
"""How long a request waits for the analysis of its text."""


class EditorServer:
    """The server and its project. A thread creates the project, so that its imports do not delay the first response."""

    def __init__(self, env_file: str | None) -> None:
        # Whole texts: the protocol and Python count line ends differently, which would misplace incremental changes.
        sync = lsp.TextDocumentSyncKind.Full
        self.server = LanguageServer("streamkit", installed_version(), text_document_sync_kind=sync)
        self._env_file = env_file
        self._options: object = None
        self._project: asyncio.Future[Project] | None = None
        self._analysis_done = asyncio.Event()
        """Set, and replaced, after each analysis."""
        self._register(lsp.INITIALIZE, self._initialize)
        self._register(lsp.INITIALIZED, self._initialized)
        self._register(lsp.SHUTDOWN, self._shutdown)
        self._register(lsp.TEXT_DOCUMENT_DID_OPEN, self._did_open)
        self._register(lsp.TEXT_DOCUMENT_DID_CHANGE, self._did_change)
        self._register(lsp.TEXT_DOCUMENT_DID_CLOSE, self._did_close)
        self._register(
            lsp.TEXT_DOCUMENT_COMPLETION,
            self._completion,
            lsp.CompletionOptions(trigger_characters=[" ", ".", ":", "-", "[", "{", "(", "'", '"']),
        )
        self._register(
            lsp.TEXT_DOCUMENT_SIGNATURE_HELP,
            self._signature_help,
            lsp.SignatureHelpOptions(trigger_characters=["(", ","]),
        )
        self._register(lsp.TEXT_DOCUMENT_HOVER, self._hover)
        self._register(lsp.TEXT_DOCUMENT_DEFINITION, self._definition)
        self._register(lsp.TEXT_DOCUMENT_REFERENCES, self._references)
        self._register(lsp.TEXT_DOCUMENT_PREPARE_RENAME, self._prepare_rename)
        self._register(lsp.TEXT_DOCUMENT_RENAME, self._rename, lsp.RenameOptions(prepare_provider=True))
        self._register(lsp.TEXT_DOCUMENT_FORMATTING, self._formatting)
        legend = lsp.SemanticTokensLegend(KINDS, [])
        self._register(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, self._semantic_tokens, legend)
        fixes = lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix])
        self._register(lsp.TEXT_DOCUMENT_CODE_ACTION, self._code_action, fixes)
        self._register(lsp.TEXT_DOCUMENT_CODE_LENS, self._code_lens, lsp.CodeLensOptions())
        self._register(lsp.TEXT_DOCUMENT_INLAY_HINT, self._inlay_hint, lsp.InlayHintOptions())
        self._register("streamkit/graph", self._graph)
        self._register("streamkit/tests", self._tests)
        self._register("streamkit/runTest", self._run_test)
        for name, command in (
            ("streamkit.try", self._try),
            ("streamkit.test", self._test),
            ("streamkit.describe", self._describe),
        ):
            self._add_command(name, command)

    def _register(self, feature: str, answer: Callable[[P], Awaitable[R]], options: object = None) -> None:
        # pygls sets attributes on handlers, which bound methods do not allow.
        async def handler(params: P) -> R:
            if feature not in (lsp.INITIALIZE, lsp.SHUTDOWN):
                await self.project()
            return await answer(params)

        register: Callable[..., Callable[..., object]] = self.server.feature
        register(feature, options)(handler)

    def _add_command(self, name: str, command: Callable[[Arguments], Awaitable[object]]) -> None:
        # pygls passes the server first, and converts arguments by the annotations of named parameters.
        async def handler(*arguments: object) -> object:
            await self.project()
            return await command(Arguments(arguments[-1] if arguments else None))

        register: Callable[..., Callable[..., object]] = self.server.command
        register(name)(handler)

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
        from streamkit.editor.typing_help import place_in_topology

        # Later imports, by two threads at once, could see each other's modules half executed.
        for module in _ANSWERS:
            importlib.import_module(f"streamkit.editor.{module}")
        # The first completion would otherwise wait for the schema.
        place_in_topology(())

        def publish(published: Published) -> None:
            params = lsp.PublishDiagnosticsParams(published.uri, published.diagnostics, published.version)
            loop.call_soon_threadsafe(self.server.text_document_publish_diagnostics, params)

        def analysed(uri: str, version: int | None) -> None:
            loop.call_soon_threadsafe(self.server.protocol.notify, GRAPH_CHANGED, {"uri": uri, "version": version})
            loop.call_soon_threadsafe(self._wake_requests)

        prepare_for_two_threads()
        return Project(Options.of(self._options, self._env_file), encoding, publish, analysed)

    async def _answer(self, uri: str, answer: Callable[[Project, Text], R], otherwise: R) -> R:
        """Return the answer for the text of a file. A failure is logged; the client gets `otherwise`."""
        project = await self.project()
        try:
            return answer(project, project.text(uri))
        except StreamkitError:
            return otherwise
        except Exception:
            logger.exception("a request for %s failed", uri)
            return otherwise

    def _wake_requests(self) -> None:
        """Wake requests that wait for an analysis."""
        self._analysis_done.set()
        self._analysis_done = asyncio.Event()

    async def _current(self, uri: str, answer: Callable[[Project, Text], R], otherwise: R) -> R:
        """Wait for the analysis of the newest text, then return the answer. Raises JsonRpcException for a user's mistake."""
        project = await self.project()
        end = asyncio.get_running_loop().time() + _ANALYSIS_TIMEOUT_S
        while project.is_behind(uri) and (left := end - asyncio.get_running_loop().time()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._analysis_done.wait(), left)
        try:
            # In another thread, because a rename analyses all files of a topology again.
            text = project.text(uri)
            return await asyncio.get_running_loop().run_in_executor(None, answer, project, text)
        except UsageError as error:
            raise JsonRpcException(str(error), _REQUEST_FAILED) from error
        except StreamkitError:
            return otherwise
        except Exception:
            logger.exception("a request for %s failed", uri)
            return otherwise

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

    # -- Completion and hover ------------------------------------------------------------------------------------------

    async def _completion(self, params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        from streamkit.editor.typing_help import completions

        uri, place = params.text_document.uri, params.position
        return await self._answer(uri, lambda project, text: completions(project, uri, text, place), [])

    async def _signature_help(self, params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
        from streamkit.editor.typing_help import signature

        uri, place = params.text_document.uri, params.position
        return await self._answer(uri, lambda project, text: signature(project, uri, text, place), None)

    async def _hover(self, params: lsp.HoverParams) -> lsp.Hover | None:
        from streamkit.editor.typing_help import hover

        uri, place = params.text_document.uri, params.position
        return await self._answer(uri, lambda project, text: hover(project, uri, text, place), None)

    async def _code_action(self, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        from streamkit.editor.quick_fixes import quick_fixes

        uri, problems = params.text_document.uri, list(params.context.diagnostics)
        return await self._answer(uri, lambda project, text: quick_fixes(uri, text, problems), [])

    async def _semantic_tokens(self, params: lsp.SemanticTokensParams) -> lsp.SemanticTokens:
        from streamkit.editor.navigation import semantic_tokens

        uri = params.text_document.uri
        return await self._current(
            uri, lambda project, text: semantic_tokens(project, uri, text), lsp.SemanticTokens([])
        )

    async def _formatting(self, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        from streamkit.editor.formatting import formatting

        return await self._answer(params.text_document.uri, lambda project, text: formatting(text), [])

    # -- Names ---------------------------------------------------------------------------------------------------------

    async def _definition(self, params: lsp.DefinitionParams) -> list[lsp.Location]:
        from streamkit.editor.navigation import definition

        uri, place = params.text_document.uri, params.position
        return await self._current(uri, lambda project, text: definition(project, uri, text, place), [])

    async def _references(self, params: lsp.ReferenceParams) -> list[lsp.Location]:
        from streamkit.editor.navigation import references

        uri, place, every = params.text_document.uri, params.position, params.context.include_declaration
        return await self._current(uri, lambda project, text: references(project, uri, text, place, every), [])

    async def _prepare_rename(self, params: lsp.PrepareRenameParams) -> lsp.PrepareRenamePlaceholder | None:
        from streamkit.editor.navigation import renamed_word

        uri, place = params.text_document.uri, params.position
        return await self._current(uri, lambda project, text: renamed_word(project, uri, text, place), None)

    async def _rename(self, params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        from streamkit.editor.navigation import rename

        uri, place, name = params.text_document.uri, params.position, params.new_name
        renaming = await self._current(uri, lambda project, text: rename(project, uri, text, place, name), None)
        if renaming is None:
            return None
        workspace = self.server.client_capabilities.workspace
        edits = workspace.workspace_edit if workspace is not None else None
        documents = edits is not None and bool(edits.document_changes)
        annotations = documents and edits is not None and edits.change_annotation_support is not None
        if renaming.cost and not annotations:
            self.server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Warning, renaming.cost))
        return renaming.workspace_edit(documents, annotations)

    # -- Drawings, tests and commands ----------------------------------------------------------------------------------

    async def _graph(self, params: object) -> object:
        from streamkit.editor.drawings import graph

        project, uri = await self.project(), Arguments(params).uri
        return await asyncio.get_running_loop().run_in_executor(None, graph, project, uri)

    async def _tests(self, params: object) -> object:
        from streamkit.editor.programs import tests

        return tests(await self.project(), Arguments(params).uri)

    async def _run_test(self, params: object) -> object:
        from streamkit.editor.programs import run_test

        arguments = Arguments(params)
        return await run_test(await self.project(), arguments.uri, arguments.text("id"))

    async def _try(self, arguments: Arguments) -> object:
        from streamkit.editor.programs import try_file

        result = await try_file(await self.project(), arguments.uri, arguments.text("input"))
        self._refresh()
        return result

    async def _test(self, arguments: Arguments) -> object:
        from streamkit.editor.programs import test_file

        result = await test_file(await self.project(), arguments.uri, arguments.text("id"))
        self._refresh()
        return result

    async def _describe(self, arguments: Arguments) -> object:
        from streamkit.editor.programs import describe_file

        return describe_file(await self.project(), arguments.uri, arguments.text("format"))

    def _refresh(self) -> None:
        workspace = self.server.client_capabilities.workspace
        hints = workspace.inlay_hint if workspace is not None else None
        if hints is not None and hints.refresh_support:
            self.server.workspace_inlay_hint_refresh(None)

    async def _code_lens(self, params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        from streamkit.editor.programs import code_lenses

        uri = params.text_document.uri
        return await self._answer(uri, lambda project, text: code_lenses(uri, text), [])

    async def _inlay_hint(self, params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        from streamkit.editor.programs import inlay_hints

        shown = params.range
        return await self._answer(params.text_document.uri, lambda project, text: inlay_hints(project, text, shown), [])


class Arguments:
    """The arguments of streamkit's own requests and commands, which may be mappings or objects of the library."""

    def __init__(self, params: object):
        self._params = params

    def _get(self, name: str, holder: object) -> object:
        return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)

    def text(self, name: str) -> str | None:
        """Return an argument that is text; None if it is absent."""
        value = self._get(name, self._params)
        return value if isinstance(value, str) else None

    @property
    def uri(self) -> str:
        """The uri of the file."""
        return self.text("uri") or str(self._get("uri", self._get("textDocument", self._params)) or "")


def prepare_for_two_threads() -> None:
    """Shorten how long answers wait for the analysis thread, and how long this thread waits for garbage collection."""
    sys.setswitchinterval(0.001)
    # An analysis creates many objects that live as long as it does. Its thread collects garbage between analyses.
    gc.freeze()
    gc.disable()


class _Messages(io.BufferedWriter):
    """The output for messages. Once `exit` has closed it, it drops what still waits to be sent.

    pygls would report that it can't write by a message to the client, which it can't write either, and so on without an end.
    """

    def write(self, data: ReadableBuffer) -> int:
        return len(memoryview(data)) if self.closed else super().write(data)

    def flush(self) -> None:
        if not self.closed:
            super().flush()


def serve(env_file: str | None = None) -> None:
    """Serve one client until it exits. env_file: the file of variables, unless the client names another one."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    # Stdout carries only messages of the protocol, so all other output goes to stderr.
    messages = _Messages(io.FileIO(os.dup(sys.stdout.fileno()), "wb"))
    with redirect_stdout(sys.stderr):
        EditorServer(env_file).server.start_io(stdout=messages)
