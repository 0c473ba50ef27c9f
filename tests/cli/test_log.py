"""The log of a process: lines that repeat are counted, from any source and in every form."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter

import pytest

from tests.cli.support import LIMIT_S

NOISE = """\
import asyncio, logging, sys, threading
from streamkit_cli.command_process import LogLevel, count_repeats, log_end, set_up_log
from streamkit.errors import StreamkitError

set_up_log(LogLevel.info, sys.argv[1] == 'json')
clients = logging.getLogger("streamkit.kafka")
loop = asyncio.new_event_loop()

def fail():
    raise OSError(24, "Too many open files")

for number in range(300):
    try:
        fail()
    except OSError as error:
        loop.call_exception_handler({"message": "accept failed", "exception": error})
        logging.getLogger("uvicorn.error").error("Exception in ASGI application\\n", exc_info=error)
    clients.error("%s [%s] %s", "FAIL", "producer-1", "broker down")
    logging.getLogger("streamkit.http").warning("refused %s", "connections")
    thread = threading.Thread(target=fail, name="http")
    thread.start()
    thread.join()
loop.close()
end = StreamkitError("the end")
end.add_note("the cure")
log_end(end)
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_lines_that_repeat_are_counted_from_any_source(form):
    done = subprocess.run(
        [sys.executable, "-c", NOISE, form], capture_output=True, check=True, timeout=LIMIT_S, text=True
    )
    if form == "json":
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        assert {frozenset(line) - {"traceback"} for line in lines} == {
            frozenset({"time", "level", "logger", "thread", "message"})
        }
        messages = [line["message"].strip() for line in lines]
        assert sum("Traceback" in line.get("traceback", "") for line in lines) == 15
    else:
        messages = re.findall(r"^[-\d]+ [:,\d]+ (?:ERROR|WARNING) (.*)$", done.stderr, re.MULTILINE)
        assert done.stderr.count("Traceback") == 15
    counts = [message for message in messages if "more times" in message]
    error = ": OSError: [Errno 24] Too many open files"
    assert [re.sub(r"\d+ s$", "S", line) for line in counts] == [
        f"{text} … 295 more times in S"
        for text in (
            f"accept failed{error}",
            f"Exception in ASGI application{error}",
            "refused connections",
            f"the thread http failed{error}",
        )
    ]
    # Kafka's clients are silent unless the command is verbose; what ends the process is the last line.
    assert Counter(messages) == {
        **dict.fromkeys(["accept failed", "Exception in ASGI application", "refused connections"], 5),
        "the thread http failed": 5,
        **dict.fromkeys(counts, 1),
        "the end; the cure": 1,
    }
    assert messages[-1] == "the end; the cure"
