"""A price service: `price_service.py` serves until it is interrupted, `price_service.py COMMAND…` while the command runs.

The command gets the address in the environment variable PRICES.
"""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

CENTS = {"tea": 450, "coffee": 900, "cocoa": 620}
PORT = 8090


asked = set()


class Handler(BaseHTTPRequestHandler):
    """Answers /prices/PRODUCT; the first request for each product finds the service busy."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        product = unquote(self.path.removeprefix("/prices/"))
        if product not in asked:
            asked.add(product)
            self.answer(503, {"error": "busy"})
        elif product not in CENTS:
            self.answer(404, {"error": "no such product"})
        else:
            self.answer(200, {"cents": CENTS[product]})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def main(command):
    if not command:
        print(f"prices at http://127.0.0.1:{PORT}", file=sys.stderr)
        ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)  # any free port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    variables = {**os.environ, "PRICES": f"http://127.0.0.1:{server.server_port}"}
    return subprocess.run(command, env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
