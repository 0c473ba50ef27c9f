"""Threads, locks and clocks of a simulation: one thread at a time runs, which one and for how long is drawn from a seed.

Each simulated thread is a greenlet. It gives up its turn at a lock, an event, a sleep or a request to the log, and between any
two statements of the modules that `instrument` loads. The clock is virtual: it advances a little at each turn, and to the next
deadline when every thread waits.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import sys
import threading as real_threading
import time as real_time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from heapq import heappop, heappush
from importlib.util import spec_from_file_location
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import greenlet

from tests.simulation.mutations import Mutation

EPOCH_S = 1_700_000_000
"""The time of day at which each simulation begins."""
NEVER = float("inf")
_TURN_S = 0.0002
"""The longest virtual time of a usual turn."""
_LONGEST_TURN = 400
"""The most statements of a turn."""
_LONGEST_PAUSE_S = 8.0
"""The longest time for which a machine that is busy leaves a thread without a turn."""


class Owner:
    """A process of the simulation: its threads run, are stopped, or are gone; its network may be cut."""

    def __init__(self, name: str):
        self.name = name
        self.stopped = False
        self.dead = False
        self.cut = False


class Waiting(dict["Thread", Callable[[], bool]]):
    """The threads that wait for something, such as a lock, and the condition of each, looked at when `tell` is called."""

    def tell(self) -> None:
        """Let those whose condition is met run."""
        for thread in [thread for thread, until in self.items() if until()]:
            _scheduler.wake(thread)


class Scheduler:
    """Runs simulated threads until `done`, or until nothing can happen any more."""

    def __init__(self, seed: int):
        self.random = Random(seed)
        self.now = 0.0
        self.booted = 0.0
        """When the machine was started."""
        self.turns = 0
        self.threads: dict[Thread, None] = {}
        self.dead: list[Thread] = []
        """Threads of killed processes: kept, because a greenlet that is freed runs its `finally` blocks."""
        self._ready: list[Thread] = []
        self._timers: list[tuple[float, int, Thread]] = []
        """A heap of deadlines; one whose number is not the last one of its thread is over."""
        self._timer = 0
        self._asking = Waiting()
        """Threads whose condition nobody tells of: it is looked at before each turn."""
        self._stopped: list[Thread] = []
        self.current: Thread | None = None
        self.pauses = 0.0
        """The chance that a turn ends with a long pause of its thread."""
        self._hub = greenlet.getcurrent()

    def run(self, done: Callable[[], bool], until: float, turns: int) -> bool:
        """Run until `done()`; return False if the clock reaches `until` before, or after so many turns."""
        ready, timers = self._ready, self._timers
        while not done():
            if self.now >= until or self.turns >= turns:
                return False
            while timers and timers[0][0] <= self.now:
                _, number, thread = heappop(timers)
                if thread.timer == number:
                    self.wake(thread)
            if self._asking:
                self._asking.tell()
            if self._stopped:
                ready += [thread for thread in self._stopped if not thread.owner.stopped]
                self._stopped = [thread for thread in self._stopped if thread.owner.stopped]
            if not ready:
                self.now = min(timers[0][0] if timers else until, until)
                continue
            place = int(self.random.random() * len(ready))
            thread, ready[place] = ready[place], ready[-1]
            ready.pop()
            if thread.owner.stopped:
                self._stopped.append(thread)
            elif not thread.owner.dead:
                self._turn(thread)
        return True

    def add(self, thread: Thread) -> None:
        """Let a new thread run."""
        self.threads[thread] = None
        self._ready.append(thread)

    def wake(self, thread: Thread) -> None:
        """Let a thread run that waits."""
        thread.timer = 0
        if thread.waits is not None:
            del thread.waits[thread]
            thread.waits = None
        if not thread.owner.dead:
            self._ready.append(thread)

    def kill(self, owner: Owner) -> None:
        """Let the threads of a process never run again."""
        owner.dead = True
        self.dead += [thread for thread in self.threads if thread.owner.dead]
        self.threads = {thread: None for thread in self.threads if not thread.owner.dead}

    def _turn(self, thread: Thread) -> None:
        global _left
        self.turns += 1
        self.now += self.random.random() * _TURN_S
        _left = int(self.random.random() * _LONGEST_TURN)
        self.current = thread
        thread.greenlet.switch()
        self.current = None
        if thread.ended:
            del self.threads[thread]
            thread.end.tell()

    def give_up(
        self, until: Callable[[], bool] | None = None, deadline: float = 0.0, waiting: Waiting | None = None
    ) -> bool:
        """Let others run until a condition or a deadline, by default for one turn; return whether the condition is met.

        waiting: where those wait who are told when it may be met.
        """
        thread = self.current
        if thread is None:
            return until is None or until()
        if until() if until is not None else deadline <= self.now:
            self._ready.append(thread)
        else:
            if until is not None:
                thread.waits = self._asking if waiting is None else waiting
                thread.waits[thread] = until
            if deadline != NEVER:
                self._timer += 1
                thread.timer = self._timer
                heappush(self._timers, (deadline, self._timer, thread))
        self._hub.switch()
        return until is None or until()

    def interrupt(self) -> None:
        """End the turn of the thread that runs."""
        if self.current is not None:
            if self.random.random() < self.pauses:
                self.pause()
            else:
                self.give_up()

    def pause(self) -> None:
        """Leave the thread that runs without a turn for some time."""
        self.give_up(None, self.now + self.random.random() ** 2 * _LONGEST_PAUSE_S)

    def sleep(self, seconds: float) -> None:
        self.give_up(None, self.now + max(0.0, seconds))


_scheduler: Scheduler = Scheduler(0)
_left = 0
"""How many statements the present turn still has."""


sites: list[str] = []
"""The instrumented functions, by their number."""
_SITE_PAUSE = 0.1
_paused: Collection[int] = ()


def pause_in(places: Collection[int]) -> None:
    """Let threads pause often in some functions, by their numbers in `sites`."""
    global _paused
    _paused = places


def statement(site: int = -1) -> None:
    """Count a statement of an instrumented function; after some, drawn at random, others run."""
    global _left
    _left -= 1
    if _left < 0 or site in _paused:
        if site in _paused and _scheduler.random.random() < _SITE_PAUSE:
            _scheduler.pause()
        elif _left < 0:
            _scheduler.interrupt()


def begin(seed: int) -> Scheduler:
    """Make the scheduler of a simulation; one at a time exists in a process."""
    global _scheduler
    _scheduler = Scheduler(seed)
    return _scheduler


def current() -> Scheduler:
    return _scheduler


# What takes the place of the module `threading`.


class Thread:
    """A simulated thread."""

    main_owner = Owner("main")

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Sequence[object] = (),
        kwargs: dict[str, object] | None = None,
        *,
        daemon: bool | None = None,
        owner: Owner | None = None,
    ):
        self.name = name or "thread"
        self.daemon = daemon
        self.ident: int | None = None
        self.ended = False
        self.end = Waiting()
        self.waits: Waiting | None = None
        self.timer = 0
        running = _scheduler.current
        self.owner = owner or (running.owner if running else Thread.main_owner)
        self._call = lambda: target and target(*args, **(kwargs or {}))
        self.greenlet = greenlet.greenlet(self._run, _scheduler._hub)

    def start(self) -> None:
        self.ident = id(self)
        _scheduler.add(self)
        _scheduler.give_up()

    def _run(self) -> None:
        try:
            self._call()
        finally:
            self.ended = True

    def join(self, timeout: float | None = None) -> None:
        deadline = NEVER if timeout is None else _scheduler.now + max(0.0, timeout)
        _scheduler.give_up(lambda: self.ended, deadline, self.end)

    def is_alive(self) -> bool:
        return self.ident is not None and not self.ended


class Lock:
    def __init__(self) -> None:
        self._owner: object = None
        self._depth = 0
        self._waiting = Waiting()

    reentrant = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = _scheduler.current or "hub"
        if self.reentrant and self._owner is me:
            self._depth += 1
            return True
        statement()
        if self._owner is not None:
            if not blocking:
                return False
            deadline = NEVER if timeout < 0 else _scheduler.now + timeout
            while self._owner is not None:
                if not _scheduler.give_up(lambda: self._owner is None, deadline, self._waiting):
                    assert me != "hub", "a lock is taken that a waiting thread has"
                    if _scheduler.now >= deadline:
                        return False
        self._owner, self._depth = me, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            if self._waiting:
                self._waiting.tell()

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class RLock(Lock):
    reentrant = True


class Condition:
    def __init__(self, lock: Lock | None = None):
        self._lock = lock or RLock()
        self._told: list[list[bool]] = []
        self._waiting = Waiting()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        told = [False]
        self._told.append(told)
        depth, self._lock._depth = self._lock._depth, 1
        self._lock.release()
        deadline = NEVER if timeout is None else _scheduler.now + max(0.0, timeout)
        _scheduler.give_up(lambda: told[0], deadline, self._waiting)
        self._lock.acquire()
        self._lock._depth = depth
        if not told[0]:
            self._told.remove(told)
        return told[0]

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        deadline = NEVER if timeout is None else _scheduler.now + timeout
        while not predicate():
            if _scheduler.now >= deadline:
                return False
            self.wait(None if timeout is None else deadline - _scheduler.now)
        return True

    def notify(self, n: int = 1) -> None:
        for told in self._told[:n]:
            told[0] = True
        del self._told[:n]
        self._waiting.tell()

    def notify_all(self) -> None:
        self.notify(len(self._told))


class Event:
    def __init__(self) -> None:
        self._set = False
        self._waiting = Waiting()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._waiting.tell()
        statement()

    def clear(self) -> None:
        self._set = False
        statement()

    def wait(self, timeout: float | None = None) -> bool:
        deadline = NEVER if timeout is None else _scheduler.now + max(0.0, timeout)
        return _scheduler.give_up(self.is_set, deadline, self._waiting)


class _Future(Future[Any]):
    """What a worker returns; other threads run while one waits for it."""

    def __init__(self, thread: Thread):
        super().__init__()
        self.thread = thread

    def result(self, timeout: float | None = None) -> Any:
        self.thread.join(timeout)
        return super().result(0)


def wait(futures: Iterable[_Future]) -> None:
    for future in futures:
        future.thread.join()


class Executor:
    """Runs each call in a thread of its own, as if there were always a worker free; one worker has one call after the other."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = ""):
        self._alone = max_workers == 1
        self._name = thread_name_prefix
        self._calls: list[_Future] = []

    def submit(self, function: Callable[..., object], *args: object, **options: object) -> Future[Any]:
        before = [*self._calls] if self._alone else []

        def run() -> None:
            wait(before)
            try:
                future.set_result(function(*args, **options))
            except Exception as error:
                future.set_exception(error)

        future = _Future(Thread(target=run, name=self._name))
        self._calls = [*(call for call in self._calls if not call.done()), future]
        future.thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if wait:
            for call in self._calls:
                call.thread.join()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()


