"""The same word count on the embedded log: two processes of one application, each with a state directory of its own."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.broker.support import App, Log, finish, kill, until
from tests.broker.word_count import feed, latest, lines, truth_of, word_count

LINES = 60_000
HALF = LINES // 2
SEED = 2


def pair(app: App, *options: object) -> list:
    folders = [app.path.parent / name for name in ("one", "two")]
    return [app.start("--set", f"state.dir={folder}", *options) for folder in folders]


def counts(app: App) -> dict[str, int]:
    return latest(app.log.read(app.topic("counts"), committed_only=True))


def shared(app: App) -> bool:
    """Both processes have tasks."""
    folders = [app.path.parent / name / app.application for name in ("one", "two")]
    return all(folder.is_dir() and any(path.is_dir() for path in folder.iterdir()) for folder in folders)


def test_two_processes_share_the_work_and_stop_in_the_middle(embedded: Log, tmp_path: Path) -> None:
    app = word_count(tmp_path, embedded)
    topic = app.topic("lines")
    processes = pair(app)
    try:
        until(lambda: shared(app), "both have tasks")
        feed(app, lines(LINES, SEED)[:HALF])
        until(lambda: embedded.read_so_far(app.application, topic) > LINES // 10, "the middle")
        for process in processes:
            process.send_signal(signal.SIGTERM)
        assert [(done.code, done.err) for done in finish(processes)] == [(0, "")] * 2
        # Not before: processes that are faster than the test would read everything.
        feed(app, lines(LINES, SEED)[HALF:], HALF)
        processes = pair(app, "--until-idle")
        assert [(done.code, done.err) for done in finish(processes)] == [(0, "")] * 2
    finally:
        kill(processes)
    assert counts(app) == truth_of(LINES, SEED)
    assert latest(embedded.read(f"{app.application}-counts-changelog")) == truth_of(LINES, SEED)


def test_one_of_two_is_killed_and_the_other_takes_over(embedded: Log, tmp_path: Path) -> None:
    app = word_count(tmp_path, embedded, session_timeout_ms=2000)
    topic = app.topic("lines")
    processes = pair(app)
    try:
        until(lambda: shared(app), "both have tasks")
        feed(app, lines(LINES, SEED))
        until(lambda: embedded.read_so_far(app.application, topic) > LINES // 10, "the middle")
        processes[0].kill()
        assert finish(processes[:1])[0].code == -signal.SIGKILL
        until(lambda: embedded.read_so_far(app.application, topic) == LINES, "the other reads the rest")
        processes[1].send_signal(signal.SIGTERM)
        (done,) = finish(processes[1:])
        assert done.code == 0
    finally:
        kill(processes)
    assert app.run("--set", f"state.dir={tmp_path / 'one'}").code == 0
    found = counts(app)
    expected = truth_of(LINES, SEED)
    assert found.keys() == expected.keys()
    assert [(word, count) for word, count in expected.items() if found[word] < count] == []
    assert sum(found.values()) < 2 * sum(expected.values())
