"""How long a call of `enrich` may take with its repetitions, in milliseconds."""

from __future__ import annotations

LONGEST_BACKOFF = 30_000
"""The longest time before a repetition."""
POLL_INTERVAL = 300_000
"""max.poll.interval.ms where it is not set."""


def backoff_before(attempt: int, backoff: int) -> int:
    """Return the time before a repetition: `backoff` before the first one (attempt 0), then twice as long each time.

    >>> backoff_before(0, 100), backoff_before(3, 100), backoff_before(10**9, 100)
    (100, 800, 30000)
    """
    return min(backoff << min(attempt, 40), LONGEST_BACKOFF)


def longest_call(timeout: int, retries: int, backoff: int) -> int:
    """Return the time after which a call has its last answer.

    >>> longest_call(2000, 0, 100), longest_call(2000, 2, 100)
    (2000, 6300)
    """
    growing = min(retries, 41)
    pauses = sum(backoff_before(attempt, backoff) for attempt in range(growing))
    return (retries + 1) * timeout + pauses + (retries - growing) * min(backoff << 40, LONGEST_BACKOFF)