def _names() -> dict[str, ModuleType]:
    """Return the modules that take the place of `threading`, `time` and `concurrent.futures`."""
    threads = ModuleType("threading")
    threads.__dict__.update(real_threading.__dict__)
    threads.__dict__.update(Thread=Thread, Lock=Lock, RLock=RLock, Condition=Condition, Event=Event)
    threads.__dict__["current_thread"] = lambda: _scheduler.current or SimpleNamespace(name="main", ident=1)
    threads.__dict__["get_ident"] = lambda: id(_scheduler.current)
    clock = ModuleType("time")
    clock.__dict__.update(real_time.__dict__)
    clock.__dict__.update(
        monotonic=lambda: _scheduler.now,
        clock_gettime=lambda clock: _scheduler.now - _scheduler.booted,
        perf_counter=lambda: _scheduler.now,
        monotonic_ns=lambda: int(_scheduler.now * 1e9),
        perf_counter_ns=lambda: int(_scheduler.now * 1e9),
        time=lambda: EPOCH_S + _scheduler.now,
        time_ns=lambda: int((EPOCH_S + _scheduler.now) * 1e9),
        sleep=lambda seconds: _scheduler.sleep(seconds),
    )
    import concurrent.futures

    pools = ModuleType("concurrent.futures")
    pools.__dict__.update(concurrent.futures.__dict__)
    pools.__dict__.update(ThreadPoolExecutor=Executor, wait=wait)
    return {"threading": threads, "time": clock, "concurrent.futures": pools}


