"""The page of several applications in one process: each with its state and the address of its own page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import Template
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamkit.http.access import Access
from streamkit.http.endpoint import error_response, json_response
from streamkit.http.endpoint_app import Guard, page_response, text_of
from streamkit.plan.describe.drawing.page import page_style, policy

if TYPE_CHECKING:
    from streamkit.runtime.local.client import Application
    from streamkit.serdes.plain import Json

Served = tuple["Application", str]
"""An application, and the address HOST:PORT of its own server."""


def overview_application(served: Callable[[], Sequence[Served]], access: Access) -> Starlette:
    """Return the endpoints of the overview: `/`, and `/applications` as JSON.

    The page is open and has no data: its script requests `/applications`, with the token that the user enters.
    """

    def page(request: Request) -> Response:
        return _page()

    def applications(request: Request) -> Response:
        return json_response(listed(served()))

    async def no_such_path(request: Request, error: Exception) -> Response:
        known = ", ".join(f"{application.plan.application} at http://{address}" for application, address in served())
        text = f"there is nothing at {request.url.path} of this overview; each application has its own address: {known}"
        return error_response(text, 404)

    guard = Middleware(Guard, access=access, open_paths={"/"})
    return Starlette(
        routes=[Route("/", page), Route("/applications", applications)],
        middleware=[guard],
        exception_handlers={404: no_such_path},
    )


def listed(served: Sequence[Served]) -> list[dict[str, Json]]:
    """Return the state of each application."""
    found = []
    for application, address in served:
        status = application.status()
        found.append(
            {
                "application": application.plan.application,
                "file": application.plan.file,
                "state": status.state,
                "shown_state": status.shown_state,
                "tasks": len(status.tasks),
                "rate": status.rate,
                "lag": status.lag,
                "address": address,
            }
        )
    return found


def _page() -> Response:
    style, script = page_style() + text_of("application.css"), f'"use strict";\n{text_of("overview.js")}'
    html = Template(text_of("overview.html")).substitute(style=style, script=script)
    return page_response(html, policy(style, script))
