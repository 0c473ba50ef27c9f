"""The page at `/`: the topology with its live state, in one file."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, Response

from streamkit.http.endpoints.endpoint import Endpoint
from streamkit.http.service import Service
from streamkit.plan.describe.drawing.page import Parts, page_of

if TYPE_CHECKING:
    from starlette.requests import Request

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)

_SCRIPTS = ("live.js", "status.js", "charts.js", "records.js", "queries.js")


def show_page(service: Service, request: Request) -> Response:
    """Return the page; its script requests the live state, with the token that the user enters."""
    style, body = text_of("application.css"), text_of("application.html")
    html = page_of(service.application.plan, Parts(body, style, "".join(map(text_of, _SCRIPTS)), {}))
    return HTMLResponse(html, headers={"Content-Security-Policy": POLICY})


def text_of(name: str) -> str:
    """Return a file of the pages."""
    return files("streamkit.http.page").joinpath(name).read_text(encoding="utf-8")


ENDPOINTS = (Endpoint("/", "The page that shows the application.", show_page, content="text/html", open=True),)
