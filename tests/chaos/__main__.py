"""`python -m tests.chaos`: the soak on a real broker of its own, its log of faults, and its verdict as the exit code."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from streamkit.state.engines.open_maps import DEFAULT_ENGINE, ENGINES, check_engine
from tests.broker.kafka_broker import VERSION, Broker
from tests.broker.support import Log
from tests.chaos.brokers import Brokers
from tests.chaos.faults import MIXES, STREAMS_GROUPS, USUAL, name_of
from tests.chaos.instances import (
    BOTH,
    KAFKA_STREAMS,
    STREAMKIT,
    Launch,
    either_line,
    kafka_streams_line,
    streamkit_line,
)
from tests.chaos.soak import EXACTLY_ONCE, soak
from tests.chaos.workload import CLASSIC, STREAMS


def main() -> int:
    """Return 0 when nothing was lost, doubled or hung."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--faults", type=int, default=None, help="end after so many faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=200, help="events a second")
    parser.add_argument("--guarantee", choices=(EXACTLY_ONCE, "at_least_once"), default=EXACTLY_ONCE)
    parser.add_argument("--log", choices=("kafka", "embedded"), default="kafka")
    parser.add_argument("--engine", choices=ENGINES, default=DEFAULT_ENGINE, help="what keeps stores on disk")
    parser.add_argument("--brokers", type=int, default=1, help="with 3, leaders and coordinators move")
    names = sorted({name_of(kind) for mix in MIXES.values() for kind, _ in mix})
    parser.add_argument("--kafka", default=VERSION, metavar="VERSION", help="of the broker, and of Kafka Streams")
    what = f"what runs the topology; {BOTH}: three instances of each in one streams group"
    parser.add_argument("--program", choices=(STREAMKIT, KAFKA_STREAMS, BOTH), default=STREAMKIT, help=what)
    parser.add_argument("--mix", choices=MIXES, default=USUAL, help="which faults come, and how often")
    parser.add_argument("--gap", type=float, default=None, help="seconds between two faults; drawn by default")
    parser.add_argument("--results", type=Path, default=None, help="a file that gets one more line: what was found")
    parser.add_argument("--only", nargs="+", choices=names, default=[], metavar="KIND", help=f"of {', '.join(names)}")
    parser.add_argument("--kills", type=int, default=1, metavar="N", help="SIGKILL instances N times as often as usual")
    parser.add_argument("--folder", type=Path, default=None, help="keep everything there, also where it passes")
    options = parser.parse_args()
    check_engine(options.engine)
    # The broker runs in its own folder.
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="streamkit-chaos-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    run = f"seed {options.seed}, {options.program}, {options.guarantee}, {options.log}, {options.engine}"
    print(f"{run}, Kafka {options.kafka}", flush=True)
    code = _run_on_log(options, folder)
    if code:
        print(f"logs of the instances, and the log itself: {folder}")
    elif options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def _run_on_log(options: argparse.Namespace, folder: Path) -> int:
    if options.log == "embedded":
        return _run(options, folder, f"embedded:{folder / 'log'}", None)
    several = options.brokers > 1
    kafka, place, own = options.kafka, folder / "broker", STREAMS_GROUPS if options.program == BOTH else ""
    one = Broker(place, settings=own, version=kafka)
    with Brokers(place, options.brokers, options.seed, kafka) if several else one as broker:
        return _run(options, folder, broker.address, broker)


def _run(options: argparse.Namespace, folder: Path, address: str, broker: Broker | None) -> int:
    log = Log(address)
    launches: dict[str, Launch] = {
        STREAMKIT: streamkit_line,
        KAFKA_STREAMS: partial(kafka_streams_line, options.kafka),
        BOTH: partial(either_line, options.kafka),
    }
    try:
        verdict = soak(
            folder,
            log,
            broker,
            seed=options.seed,
            seconds=options.minutes * 60,
            guarantee=options.guarantee,
            engine=options.engine,
            rate=options.rate,
            most=options.faults,
            only=frozenset(options.only),
            kills=options.kills,
            launch=launches[options.program],
            count=6 if options.program == BOTH else 3,
            protocol=STREAMS if options.program == BOTH else CLASSIC,
            mix=options.mix,
            gap=options.gap,
            say=lambda text: print(text, flush=True),
        )
    finally:
        log.close()
    print(verdict.text())
    if options.results is not None:
        with options.results.open("a", encoding="utf-8") as file:
            file.write("\t".join([options.program, options.kafka, f"{options.seed}", *verdict.row()]) + "\n")
    return 0 if verdict.passed else 1


if __name__ == "__main__":
    sys.exit(main())
