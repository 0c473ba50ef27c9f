"""Records of the topics of the file and of internal ones, and changes of stores; nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from streamkit.durations import option_time
from streamkit.errors import QueryError, UnknownNameError, UsageError
from streamkit.http.endpoints.endpoint import Arguments, Endpoint, Parameter, json_response
from streamkit.http.event_stream import EventStream
from streamkit.http.record_reading import NewRecords, PartitionOffsets, Selection, read_page, reader, shown
from streamkit.http.service import Service
from streamkit.plan.lookup import find_readable, internal_topics_on_log
from streamkit.runtime.local.queries import require_store
from streamkit.runtime.operations.topic_positions import Range, Target
from streamkit.runtime.operations.topic_reading import Found
from streamkit.serdes.plain import Json

if TYPE_CHECKING:
    from starlette.requests import Request

MOST_RECORDS = 500
RECORDS = 50
_KEY = Parameter("key", "Only this key: text, or JSON as its serde has it; of a windowed key also the key alone.")
_PARTITION = Parameter("partition", "Only this partition.", "integer")
_RECORDS = (
    Parameter("limit", f"At most so many records, at most {MOST_RECORDS}.", "integer", default=RECORDS),
    Parameter("from", "Only records of this time or later: ISO 8601, milliseconds, or `-5m` for five minutes ago."),
    Parameter("to", "Only records of before this time."),
    Parameter("offset", "Begin in each partition at this offset; without it and `from` the last records.", "integer"),
    _KEY,
    _PARTITION,
)
_CHANGES = (_KEY, _PARTITION)


def list_topics(service: Service, request: Request) -> Response:
    """Return the topics that can be read."""
    plan = service.application.plan
    topics = [
        {"name": topic.entry, "topic": topic.name, "kind": "file", "read": topic.read, "written": topic.written}
        for topic in plan.external_topics.values()
    ]
    topics += [
        {"name": name, "topic": on_log, "kind": "internal", "read": True, "written": True}
        for name, on_log in internal_topics_on_log(plan).items()
    ]
    return json_response({"application": plan.application, "topics": topics})


def list_partitions(service: Service, request: Request) -> Response:
    """Return the offsets of every partition."""
    with reader(service):
        offsets = PartitionOffsets(service)
        try:
            return json_response(offsets.now())
        finally:
            offsets.close()


def partition_changes(service: Service, request: Request) -> Response:
    """Return the offsets of every partition, again and again."""
    Arguments(request, ())
    return EventStream(PartitionOffsets(service), service.streams)


def topic_records(service: Service, request: Request) -> Response:
    """Return records of a topic."""
    arguments = Arguments(request, _RECORDS)
    since, until = _time(arguments, "from"), _time(arguments, "to")
    offset = arguments.number("offset", None, 0)
    if offset is not None and since is not None:
        raise QueryError("offset and from exclude each other")
    start = Target("time", since) if since is not None else Target("earliest")
    if offset is not None:
        start = Target("offset", offset)
    selection = Selection(
        _topic(service, request), Range(start, since, until, _partitions(arguments)), arguments.text("key")
    )
    limit = arguments.number("limit", RECORDS, 1, MOST_RECORDS)
    return json_response(read_page(service, selection, limit, last=offset is None and since is None))


def topic_changes(service: Service, request: Request) -> Response:
    """Return the records of a topic from now on."""
    selection = _new(Arguments(request, _CHANGES), _topic(service, request))
    return EventStream(NewRecords(service, selection, "record", shown), service.streams)


def store_changes(service: Service, request: Request) -> Response:
    """Return the changes of a store from now on, as its changelog has them."""
    plan, name = service.application.plan, request.path_params["store"]
    require_store(plan, name)
    changelog = plan.changelog_name(name)
    if changelog is None:
        raise QueryError(f"store {name} has no changelog, from which changes are read (`logging: false`)")
    selection = _new(Arguments(request, _CHANGES), changelog)
    return EventStream(NewRecords(service, selection, "change", _change), service.streams)


def _change(found: Found) -> dict[str, Json]:
    record = shown(found)
    return {
        name: record[name] for name in ("key", "value", "timestamp", "partition", "offset", "error") if name in record
    }


def _new(arguments: Arguments, topic: str) -> Selection:
    return Selection(topic, Range(Target("latest"), partitions=_partitions(arguments)), arguments.text("key"))


def _topic(service: Service, request: Request) -> str:
    try:
        return find_readable(service.application.plan, request.path_params["topic"])
    except UsageError as error:
        raise UnknownNameError(str(error)) from error


def _partitions(arguments: Arguments) -> frozenset[int] | None:
    number = arguments.number("partition", None, 0)
    return None if number is None else frozenset((number,))


def _time(arguments: Arguments, name: str) -> int | None:
    text = arguments.text(name)
    try:
        return None if text is None else option_time(name, text)
    except UsageError as error:
        raise QueryError(str(error)) from error


_ANSWERS = {
    400: "A parameter makes no sense for this topic or store.",
    404: "There is no such topic or store.",
    503: "The topic can't be read now, or too many requests read topics.",
}
ENDPOINTS = (
    Endpoint("/topics", "The topics of the file, and the internal ones.", list_topics),
    Endpoint(
        "/partitions",
        "First and end offset of each partition of these topics.",
        list_partitions,
        answers={503: "The log does not respond, or too many requests read topics."},
    ),
    Endpoint(
        "/partitions/changes",
        "The same every two seconds, as server-sent events `partitions`.",
        partition_changes,
        content="text/event-stream",
    ),
    Endpoint("/topics/{topic}/records", "Records of a topic, decoded.", topic_records, _RECORDS, answers=_ANSWERS),
    Endpoint(
        "/topics/{topic}/changes",
        "New records of a topic, as server-sent events `record`.",
        topic_changes,
        _CHANGES,
        answers=_ANSWERS,
        content="text/event-stream",
    ),
    Endpoint(
        "/stores/{store}/changes",
        "Changes of a store from now on, on all instances, as server-sent events `change`; value null: deleted.",
        store_changes,
        _CHANGES,
        answers=_ANSWERS,
        content="text/event-stream",
    ),
)
