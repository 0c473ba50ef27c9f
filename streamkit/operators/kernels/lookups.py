"""`enrich`: calls a function for the records of a run in parallel, and joins the results with the records in order."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Hashable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeAlias, TypeVar

from streamkit import rounds
from streamkit.errors import (
    DeserializationError,
    EventLoopError,
    ProcessingError,
    RetriableError,
    StateError,
    StoppedError,
    StreamkitError,
)
from streamkit.operators.core.parsed_values import backoff_before, longest_call
from streamkit.operators.kernels.batch_calls import results_of
from streamkit.operators.kernels.processor_calls import ProcessorContext, UserCode
from streamkit.operators.kernels.replays import Fail, Failed, HeldRecord, HoldingStep, Replays
from streamkit.record import FullContext, Key, Operand, Value
from streamkit.suggestions import number_of
from streamkit.user_metrics import UserCounter, UserTimer

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import TaskServices


HELD_FOR_EACH_CALL = 16
"""The number of records held back per concurrent call, which is also the maximum number of rounds of calls to wait for."""
STOP_SECONDS = 5.0
"""How long calls may continue after the application has been stopped."""
LARGEST_KEY = 20_000
"""The maximum number of types, values and lengths in the key of an argument, which is twice the number of its parts."""

_RESERVED = (ProcessingError, DeserializationError, StateError, StoppedError)
"""Errors that no handler handles, because they do not concern a record unless the user's function raises them."""
_PLAIN = frozenset((str, int, bytes, bool, type(None)))

JoinForward: TypeAlias = Callable[[Key, Value, Value, int, FullContext], None]
"""(key, value, result, timestamp, context): joins a result with its record, and forwards the joined record."""


class LookupOptions(NamedTuple):
    """How functions are called; times in milliseconds. batch: the number of arguments in a call's list, 0 for a single argument without a list."""

    concurrency: int
    timeout: int
    retries: int
    backoff: int
    batch: int
    cache_size: int
    cache_ttl: int | None


