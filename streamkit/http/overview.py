"""The page of several applications in one process: each with its state and the address of its own page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from streamkit.http.endpoint_app import Guard
from streamkit.http.endpoints.endpoint import error_response, json_response

if TYPE_CHECKING:
    from streamkit.runtime.local.instance.client import Application
    from streamkit.serdes.plain import Json

Served = tuple["Application", str]
"""An application, and the address HOST:PORT of its own server."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2"><title>streamkit: applications</title>
<style>body{{font-family:system-ui,sans-serif;margin:2rem;color-scheme:light dark}}td,th{{padding:.3rem 1rem;text-align:left}}
td.n{{text-align:right;font-variant-numeric:tabular-nums}}</style></head>
<body><h1>Applications</h1><table><thead><tr><th>application</th><th>file</th><th>state</th><th>tasks</th><th>records/s</th>
<th>lag</th></tr></thead><tbody>{rows}</tbody></table></body></html>
"""


def overview_application(served: Callable[[], Sequence[Served]], token: str | None, *, loopback: bool) -> Starlette:
    """Return the endpoints of the overview: `/`, and `/applications` as JSON."""

    def page(request: Request) -> Response:
        return HTMLResponse(_PAGE.format(rows="".join(_row(each, request) for each in listed(served()))))

    def applications(request: Request) -> Response:
        return json_response(listed(served()))

    async def no_such_path(request: Request, error: Exception) -> Response:
        known = ", ".join(f"{application.plan.application} at http://{address}" for application, address in served())
        text = f"there is nothing at {request.url.path} of this overview; each application has its own address: {known}"
        return error_response(text, 404)

    guard = Middleware(Guard, token=token, open_paths={"/"} if token is None else set(), loopback=loopback)
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
                "tasks": len(status.tasks),
                "rate": status.rate,
                "lag": status.lag,
                "address": address,
            }
        )
    return found


def _row(each: dict[str, Json], request: Request) -> str:
    # The host by which the reader reached this page reaches the other ports too.
    port = str(each["address"]).rpartition(":")[2]
    link = f"{request.url.scheme}://{request.url.hostname}:{port}/"
    lag = "" if each["lag"] is None else f"{each['lag']:,}"
    return (
        f'<tr><td><a href="{escape(link)}">{escape(str(each["application"]))}</a></td><td>{escape(str(each["file"]))}</td>'
        f'<td>{escape(str(each["state"]))}</td><td class="n">{each["tasks"]}</td><td class="n">{each["rate"]:,.0f}</td>'
        f'<td class="n">{lag}</td></tr>'
    )
