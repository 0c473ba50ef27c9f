"""Names the packages; everything else stands in pyproject.toml."""

from setuptools import find_packages, setup

# The command line lies in `cli` and is installed as `streamkit_cli`, which no pattern of pyproject.toml can express.
setup(packages=["streamkit_cli", *find_packages(include=["streamkit", "streamkit.*"])])
