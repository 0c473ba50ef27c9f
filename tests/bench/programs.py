"""The programs that are compared: how each is started for a scenario, and what it needs."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

from streamkit.extension import OFF, SWITCH
from tests.bench.scenarios import Scenario
from tests.java import build

STREAMKIT, JAVA, BY_HAND, QUIX = "streamkit", "Kafka Streams", "by hand", "Quix"
WITHOUT = "no extension"
"""streamkit without its native extension."""
BEFORE = "streamkit before"
"""Another checkout of streamkit: the interpreter of its environment is in BENCH_BEFORE."""
NOTHING = "loop that does nothing"
"""Reads and writes through streamkit's client, without an engine: `tests.bench.floor`."""
BY_ENGINE = {f"streamkit, {name}": engine for name, engine in (("LevelDB", "leveldb"), ("RocksDB", "rocksdb"))}
"""streamkit with each engine of stores: the values are those of state.engine."""
ENDS_ALONE = (STREAMKIT, WITHOUT, BEFORE, BY_HAND, NOTHING, *BY_ENGINE)
"""They end at the end of their input; the others need to be told."""
_TOPOLOGIES = Path(__file__).with_name("topologies")
_QUIX = "quixstreams==3.28.0"


def of(scenario: Scenario, with_quix: bool) -> list[str]:
    """The programs that can do a scenario; with another checkout only that one and this one."""
    if "BENCH_BEFORE" in os.environ:
        return [STREAMKIT, BEFORE]
    return [
        STREAMKIT,
        WITHOUT,
        JAVA,
        *([BY_HAND] if scenario.by_hand else []),
        *([QUIX] if scenario.quix and with_quix else []),
    ]


def command(
    program: str, scenario: Scenario, names: Mapping[str, str], folder: Path, stays: bool = False
) -> tuple[list[str], dict[str, str]]:
    """The command line of a program, and its environment; `stays`: not until its input is read only."""
    if program in (STREAMKIT, WITHOUT, BEFORE, *BY_ENGINE):
        sets = [f"--set={key}={value}" for key, value in scenario.settings.items()]
        sets += [f"--set=state.engine={BY_ENGINE[program]}"] if program in BY_ENGINE else []
        sets += [f"--processes={scenario.processes}"] if scenario.processes > 1 else []
        python = os.environ["BENCH_BEFORE"] if program == BEFORE else sys.executable
        # -P: without it the modules of the working directory would come before those of the interpreter.
        run = [python, "-P", "-m", "streamkit_cli", "run", str(_TOPOLOGIES / f"{scenario.program}.yaml"), *sets]
        own = {key.upper(): value for key, value in names.items()}
        own |= {SWITCH: OFF} if program == WITHOUT else {}
        return [*run, *([] if stays else ["--until-idle"])], {**os.environ, **own, "STATE": str(folder / "state")}
    if program == JAVA:
        own = {"application.id": names["application"], "bootstrap.servers": names["bootstrap"]}
        own |= {"state.dir": str(folder / "state"), **{key: str(value) for key, value in scenario.settings.items()}}
        own |= {f"bench.{key}": value for key, value in names.items()}
        file = folder / "peer.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in own.items()))
        return [*build.command("bench/java", "Peer"), scenario.program, str(file)], dict(os.environ)
    if program == NOTHING:
        places = [names[each] for each in ("bootstrap", "input_1", "output")]
        return [sys.executable, "-m", "tests.bench.floor", "--loop", *places], dict(os.environ)
    places = [names[each] for each in ("bootstrap", "application", "input_1", "output", "progress")]
    if program == QUIX:
        script = str(Path(__file__).with_name("with_quix.py"))
        return [str(_quix_python()), script, scenario.name, *places, str(folder / "state")], dict(os.environ)
    return [sys.executable, "-m", "tests.bench.by_hand", scenario.name, *places], dict(os.environ)


def _quix_python() -> Path:
    """The interpreter of an environment of its own, made once: Quix pins versions of libraries that streamkit uses."""
    cache = os.environ.get("STREAMKIT_TEST_CACHE") or Path.home() / ".cache" / "streamkit-tests"
    folder = Path(cache) / _QUIX.replace("==", "-")
    ready = folder / "ready"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            venv.create(folder / "venv", with_pip=True, clear=True)
            install = [str(folder / "venv" / "bin" / "python"), "-I", "-m", "pip", "install", "--quiet", _QUIX]
            subprocess.run(install, check=True)
            ready.touch()
    return folder / "venv" / "bin" / "python"
