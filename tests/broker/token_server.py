"""A server that gives out bearer tokens for client credentials, as an OpenID Connect provider does."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


def token(user: str) -> str:
    """An unsigned token, which a broker without keys of a provider accepts."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + 3600})
    return ".".join([*(base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in parts), ""])


@contextmanager
def token_server(user: str, secret: str) -> Iterator[str]:
    """Give the address of a server that gives tokens to one user."""
    wanted = "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            allowed = self.headers["authorization"] == wanted
            found = {"access_token": token(user), "expires_in": 3600} if allowed else {"error": "invalid_client"}
            data = json.dumps(found).encode()
            self.send_response(200 if allowed else 401)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
