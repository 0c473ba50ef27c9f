"""Dead letters: what failed and why, and their replay."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from starlette.responses import Response

from streamkit.errors import QueryError, StoreUnavailableError, TopicError, UnknownNameError
from streamkit.http.endpoint import Arguments, Endpoint, Parameter, json_response
from streamkit.http.service import Service
from streamkit.http.topic_endpoints import LARGE, SECONDS, reader
from streamkit.runtime.execution.dead_letters import DeadLetter, dead_letter_topics
from streamkit.runtime.operations.dead_letter_replay import Replay, dead_letter_json
from streamkit.runtime.records import RecordJson
from streamkit.serdes.plain import Json

if TYPE_CHECKING:
    from starlette.requests import Request

MOST_LETTERS = 500
LETTERS = 50
MOST_REPLAYED = 1000
"""Letters that one request replays."""
_LIST = (Parameter("limit", f"At most so many letters, at most {MOST_LETTERS}.", "integer", default=LETTERS),)
_REPLAY = (
    Parameter("topic", "The dead-letter topic of one letter; without it all are replayed."),
    Parameter("partition", "Its partition.", "integer"),
    Parameter("offset", "Its offset.", "integer"),
)


def list_dead_letters(service: Service, request: Request) -> Response:
    """Return the last dead letters that were not replayed, and how many there are of which kind."""
    limit = Arguments(request, _LIST).number("limit", LETTERS, 1, MOST_LETTERS)
    plan = service.application.plan
    topics = dead_letter_topics(plan)
    with reader(service):
        try:
            replay = Replay(plan, service.application.transport, topics)
        except TopicError:
            # Nothing has failed, or nothing writes dead letters.
            return json_response({"topics": topics, "letters": [], "kinds": [], "total": 0, "complete": True})
        return json_response({"topics": topics, **_found(replay, RecordJson(plan), limit)})


def _found(replay: Replay, form: RecordJson, limit: int) -> dict[str, Json]:
    deadline = time.monotonic() + SECONDS
    newest: list[DeadLetter] = []
    kinds: Counter[tuple[str, str, str]] = Counter()
    complete = True
    for letter in replay.newest():
        if len(newest) < limit:
            newest.append(letter)
        kinds[letter.error, letter.step, letter.topic or ""] += 1
        if time.monotonic() > deadline:
            complete = False
            break
    return {
        "letters": [_shown(letter, form, replay) for letter in newest],
        "kinds": [
            {"error": error, "step": step, "topic": topic, "count": count}
            for (error, step, topic), count in kinds.most_common(LETTERS)
        ],
        "total": kinds.total(),
        "complete": complete,
    }


def _shown(letter: DeadLetter, form: RecordJson, replay: Replay) -> dict[str, Json]:
    large = [data for data in (letter.key, letter.value) if data is not None and len(data) > LARGE]
    if large:
        letter = replace(letter, key=None, value=None)
    return {**dead_letter_json(letter, form, replay), **({"large": True} if large else {})}


def replay_dead_letters(service: Service, request: Request) -> Response:
    """Write one dead letter back to the topic of its record, or the oldest ones."""
    arguments = Arguments(request, _REPLAY)
    place = arguments.text("topic"), arguments.number("partition", None, 0), arguments.number("offset", None, 0)
    if None in place and place != (None, None, None):
        raise QueryError("topic, partition and offset name one letter together; without all of them all are replayed")
    plan = service.application.plan

    def wanted(letter: DeadLetter) -> bool:
        return place[0] is None or (*letter.place, letter.place_offset) == place

    if not service.replaying.acquire(blocking=False):
        raise StoreUnavailableError("dead letters are being replayed by another request: send it again")
    try:
        with reader(service):
            replay = Replay(plan, service.application.transport, dead_letter_topics(plan))
            most = MOST_REPLAYED if place[0] is None else 1
            count = sum(1 for _ in islice(replay.execute(wanted, most), None))
    except TopicError as error:
        raise QueryError(str(error)) from error
    finally:
        service.replaying.release()
    if place[0] is not None and not count:
        raise UnknownNameError(
            f"there is no dead letter {place[0]}-{place[1]}@{place[2]} to replay: it does not exist, was replayed before, or its "
            "topic no longer exists"
        )
    return json_response({"replayed": count})


ENDPOINTS = (
    Endpoint(
        "/dead-letters",
        "The last dead letters that were not replayed, with their reasons.",
        list_dead_letters,
        _LIST,
        answers={503: "The log does not respond, or too many requests read topics."},
    ),
    Endpoint(
        "/dead-letters/replay",
        f"Write one dead letter back to the topic of its record, or all: at most {MOST_REPLAYED:,} a request.",
        replay_dead_letters,
        _REPLAY,
        method="POST",
        answers={
            400: "The letter is not named completely.",
            404: "There is no such letter to replay.",
            503: "Another request replays letters.",
        },
    ),
)
