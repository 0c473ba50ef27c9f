"""`python -m tests.chaos`: the soak on a real broker of its own, its log of faults, and its verdict as the exit code."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from streamkit.state.engines.open_maps import ENGINES, check_engine, default_engine
from tests.broker.kafka_broker import Broker
from tests.broker.support import Log
from tests.chaos.brokers import Brokers
from tests.chaos.faults import KINDS, name_of
from tests.chaos.soak import EXACTLY_ONCE, soak


def main() -> int:
    """Return 0 when nothing was lost, doubled or hung."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--faults", type=int, default=None, help="end after so many faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=200, help="events a second")
    parser.add_argument("--guarantee", choices=(EXACTLY_ONCE, "at_least_once"), default=EXACTLY_ONCE)
    parser.add_argument("--log", choices=("kafka", "embedded"), default="kafka")
    parser.add_argument("--engine", choices=ENGINES, default=default_engine(), help="what keeps stores on disk")
    parser.add_argument("--brokers", type=int, default=1, help="with 3, leaders and coordinators move")
    names = [name_of(kind) for kind, _ in KINDS]
    parser.add_argument("--only", nargs="+", choices=names, default=[], metavar="KIND", help=f"of {', '.join(names)}")
    parser.add_argument("--kills", type=int, default=1, metavar="N", help="SIGKILL instances N times as often as usual")
    parser.add_argument("--folder", type=Path, default=None, help="keep everything there, also where it passes")
    options = parser.parse_args()
    check_engine(options.engine)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="streamkit-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}, {options.guarantee}, {options.log}, {options.engine}", flush=True)
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
    made = Brokers(folder / "broker", options.brokers, options.seed) if several else Broker(folder / "broker")
    with made as broker:
        return _run(options, folder, broker.address, broker)


def _run(options: argparse.Namespace, folder: Path, address: str, broker: Broker | None) -> int:
    log = Log(address)
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
            say=lambda text: print(text, flush=True),
        )
    finally:
        log.close()
    print(verdict.text())
    return 0 if verdict.passed else 1


if __name__ == "__main__":
    sys.exit(main())