# How modules are loaded.


class _Interrupting(ast.NodeTransformer):
    """Puts a call before each statement of a function, at which others may run."""

    def __init__(self, module: str):
        self._module = module
        self._site = -1

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outside, self._site = self._site, len(sites)
        sites.append(f"{self._module}.{node.name}")
        found = self.generic_visit(node)
        self._site = outside
        return found

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        inside = isinstance(node, (ast.FunctionDef, ast.If, ast.For, ast.While, ast.With, ast.Try, ast.ExceptHandler))
        for field in ("body", "orelse", "finalbody") if inside else ():
            lines = getattr(node, field, [])
            if lines:
                new = [each for line in lines for each in ((self._call(line), line) if _is_shared(line) else (line,))]
                setattr(node, field, new)
        return node

    def _call(self, line: ast.stmt) -> ast.stmt:
        call = ast.Expr(ast.Call(ast.Name("__statement__", ast.Load()), [ast.Constant(self._site)], []))
        return ast.fix_missing_locations(ast.copy_location(call, line))


def _is_shared(line: ast.stmt) -> bool:
    """Return whether a statement reads or writes what other threads can see; those below it are looked at by themselves."""
    heads = [
        part
        for name, found in ast.iter_fields(line)
        if name not in ("body", "orelse", "finalbody", "handlers")
        for part in (found if isinstance(found, list) else [found])
    ]
    return not isinstance(line, ast.FunctionDef) and any(
        isinstance(part, (ast.Call, ast.Attribute, ast.Subscript))
        for head in heads
        if isinstance(head, ast.AST)
        for part in ast.walk(head)
    )


