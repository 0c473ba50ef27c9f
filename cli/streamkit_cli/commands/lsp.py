"""`streamkit lsp`: the language server, which an editor starts."""

from __future__ import annotations

from streamkit_cli.loading import start_language_server
from streamkit_cli.options import EnvFile


def lsp(env_file: EnvFile = None) -> None:
    """Serve an editor: mistakes while typing, completion, types, navigation and tests.

    An editor starts this command and speaks the Language Server Protocol over its standard streams. Typing runs no
    Python code of the user; the commands try and test do.

    Examples:
        streamkit lsp
        streamkit lsp --env-file .env
    """
    start_language_server(env_file)
