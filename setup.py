"""Names the packages, the optional extension, and the files for shells; everything else stands in pyproject.toml."""

import os
import sys
from glob import glob

from setuptools import Extension, find_packages, setup

# What the command line shows and refers to, which lies beside its folder in a clone.
DATA = ["streamkit_cli.examples", "streamkit_cli.schemas"]
# Optional: where there is no compiler, or no header of Python, the installation goes on without it.
NATIVE = Extension(
    "streamkit._native",
    sources=sorted(glob("streamkit/native/*.c")),
    depends=sorted(glob("streamkit/native/*.h")),
    libraries=["dl", "pthread"],
    # CFLAGS take the place of Python's own flags, those for optimization included.
    extra_compile_args=[] if "-O" in os.environ.get("CFLAGS", "") else ["-O3", "-DNDEBUG"],
    optional=True,
)
# Where man and the shells look, below the prefix of the installation.
SHELL_FILES = [
    ("share/man/man1", sorted(glob("deploy/man/*.1"))),
    ("share/bash-completion/completions", ["cli/streamkit_cli/completions/bash/streamkit"]),
    ("share/zsh/site-functions", ["cli/streamkit_cli/completions/zsh/_streamkit"]),
    ("share/fish/vendor_completions.d", ["cli/streamkit_cli/completions/fish/streamkit.fish"]),
]
setup(
    data_files=SHELL_FILES,
    packages=[*find_packages(include=["streamkit", "streamkit.*"]), *find_packages("cli"), *DATA],
    ext_modules=[NATIVE] if sys.platform == "linux" and sys.implementation.name == "cpython" else [],
)
