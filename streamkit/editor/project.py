"""The open files with their latest analyses, and the problems that editors show for each file."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lsprotocol import types as lsp

from streamkit.config import read_env_file
from streamkit.editor.analysis import PART, TEST, TEST_SUFFIXES, TOPOLOGY, Analysis, Mark, analyse, beside, kind_of
from streamkit.editor.texts import Text, Texts
from streamkit.errors import Position, Problem, StreamkitError

SOURCE = "streamkit"
logger = logging.getLogger(__name__)
_IDLE_S = 0.5
_MOST_GARBAGE = 200
"""Analyses whose garbage may wait for a pause."""
_SEVERITIES = {"error": lsp.DiagnosticSeverity.Error, "warning": lsp.DiagnosticSeverity.Warning}


@dataclass
class Options:
    """The settings of the client. lint: `all` or `mistakes`; env_file: variables for `${NAME}`."""

    lint: str = "all"
    debounce_ms: float = 150
    env_file: str | None = None

    @classmethod
    def of(cls, data: object, env_file: str | None) -> Options:
        """Return the options of `initializationOptions`; unknown and malformed ones have their defaults."""
        options = data if isinstance(data, Mapping) else {}
        pause, file = options.get("debounceMs"), options.get("envFile")
        return cls(
            "mistakes" if options.get("lint") == "mistakes" else "all",
            float(pause) if isinstance(pause, int | float) and 0 <= pause <= 10_000 else cls.debounce_ms,
            file if isinstance(file, str) and file else env_file,
        )


@dataclass(frozen=True)
class Hint:
    """A value of the last `try` or test beside a line (from 1) of a file."""

    line: int
    text: str
    detail: str


@dataclass
class Published:
    """The problems of one file, as they are sent to the client."""

    uri: str
    version: int | None
    diagnostics: list[lsp.Diagnostic] = field(default_factory=list)


Publish = Callable[[Published], None]
Analysed = Callable[[str, int | None], None]


class Project:
    """The state of a server; `analyses` and `good` are written by the worker's thread only, each with one assignment.

    publish, analysed: called in the worker's thread with the problems of a file, and with the uri and version of each analysis.
    """

    def __init__(self, options: Options, encoding: str, publish: Publish, analysed: Analysed):
        self.options = options
        self.encoding = encoding
        self.opened: dict[str, Text] = {}
        """By real path."""
        self.texts = Texts(self.opened)
        self.analyses: dict[str, Analysis] = {}
        """The latest analysis by real path."""
        self.good: dict[str, Analysis] = {}
        """The latest analysis with a plan."""
        self.hints: dict[str, list[Hint]] = {}
        self._uris: dict[str, str] = {}
        self._publish = publish
        self._analysed = analysed
        self._published: dict[str, set[str]] = {}
        """By analysed file: the files for which it has problems."""
        self.worker = _Worker(self._analyse, self._done, options.debounce_ms / 1000)

    # -- Files ---------------------------------------------------------------------------------------------------------

    def open(self, uri: str, text: str, version: int | None) -> None:
        """Take a text as the newest version of a file, and analyse it and all open files that use it."""
        file = path_of(uri)
        is_new = identity(file) not in self.opened
        current = Text(file, text, version, self.encoding)
        self._uris[identity(file)] = uri
        self.opened[identity(file)] = current
        self.worker.submit(current, now=is_new)
        for other in self._users(current):
            self.worker.submit(other, now=is_new)

    def close(self, uri: str) -> None:
        """Forget an open file; its problems are withdrawn."""
        name = identity(path_of(uri))
        text = self.opened.pop(name, None)
        if text is None:
            return
        self.worker.forget(text.file)
        for analyses in (self.analyses, self.good, self.hints):
            analyses.pop(name, None)
        for file in self._published.pop(name, ()):
            self._send(file)
        self._publish(Published(uri, None))

    def text(self, uri: str) -> Text:
        """Return the text of a file. Raises UsageError, TopologyError."""
        return self.texts.get(path_of(uri), self.encoding)

    def uri(self, file: str) -> str:
        """Return the uri of a file, as the client has sent it if it is open."""
        known = self._uris.get(identity(file))
        return known if known is not None else uri_of(file)

    def analysis(self, uri: str) -> Analysis | None:
        """Return the latest analysis of a file, or, for an included file, of a topology that includes it."""
        name = identity(path_of(uri))
        analysis = self.analyses.get(name)
        if analysis is not None and analysis.kind == PART:
            return next(iter(self._including(name)), analysis)
        return analysis

    def valid(self, uri: str) -> Analysis | None:
        """Return the latest analysis of a topology that has a plan; a test file has the analysis of its topology."""
        name = identity(path_of(uri))
        if path_of(uri).endswith(TEST_SUFFIXES):
            analysis = self.analyses.get(name)
            topology = analysis.cases.topology if analysis is not None and analysis.cases is not None else None
            name = identity(str(topology)) if topology is not None else name
        return self.good.get(name) or next(
            (analysis for analysis in self._including(name) if analysis.plan is not None), None
        )

    def is_behind(self, uri: str) -> bool:
        """Return whether an open file has a newer text than the analyses of it and of the topologies that include it.

        A file without an analysis may include it.
        """
        name = identity(path_of(uri))
        text, own = self.opened.get(name), self.analyses.get(name)
        if text is None:
            return False
        parts = [analysis.model.included for analysis in self._including(name) if analysis.model is not None]
        read = [part for included in parts for file, part in included.items() if identity(file) == name]
        if own is None or own.text is not text or any(file not in self.analyses for file in list(self.opened)):
            return True
        return any(part != text.text for part in read)

    def environment(self) -> Mapping[str, str]:
        """Return the variables of topologies."""
        if self.options.env_file is None:
            return os.environ
        try:
            return {**read_env_file(self.options.env_file), **os.environ}
        except StreamkitError:
            return os.environ

    def _including(self, name: str) -> list[Analysis]:
        # The worker's thread adds analyses meanwhile.
        return [analysis for analysis in list(self.analyses.values()) if name in map(identity, analysis.files[1:])]

    def _users(self, text: Text) -> list[Text]:
        """Return the texts of files that consist of a text too, or test it; for a part also files beside it."""
        name = identity(text.file)
        users = {identity(analysis.text.file): analysis.text for analysis in self._including(name)}
        for other, analysis in list(self.analyses.items()):
            if analysis.kind == TEST and other in self.opened and other != name:
                cases = analysis.cases
                # A test without a readable topology may become readable with any of them.
                if cases is None or identity(str(cases.topology)) == name or name in users:
                    users[other] = self.opened[other]
        if not users and kind_of(text.file, text.text) == PART:
            users = {identity(user.file): user for user in self.including(text.file, beside(text.file))}
        return [self.opened.get(other, user) for other, user in users.items() if other != name]

    def including(self, part: str, files: list[str]) -> list[Text]:
        """Return the topologies among some files that include a part by its name or through another part."""
        parts, read = {os.path.basename(part)}, dict[str, Text]()
        for file in files:
            with suppress(StreamkitError):
                read[file] = self.texts.get(file, self.encoding)
        kinds = {file: kind_of(file, text.text) for file, text in read.items()}

        def naming(kind: str) -> list[str]:
            return [file for file in read if kinds[file] == kind and any(word in read[file].text for word in parts)]

        while more := set(map(os.path.basename, naming(PART))) - parts:
            parts |= more
        return [read[file] for file in naming(TOPOLOGY)]

    # -- Analyses, in the worker's thread ------------------------------------------------------------------------------

    def _analyse(self, text: Text, cancelled: Callable[[], bool]) -> Analysis | None:
        try:
            return analyse(text, self.texts, self.environment(), self.options.lint, cancelled)
        except Exception as error:
            # Requests for this text must not wait for an analysis that never ends.
            logger.exception("the analysis of %s failed", text.file)
            message = f"This file could not be analysed ({type(error).__name__}); the log of the server says more"
            return Analysis(
                text, kind_of(text.file, text.text), marks=[Mark(Problem(Position(text.file, 1, 1), message))]
            )

    def _done(self, analysis: Analysis) -> None:
        name = identity(analysis.text.file)
        self.analyses[name] = analysis
        if analysis.plan is not None:
            self.good[name] = analysis
        files = {identity(mark.problem.position.file) for mark in analysis.marks}
        before = self._published.get(name, set())
        self._published[name] = files
        try:
            for file in sorted({name, *files, *before}):
                self._send(file)
        finally:  # requests wait for this
            self._analysed(self.uri(analysis.text.file), analysis.text.version)

    def _send(self, file: str) -> None:
        """Publish the problems of a file from all analyses, each once."""
        marks = dict.fromkeys(
            mark
            for analysis in list(self.analyses.values())
            for mark in analysis.marks
            if identity(mark.problem.position.file) == file
        )
        try:
            text = self.texts.get(file, self.encoding)
        except StreamkitError:
            text = Text(file, "", None, self.encoding)
        own = self.analyses.get(file)
        version = own.text.version if own is not None else text.version
        shown = own.text if own is not None else text
        self._publish(Published(self.uri(file), version, [self.diagnostic(mark, shown) for mark in marks]))

    def diagnostic(self, mark: Mark, text: Text) -> lsp.Diagnostic:
        """Return a problem as the protocol has it."""
        place, related = mark.problem.position, list[lsp.DiagnosticRelatedInformation]()
        within = place.within
        while within is not None:
            related.append(self._related(within.words, within.place))
            within = within.place.within
        return lsp.Diagnostic(
            range=text.word(place),
            message=mark.problem.message,
            severity=_SEVERITIES[mark.severity],
            code=mark.code,
            source=SOURCE,
            related_information=related or None,
        )

    def _related(self, words: str, place: Position) -> lsp.DiagnosticRelatedInformation:
        at = lsp.Position(max(place.line - 1, 0), max(place.column - 1, 0))
        return lsp.DiagnosticRelatedInformation(lsp.Location(self.uri(place.file), lsp.Range(at, at)), words)


class _Worker:
    """A thread that analyses the newest version of each file once it has not changed for `pause_s`, and gives up older versions.

    done: called in the thread with each finished analysis.
    """

    def __init__(
        self,
        analyse: Callable[[Text, Callable[[], bool]], Analysis | None],
        done: Callable[[Analysis], None],
        pause_s: float,
    ):
        self.pause_s = pause_s
        self._analyse = analyse
        self._done = done
        self._changed = threading.Condition()
        self._waiting: dict[str, tuple[Text, float]] = {}
        """By file: its newest text, and when its analysis may begin (monotonic clock)."""
        self._uncollected = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="analysis", daemon=True)
        self._thread.start()

    def submit(self, text: Text, now: bool = False) -> None:
        """Analyse a text in place of an older version of it that still waits or is being analysed."""
        with self._changed:
            self._waiting[text.file] = (text, time.monotonic() + (0.0 if now else self.pause_s))
            self._changed.notify_all()

    def forget(self, file: str) -> None:
        """Drop the waiting text of a closed file."""
        with self._changed:
            self._waiting.pop(file, None)

    def close(self) -> None:
        """Stop after the analysis that is running."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _next(self) -> Text | None:
        """Wait for the text that is due first, and return it; None at the end."""
        with self._changed:
            while not self._is_closed:
                file, (text, due) = min(
                    self._waiting.items(), key=lambda item: item[1][1], default=("", (None, float("inf")))
                )
                remaining = due - time.monotonic()
                if text is not None and remaining <= 0:
                    del self._waiting[file]
                    return text
                self._changed.wait(None if text is None else remaining)
        return None

    def _collect(self) -> None:
        """Collect garbage in a pause: automatically, it would come while an analysis makes its many objects.

        An analysis itself leaves no circles of objects behind; the tracebacks of its errors do.
        """
        self._uncollected += 1
        with self._changed:
            goes_on = self._changed.wait_for(lambda: self._waiting or self._is_closed, _IDLE_S)
        if not goes_on or self._uncollected >= _MOST_GARBAGE:
            gc.collect()
            self._uncollected = 0

    def _run(self) -> None:
        while (text := self._next()) is not None:
            newest = text

            def is_old(current: Text = newest) -> bool:
                return self._is_closed or current.file in self._waiting

            try:
                analysis = self._analyse(text, is_old)
                if analysis is not None:
                    self._done(analysis)
            except Exception:
                # One text must not end the analysis of all later ones.
                logger.exception("the analysis of %s failed", text.file)
            self._collect()


def path_of(uri: str) -> str:
    """Return the path of a `file:` uri; other uris stand for themselves.

    >>> path_of("file:///a%20b.yaml"), path_of("untitled:Untitled-1")
    ('/a b.yaml', 'untitled:Untitled-1')
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    return unquote(parts.path) if parts.scheme == "file" and parts.path else uri


def uri_of(file: str) -> str:
    """Return the `file:` uri of a path."""
    return Path(os.path.abspath(file)).as_uri()


def identity(file: str) -> str:
    """Return the real path of a file, by which open files are known."""
    return os.path.realpath(file) if "\0" not in file else file
