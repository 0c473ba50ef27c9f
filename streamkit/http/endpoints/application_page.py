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

_SCRIPTS = ("live.js", "status.js", "charts.js", "records.js", "topics.js", "queries.js")


def show_page(service: Service, request: Request) -> Response:
    """Return the page; its script requests the live state, with the token that the user enters."""
    style, body = text_of("application.css"), text_of("application.html")
    parts = Parts(body, style, "".join(map(text_of, _SCRIPTS)), {})
    page = page_of(service.application.plan, service.pictures, parts)
    return page_response(page.html, page.policy)


def page_response(html: str, policy: str) -> Response:
    """Return a page that may send requests to its own server, and that no page of another site may show in a frame."""
    headers = {"Content-Security-Policy": f"{policy}; connect-src 'self'; frame-ancestors 'none'"}
    return HTMLResponse(html, headers=headers)


def text_of(name: str) -> str:
    """Return a file of the pages."""
    return files("streamkit.http.page").joinpath(name).read_text(encoding="utf-8")


ENDPOINTS = (Endpoint("/", "The page that shows the application.", show_page, content="text/html", open=True),)
