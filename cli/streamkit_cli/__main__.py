"""`python -m streamkit_cli` is the command `streamkit`."""

from streamkit_cli.main import main

main()
