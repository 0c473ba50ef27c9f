"""`python -m streamkit_cli` is the command `streamkit`."""

from .main import main

main()
