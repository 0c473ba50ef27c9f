"""Where reading begins without a committed offset: the values of `auto.offset.reset` (AutoOffsetResetStrategy, KIP-1106)."""

from __future__ import annotations

from dataclasses import dataclass

from streamkit import durations
from streamkit.errors import ConfigError

POLICIES = ("earliest", "latest", "none")
BY_DURATION = "by_duration"


@dataclass(frozen=True)
class OffsetReset:
    """A reset policy: one of POLICIES, or BY_DURATION with how far back reading begins, in milliseconds."""

    policy: str = POLICIES[0]
    duration_ms: int = 0


def parse_reset(text: str) -> OffsetReset:
    """Return the policy of a text as the clients have it. Raises ConfigError.

    >>> parse_reset("by_duration:PT1H")
    OffsetReset(policy='by_duration', duration_ms=3600000)
    """
    if text in POLICIES:
        return OffsetReset(text)
    policy, colon, duration = text.partition(":")
    if policy == BY_DURATION and colon and duration[:1] in ("P", "p"):
        try:
            return OffsetReset(BY_DURATION, durations.parse(duration))
        except ConfigError as error:
            raise ConfigError(f"is {text!r}; its duration {error}") from error
    raise ConfigError(
        f"must be earliest, latest, none or {BY_DURATION}:PnDTnHnMn.nS such as by_duration:PT1H, not {text!r}"
    )
