"""The page at `/`: the topology with what happens in it, in one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, Response

from streamkit.http.endpoint import Endpoint
from streamkit.http.service import Service
from streamkit.plan.describe.drawing.page import page_of

if TYPE_CHECKING:
    from starlette.requests import Request

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


def show_page(service: Service, request: Request) -> Response:
    """Return the page; what is live in it, it asks for itself, with the token that its reader gives."""
    html = page_of(service.application.plan, live=True)
    return HTMLResponse(html, headers={"Content-Security-Policy": _POLICY})


ENDPOINTS = (Endpoint("/", "The page that shows the application.", show_page, content="text/html", open=True),)