class _Loader(importlib.machinery.SourceFileLoader):
    mutations: Sequence[Mutation] = ()
    interrupts = True

    def get_code(self, fullname: str) -> Any:
        text = Path(self.path).read_text(encoding="utf-8")
        for change in self.mutations:
            if change.module != fullname:
                continue
            assert text.count(change.text) == 1, f"the text of a mutation is not in {fullname} once: {change.text}"
            text = text.replace(change.text, change.instead)
        tree = ast.parse(text)
        return compile(_Interrupting(fullname).visit(tree) if self.interrupts else tree, self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__statement__"] = statement
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, packages: Sequence[str], mutations: Sequence[Mutation]):
        self._packages = tuple(packages)
        self._mutations = mutations

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        interrupts = name.startswith(self._packages)
        if not interrupts and all(change.module != name for change in self._mutations):
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        if found is None or found.origin is None or found.submodule_search_locations is not None:
            return None
        loader = _Loader(name, found.origin)
        loader.mutations, loader.interrupts = self._mutations, interrupts
        return spec_from_file_location(name, found.origin, loader=loader)


@contextmanager
def instrument(packages: Sequence[str], mutations: Sequence[Mutation] = ()) -> Iterator[None]:
    """Import modules inside this block with simulated threads and clocks; those of `packages` are interrupted between statements.

    `mutations`: the changes of a mistake to put into them.
    """
    finder, names = _Finder(packages, mutations), _names()
    kept = {name: sys.modules[name] for name in names}
    sys.meta_path.insert(0, finder)
    sys.modules.update(names)
    import concurrent

    concurrent.futures = names["concurrent.futures"]  # type: ignore[attr-defined]
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.modules.update(kept)
        concurrent.futures = kept["concurrent.futures"]  # type: ignore[attr-defined]
