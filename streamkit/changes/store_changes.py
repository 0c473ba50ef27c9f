"""Compares the stores of two versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streamkit.changes.finding import Finding, Verdict
from streamkit.changes.forms.form import Form, OnLog, StoreDetails, StoreForm
from streamkit.changes.keep import keep_store
from streamkit.changes.match import Matched
from streamkit.changes.rows import CONVERTIBLE, compare_rows, has_same_layout
from streamkit.state.definitions import KINDS

AFRESH = "to have the past in it, set the application back with `streamkit reset-offsets`"
_AGAIN = f"give it another name, so that it starts empty; {AFRESH}"
_PLAIN = ("string", "bytes", "boolean", "short", "integer", "long", "float", "double", "uuid", "void")
Text = tuple[Verdict, str, str]
"""A verdict, the message, and the action for the user."""


@dataclass(frozen=True)
class Versions:
    """Two versions, their matched stores, and the topics on the log, if they are known.

    offers_migration: whether actions name `streamkit migrate`.
    """

    old: Form
    new: Form
    matched: Matched[StoreForm]
    on_log: OnLog | None
    offers_migration: bool = True

    def shown_records(self, store: str) -> str:
        """Return the number of records in an old changelog as text; empty where it is not known."""
        return "" if self.on_log is None else _records(self.on_log.records.get(self.old.changelog(store)))


def _records(count: int | None) -> str:
    return "" if count is None else f" ({count} record{'' if count == 1 else 's'})"


def compare_stores(versions: Versions) -> Iterator[Finding]:
    """Yield the changes of stores, without changes of their tasks."""
    for old, new in versions.matched.kept:
        if not new.is_global:
            yield from _kept(versions, old, new)
    for old, new in versions.matched.renamed:
        yield _renamed(versions, old, new)
    for store in versions.matched.added:
        yield _added(versions, store)
    for store in versions.matched.gone:
        yield _gone(versions, store)


def _finding(store: StoreForm, text: Text, old: str | None = None) -> Finding:
    verdict, message, action = text
    place = store.place
    return Finding(
        verdict, "store", store.name, f"store {store.name}{message}", action, place.position, place.pipeline, old
    )


# -- Stores that keep their names ---------------------------------------------------------------------------------------


def _kept(versions: Versions, old: StoreForm, new: StoreForm) -> Iterator[Finding]:
    texts: list[Text] = []
    if old.rows is not None and new.rows is not None:
        for verdict, why in compare_rows(old.rows, new.rows):
            converts = has_same_layout(old.rows, new.rows) and old.rows.kind in CONVERTIBLE
            action = _todo(verdict)
            if verdict is Verdict.INCOMPATIBLE and converts and old.details is not None and old.details.logged:
                action += _migration(versions, "or convert")
            texts.append((verdict, why, action))
    # State that is misread, or restored in any case, needs no further findings.
    settled = any(verdict in (Verdict.INCOMPATIBLE, Verdict.RESTORE) for verdict, _, _ in texts)
    if old.details is not None and new.details is not None:
        texts += _details(versions.new, new, old.details, new.details, settled)
    texts += _count(versions, new)
    texts += _config(versions, old, new)
    yield from (_finding(new, (verdict, f": {message}", action)) for verdict, message, action in texts)


def _todo(verdict: Verdict) -> str:
    if verdict is Verdict.INCOMPATIBLE:
        return _AGAIN
    if verdict is Verdict.UNKNOWN:
        return "see whether the new serde reads what the old one wrote (for schemas of a registry: validate --online)"
    return (
        "stop all instances, and start the new version; see that the changelog's min.compaction.lag.ms fits the history"
    )


def _details(form: Form, store: StoreForm, old: StoreDetails, new: StoreDetails, settled: bool) -> Iterator[Text]:
    changelog = form.changelog(store.name)
    if old.source_topic != new.source_topic:
        yield _source_topic(old, new, changelog)
    elif old.logged != new.logged:
        yield _logging(new, changelog)
    elif not settled and (old.layout, old.persistent) != (new.layout, new.persistent):
        yield _layout(old, new)
    if old.ttl != new.ttl:
        yield (Verdict.SAFE, _ttl(old.ttl, new.ttl), "")
    if not settled:
        yield from _times(old, new, changelog)
        if old.rule != new.rule and old.rule and new.rule:
            yield _rule(store, old, new)


def _source_topic(old: StoreDetails, new: StoreDetails, changelog: str) -> Text:
    if new.source_topic is not None:
        return (
            Verdict.RESTORE,
            f"it is read again from its source topic {new.source_topic}, which is its changelog now",
            f"see that {new.source_topic} is compacted or keeps all records; {changelog} is not used any more",
        )
    return (
        Verdict.RENAMED,
        f"it was restored from its source topic {old.source_topic} and gets the changelog {changelog}, which is empty",
        f"set the committed offsets of {old.source_topic} back to its beginning while no instance runs",
    )


def _logging(new: StoreDetails, changelog: str) -> Text:
    if new.logged:
        return (
            Verdict.RENAMED,
            f"it gets the changelog {changelog}, which is empty: state on disk that has no changelog is not taken over",
            AFRESH,
        )
    return (
        Verdict.RENAMED,
        f"it has no changelog any more: what is in {changelog} is not read, and a lost disk loses it",
        f"keep `logging: true`, or delete the state of the store on each machine; {AFRESH}",
    )


def _layout(old: StoreDetails, new: StoreDetails) -> Text:
    if old.persistent != new.persistent:
        where = "on disk" if new.persistent else "in memory"
        return (
            Verdict.RESTORE,
            f"it lies {where} now: it is read from its changelog",
            "plan for the time of restoring",
        )
    return (
        Verdict.RESTORE,
        f"it lies differently on disk (was {old.layout}, is {new.layout}): it is read again from its changelog",
        "plan for the time of restoring",
    )


def _ttl(old: int | None, new: int | None) -> str:
    """Return the message about a time to live (ms) that is new, changed or removed."""
    if new is None:
        return f"it has no ttl any more (was {old} ms): no row is deleted from now on, and those that were stay away"
    was = "it has a ttl now, of" if old is None else f"its ttl was {old} ms, is"
    when = (
        "the start deletes those that are due by then" if old is None or new < old else "rows stay longer from now on"
    )
    return f"{was} {new} ms: rows that nothing writes to for so long are deleted, from its changelog and downstream; {when}"


def _times(old: StoreDetails, new: StoreDetails, changelog: str) -> Iterator[Text]:
    """Yield the changes of windows and retention after which the rows are still readable."""
    for name in ("advance", "gap", "grace"):
        was, now = old.windows.get(name), new.windows.get(name)
        if None not in (was, now) and was != now:
            yield (Verdict.SAFE, f"its {name} was {was} ms, is {now} ms{_meaning(name)}", "")
    for noun, was, now, setting in (
        ("retention", old.retention, new.retention, "retention.ms"),
        ("history", old.history, new.history, "min.compaction.lag.ms"),
    ):
        if was is None or now is None or was == now:
            continue
        if now > was:
            todo = (
                f"raise {setting} of {changelog} by {now - was} ms: the settings of a topic that exists are not changed"
            )
            yield (Verdict.RESTORE, f"its {noun} was {was} ms, is {now} ms", todo)
        else:
            yield (Verdict.SAFE, f"its {noun} was {was} ms, is {now} ms: older rows are deleted", "")


def _meaning(name: str) -> str:
    if name == "advance":
        return ": windows that are open now miss what came before, or get no more records"
    return ": sessions from now on" if name == "gap" else ": windows close by it from now on"


def _rule(store: StoreForm, old: StoreDetails, new: StoreDetails) -> Text:
    text = "other expressions make its rows, and go on with those of the old version"
    if store.rows is not None and store.rows.value in _PLAIN:
        return (Verdict.SAFE, text, "")
    return (
        Verdict.UNKNOWN,
        text,
        f"see that the new expressions read the values that the old ones made, else {_AGAIN}",
    )


def _count(versions: Versions, store: StoreForm) -> Iterator[Text]:
    name = f"{store.name}-changelog"
    was, now = versions.old.counts.get(name), versions.new.counts.get(name)
    if was is not None and now is not None and was != now:
        yield (
            Verdict.INCOMPATIBLE,
            f"it needs {now} partitions, and its changelog {versions.new.changelog(store.name)} has {was}: keys would be in "
            "other tasks than their rows",
            "keep the number of partitions, or set the application back with `streamkit reset-offsets`, which deletes it",
        )


def _config(versions: Versions, old: StoreForm, store: StoreForm) -> Iterator[Text]:
    """Yield the settings of the changelog on the log that do not fit the store."""
    topic = versions.new.changelog(store.name)
    wanted = versions.new.configs.get(f"{store.name}-changelog")
    found = None if versions.on_log is None else versions.on_log.configs.get(topic)
    if not wanted or not found:
        return
    policies = [each.get("cleanup.policy", "").replace(" ", "") for each in (found, wanted)]
    if old.rows is None and policies[0] and set(policies[0].split(",")) != set(policies[1].split(",")):
        yield (
            Verdict.UNKNOWN,
            f"its changelog {topic} has the cleanup.policy {policies[0]}, a store of this kind has {policies[1]}: it may hold "
            "rows of another kind",
            "see which version wrote it",
        )
    kept, needed = (int(each.get("retention.ms", -1)) for each in (found, wanted))
    if "delete" in policies[0] and 0 <= kept < needed:
        yield (
            Verdict.RESTORE,
            f"its changelog {topic} keeps rows for {kept} ms, and the store for {needed} ms: what is restored lacks rows",
            f"set retention.ms of the topic to {needed}",
        )


# -- Stores that are renamed, new or gone --------------------------------------------------------------------------------------------


def _renamed(versions: Versions, old: StoreForm, new: StoreForm) -> Finding:
    was = f" (was {old.name})"
    if new.is_global or _from_source(old, new):
        text = f"{was} is read again from its topic"
        return _finding(new, (Verdict.RESTORE if not new.is_global else Verdict.SAFE, text, ""), old.name)
    changelog = versions.new.changelog(new.name)
    moved = 0 if versions.on_log is None else versions.on_log.records.get(changelog, 0)
    if moved:
        text = f"{was} has rows in its own changelog {changelog}{_records(moved)}"
        return _finding(new, (Verdict.SAFE, text, ""), old.name)
    kind = KINDS.get(new.rows.kind) if new.rows is not None else None
    lost = f"; {kind.lost}" if kind is not None and kind.lost else ""
    text = f"{was} starts empty: its rows stay in {versions.old.changelog(old.name)}{versions.shown_records(old.name)}{lost}"
    action = keep_store(versions.new, new, old.name)
    action += _migration(versions, "or move")
    return _finding(new, (Verdict.RENAMED, text, action), old.name)


def _migration(versions: Versions, what: str) -> str:
    """Return what follows an action that `streamkit migrate` can take the place of; it takes files of both versions."""
    if not versions.offers_migration or versions.old.externals is None:
        return ""
    return f"; {what} its rows: `streamkit migrate {versions.old.label} {versions.new.label}`"


def _from_source(old: StoreForm, new: StoreForm) -> bool:
    """Return whether both versions restore the store from the same source topic."""
    sources = [each.details.source_topic if each.details is not None else None for each in (old, new)]
    return sources[0] is not None and sources[0] == sources[1]


def _added(versions: Versions, store: StoreForm) -> Finding:
    if store.is_global or (store.details is not None and store.details.source_topic is not None):
        return _finding(store, (Verdict.SAFE, " is new, and is read from its topic at the start", ""))
    return _finding(
        store, (Verdict.SAFE, " is new and starts empty: it knows only what is processed from now on", AFRESH)
    )


def _gone(versions: Versions, store: StoreForm) -> Finding:
    name, position = store.name, versions.new.start
    if store.is_global:
        return Finding(Verdict.SAFE, "store", name, f"global store {name} is gone", "", position, old=name)
    maybe = [each.name for each in versions.matched.added if not each.is_global]
    changelog = f"{versions.old.changelog(name)}{versions.shown_records(name)}"
    if not versions.old.has_tasks and maybe:
        text = f"no store has the changelog {changelog}; it may be that of {' or '.join(maybe)}, which is new"
        todo = f"if it is, call that store {name}; else delete the topic"
        return Finding(Verdict.UNKNOWN, "store", name, text, todo, position, old=name)
    text = f"store {name} is gone: its changelog {changelog} is not used any more"
    todo = "delete the topic when you do not go back to the old version"
    return Finding(Verdict.SAFE, "store", name, text, todo, position, old=name)