def rounds_of_calls(options: LookupOptions, poll_interval_ms: int) -> int:
    """Return how many rounds of calls the thread may wait for at once.

    Even if every call takes its maximum time, the rounds take at most half of max.poll.interval.ms, after which the thread would lose its tasks.
    """
    longest = longest_call(options.timeout, options.retries, options.backoff)
    return max(1, min(HELD_FOR_EACH_CALL, poll_interval_ms // 2 // longest))


class LookupCache:
    """An LRU cache of results by argument, each valid for `ttl` milliseconds of the machine's clock."""

    def __init__(self, size: int, ttl: int | None):
        self._size = size
        self._ttl = None if ttl is None else ttl / 1000
        self._rows: OrderedDict[Hashable, tuple[Value, float]] = OrderedDict()

    def get(self, key: Hashable) -> tuple[Value] | None:
        """Return a valid result in a tuple."""
        row = self._rows.get(key)
        if row is None:
            return None
        if self._ttl is not None and time.monotonic() - row[1] >= self._ttl:
            del self._rows[key]
            return None
        self._rows.move_to_end(key)
        return (row[0],)

    def put(self, key: Hashable, result: Value) -> None:
        """Add a result."""
        self._rows[key] = result, time.monotonic()
        self._rows.move_to_end(key)
        if len(self._rows) > self._size:
            self._rows.popitem(last=False)


class Lookup(UserCode):
    """Calls the user's function, or an object of the user's class, on an event loop or in a thread."""

    method = "__call__"
    parameters = ("argument",)

    def __init__(
        self,
        target: Callable[..., Value],
        context: ProcessorContext,
        options: LookupOptions,
        stopping: Callable[[], bool],
    ):
        super().__init__(target, context)
        self._arguments = ()
        self._options = options
        self._stopping = stopping
        self._grace = min(options.timeout / 1000, STOP_SECONDS)
        self.place = context.place
        self.loop: EventLoop | None = None
        self._threads: DaemonThreads | None = None
        self._is_async = False
        self._calls = context.step_metric(UserCounter, "enrich", "calls")
        self._failures = context.step_metric(UserCounter, "enrich", "failures")
        self._retries = context.step_metric(UserCounter, "enrich", "retries")
        self._time = context.step_metric(UserTimer, "enrich", "call")

    def init(self) -> None:
        """Acquire the thread's event loop, and create the object of a class and its threads."""
        self.loop = acquire()
        super().init()
        # A function, or an object with an async `__call__`.
        called = (self._function, inspect.getattr_static(type(self._function), "__call__", None))
        self._is_async = any(map(inspect.iscoroutinefunction, called))
        if not self._is_async:
            self._threads = DaemonThreads(self._options.concurrency, f"{self.name}-calls")

    def close(self) -> None:
        """Close the object, end the threads and release the loop."""
        loop = self.loop
        if loop is None:
            return
        try:
            super().close()
        finally:
            self.loop = None
            if self._threads is not None:
                self._threads.shutdown()
            release(loop)

    def finish(self, result: object) -> None:
        """Wait for an async `init` or `close`."""
        if inspect.iscoroutine(result) and self.loop is not None:
            self.loop.run(result, self._stopping, self._grace)

    def run(self, arguments: Sequence[Value]) -> list[Value | Failed]:
        """Call the function for all arguments, and return the results. Raises StoppedError, and ProcessingError if the loop has ended."""
        assert self.loop is not None
        try:
            return self.loop.run(self.all(arguments), self._stopping, self._grace)
        except (ProcessingError, StoppedError) as error:
            raise type(error)(f"{self.place}: {self.name}: {error}") from error

    async def all(self, arguments: Sequence[Value]) -> list[Value | Failed]:
        """Call the function for all arguments, at most `concurrency` at once, and return the results in order."""
        results: list[Value | Failed] = [None] * len(arguments)
        size = self._options.batch or 1
        places = iter(range(0, len(arguments), size))
        workers = min(self._options.concurrency, -(-len(arguments) // size))
        await asyncio.gather(*(self._work(places, arguments, results) for _ in range(workers)))
        return results

    async def _work(self, places: Iterator[int], arguments: Sequence[Value], results: list[Value | Failed]) -> None:
        batch = self._options.batch
        for start in places:
            if not batch:
                results[start] = await self._answer(arguments[start])
                continue
            part = list(arguments[start : start + batch])
            results[start : start + len(part)] = self._each(await self._answer(part), len(part))

    def _each(self, answer: Value | Failed, count: int) -> list[Value | Failed]:
        """Return the results of a call with a list."""
        if isinstance(answer, Failed):
            return [answer] * count
        try:
            results = results_of(answer)
            if len(results) != count:
                message = f"{self.name} returned {number_of(len(results), 'result')} for {number_of(count, 'argument')}; expected one for each, in their order"
                raise StreamkitError(message)
        except Exception as error:
            # This includes exceptions that a generator raises.
            return [Failed(error)] * count
        return [Failed(result) if isinstance(result, Exception) else result for result in results]

    async def _answer(self, argument: Value) -> Value | Failed:
        """Return the result of a call, after retries, or its failure."""
        retries = self._options.retries
        for attempt in range(retries + 1):
            answer = await self._attempt(argument)
            if not isinstance(answer, Failed) or not isinstance(answer.error, RetriableError) or attempt == retries:
                break
            self._retries.add(1)
            await asyncio.sleep(backoff_before(attempt, self._options.backoff) / 1000)
        if isinstance(answer, Failed):
            self._failures.add(1)
        return answer

    async def _attempt(self, argument: Value) -> Value | Failed:
        self._calls.add(1)
        began = time.perf_counter()
        limit = asyncio.timeout(self._options.timeout / 1000)
        try:
            async with limit:
                # In a separate task, so that a function that cancels its task cancels only this call.
                return await asyncio.ensure_future(self._called(argument))
        except Exception as error:
            if limit.expired():
                late = StreamkitError(f"{self.name} did not answer within {self._options.timeout} ms")
                late.__cause__ = error
                return Failed(late)
            return Failed(error)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return Failed(StreamkitError(f"{self.name} was cancelled"))
        finally:
            self._time.record(time.perf_counter() - began)

    async def _called(self, argument: Value) -> Value:
        try:
            answer = await (self._function(argument) if self._is_async else self._in_thread(argument))
            if isinstance(answer, AsyncGenerator) or (isinstance(answer, Generator) and not self._options.batch):
                raise StreamkitError(f"{self.name} gave a generator; expected the result: `return` in place of `yield`")
            return answer
        except _RESERVED as error:
            raise StreamkitError(f"{self.name} raised {type(error).__name__}: {error}") from error
        except (SystemExit, KeyboardInterrupt) as error:
            # Outside of a task, these exceptions would end the loop.
            raise StreamkitError(f"{self.name} raised {type(error).__name__}") from error

    async def _in_thread(self, argument: Value) -> Value:
        assert self._threads is not None
        future = self._threads.submit(self._function, argument)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._threads.abandon(future)
            raise


class LookupStep(HoldingStep):
    """Holds records back, calls the function for them, and forwards each record joined with its result.

    steps: the node's index, the functions to join and forward and to fail, and whether records are held back one by one.
    """

    def __init__(
        self,
        rt: TaskServices,
        user: tuple[Callable[..., Value], ProcessorContext],
        options: LookupOptions,
        replays: Replays,
        steps: tuple[int, JoinForward, Fail, bool],
    ):
        node, forward, fail, alone = steps
        size = rounds_of_calls(options, rt.poll_interval_ms) * options.concurrency * (options.batch or 1)
        super().__init__(replays, node, 0 if alone else size, fail)
        target, context = user
        self._join_forward = forward
        self._longest_wait = rt.poll_interval_ms / 1000 / 4
        self._cache = LookupCache(options.cache_size, options.cache_ttl) if options.cache_size else None
        self._lookup = Lookup(target, context, options, rt.stopping)
        self._hits = context.step_metric(UserCounter, "enrich", "cache_hits")
        self._misses = context.step_metric(UserCounter, "enrich", "cache_misses")

    def init(self) -> None:
        """Acquire the event loop, and create the object of a class."""
        self.report(self._lookup.place)
        self._lookup.init()

    def close(self) -> None:
        """Close the object, and release the event loop."""
        self.clear()
        self._lookup.close()

    def results(self, records: Sequence[HeldRecord]) -> Sequence[Value | Failed]:
        arguments = [record.argument for record in records]
        began = time.monotonic()
        try:
            if self._cache is None:
                return self._lookup.run(arguments)
            return self._through_cache(self._cache, arguments)
        finally:
            rounds.count_wait(time.monotonic() - began, self._longest_wait)

    def _through_cache(self, cache: LookupCache, arguments: list[Value]) -> list[Value | Failed]:
        """Return results. Equal arguments are looked up once; arguments without a key are looked up one by one."""
        keys: list[Hashable] = [cache_key(argument) or number for number, argument in enumerate(arguments)]
        results: dict[Hashable, Value | Failed] = {}
        missing: dict[Hashable, Value] = {}
        for key, argument in zip(keys, arguments, strict=True):
            if key in results or key in missing:
                continue
            known = cache.get(key)
            if known is None:
                missing[key] = argument
            else:
                results[key] = known[0]
        self._misses.add(len(missing))
        self._hits.add(len(keys) - len(missing))
        if missing:
            for key, answer in zip(missing, self._lookup.run(list(missing.values())), strict=True):
                results[key] = answer
                if not isinstance(answer, Failed) and type(key) is tuple:
                    cache.put(key, answer)
        return [results[key] for key in keys]

    def deliver(self, record: HeldRecord, result: Value) -> None:
        self._join_forward(record.key, record.value, result, record.timestamp, record.context)


def cache_key(argument: Operand) -> tuple[object, ...] | None:
    """Return a key that is the same for arguments of equal value and type; None for arguments that are not cached.

    Arguments are not cached if they have more than LARGEST_KEY / 2 parts, or a part that is neither of JSON's types nor a tuple
    nor bytes, because neither equality nor text is sure to distinguish such objects.

    >>> cache_key(1) == cache_key(True), cache_key({"a": 1}) == cache_key({"a": 1})
    (False, True)
    """
    parts: list[object] = []
    open_ = [argument]
    # A loop handles values of any depth; the bound ends it for values that contain themselves.
    while open_:
        part = open_.pop()
        kind = type(part)
        parts.append(kind)
        if kind in _PLAIN:
            parts.append(part)
        elif kind is float:
            # The text distinguishes 0.0 from -0.0, and is the same for all NaN.
            parts.append(repr(part))
        elif kind is dict or kind is list or kind is tuple:
            parts.append(len(part))
            open_.extend(itertools.chain.from_iterable(part.items()) if kind is dict else part)
            if len(parts) + len(open_) > LARGEST_KEY:
                return None
        else:
            return None
    return tuple(parts)


# Threads for functions without `async`. A function that never returns blocks neither other calls nor the end of the process.

P = ParamSpec("P")
T = TypeVar("T")

_Work: TypeAlias = Callable[[], bool]
"""Runs a call, and returns whether its thread continues."""


class DaemonThreads(Executor):
    """Up to `size` daemon threads; ThreadPoolExecutor would wait for busy threads at the end of the process."""

    def __init__(self, size: int, name: str):
        self._size = size
        self._name = name
        self._numbers = itertools.count(1)
        self._threads = 0
        """The number of threads that take calls, without threads whose call was abandoned."""
        self._spare = 0
        """The number of idle threads that no call has reserved; if negative, the number of calls that wait for a thread."""
        self._running: set[object] = set()
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in one of the threads."""
        future: Future[T] = Future()

        def work() -> bool:
            with self._lock:
                if not future.set_running_or_notify_cancel():
                    return True
                self._running.add(future)
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            with self._lock:
                goes_on = future in self._running
                self._running.discard(future)
            return goes_on

        with self._lock:
            self._queue.put(work)
            # An idle thread is reserved here, not when it wakes, because all calls of a burst would count on the same thread.
            if self._spare <= 0 and self._threads < self._size:
                self._start()
            else:
                self._spare -= 1
        return future

    def abandon(self, future: Future[T]) -> None:
        """Give a call up: it never starts, or its thread ends when the function returns, and another thread replaces it."""
        if future.cancel():
            return
        with self._lock:
            if future not in self._running:
                return
            self._running.discard(future)
            self._threads -= 1
            if self._spare < 0:
                self._spare += 1
                self._start()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End idle threads now, and busy ones when their functions return."""
        with self._lock:
            for _ in range(self._threads):
                self._queue.put(None)

    def _start(self) -> None:
        self._threads += 1
        threading.Thread(target=self._run, name=f"{self._name}-{next(self._numbers)}", daemon=True).start()

    def _run(self) -> None:
        while True:
            work = self._queue.get()
            if work is None or not work():
                return
            with self._lock:
                self._spare += 1


# One event loop per stream thread, in a separate thread, for the coroutines of the user's functions.

LOOK_SECONDS = 0.05
"""How often a waiting thread checks whether the loop still runs and whether the application is stopping."""
RESPONSE_SECONDS = 30.0
"""The time without a response after which the loop counts as blocked by a function."""
END_SECONDS = 5.0
"""How long a loop may take to end."""


class EventLoop:
    """An asyncio event loop that runs in a daemon thread until its last user has released it."""

    def __init__(self, name: str):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"{name}-loop", daemon=True)
        self._is_running = True
        self._reason = ""
        self.users = 0
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        except BaseException as error:
            # SystemExit and KeyboardInterrupt in a callback end a loop.
            self._reason = f" ({type(error).__name__}: {error})"
        self._is_running = False
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        with suppress(BaseException):
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        with suppress(RuntimeError):
            self._loop.close()

    def run(self, work: Coroutine[object, object, T], stopping: Callable[[], bool], grace: float) -> T:
        """Run a coroutine; the calling thread waits for its result.

        stopping: returns whether the application is stopping. Raises StoppedError `grace` seconds after the application began to
        stop, and EventLoopError if the loop has ended or is blocked.
        """
        if not self._is_running:
            work.close()
            raise self._dead()
        done = threading.Event()
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.add_done_callback(lambda _: done.set())
        waited_for_stop, silent, beat = 0.0, 0.0, self._beat()
        while not done.wait(LOOK_SECONDS):
            if not self._is_running:
                raise self._dead()
            silent = 0.0 if beat.is_set() else silent + LOOK_SECONDS
            if beat.is_set():
                beat = self._beat()
            if silent > RESPONSE_SECONDS:
                raise EventLoopError(
                    f"the event loop has not responded for {RESPONSE_SECONDS:.0f} s: the function blocks it; await, or "
                    "make it a function without async, which runs in a thread"
                )
            waited_for_stop = waited_for_stop + LOOK_SECONDS if stopping() else 0.0
            if waited_for_stop > grace:
                future.cancel()
                raise StoppedError("stopped while calls were unanswered; the next start repeats them")
        if future.cancelled():
            # Not an error of one record: no handler may drop records whose calls had no answer yet.
            raise EventLoopError("a function cancelled the calls of others") if self._is_running else self._dead()
        return future.result()

    def _beat(self) -> threading.Event:
        """Return an event that the loop sets as soon as it is free."""
        beat = threading.Event()
        try:
            self._loop.call_soon_threadsafe(beat.set)
        except RuntimeError:
            beat.set()
        return beat

    def _dead(self) -> EventLoopError:
        return EventLoopError(
            f"the event loop of the functions has ended{self._reason}: a function stopped or closed it"
        )

    def close(self) -> None:
        """Cancel running coroutines and end the thread. A blocked thread is left behind."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(END_SECONDS)


_of_thread = threading.local()


def acquire() -> EventLoop:
    """Return the current thread's loop. Each call requires a matching call of `release`."""
    loop: EventLoop | None = getattr(_of_thread, "loop", None)
    if loop is None or not loop.users:
        loop = _of_thread.loop = EventLoop(threading.current_thread().name)
    loop.users += 1
    return loop


def release(loop: EventLoop) -> None:
    """Release a loop, which ends when its last user releases it."""
    loop.users -= 1
    if loop.users == 0:
        if getattr(_of_thread, "loop", None) is loop:
            _of_thread.loop = None
        loop.close()
