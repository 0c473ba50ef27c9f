"""The endpoints as an OpenAPI document, and as a page without external resources."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from streamkit.http.endpoints.endpoint import Endpoint
from streamkit.serdes.plain import Json

STYLE = """
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}section{border-top:1px solid #8884;padding:.8rem 0}h2{font:600 1rem ui-monospace,monospace;margin:0}
h2 b{display:inline-block;min-width:4.2rem;color:#2563eb}table{border-collapse:collapse;margin:.3rem 0 .3rem 4.2rem}
td{padding:.1rem 1rem .1rem 0;vertical-align:top}p{margin:.2rem 0 .2rem 4.2rem}.first{margin-left:0}code{font:13px ui-monospace,monospace}
"""


def document(endpoints: Iterable[Endpoint], version: str, secured: bool) -> dict[str, Json]:
    """Return the OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Json]] = {}
    for each in endpoints:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, secured)
    schemes = {"bearer": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "streamkit", "version": version, "description": "A running streamkit application."},
        "paths": paths,
        "components": {
            "schemas": {
                "Error": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
            },
            **({"securitySchemes": schemes} if secured else {}),
        },
    }


def _operation(endpoint: Endpoint, secured: bool) -> dict[str, Json]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    ok: dict[str, Json] = {"type": "object"} if endpoint.content == "application/json" else {"type": "string"}
    answers = dict(endpoint.answers)
    if secured and not endpoint.open:
        answers[401] = "The token is missing or wrong."
    return {
        "summary": endpoint.summary,
        "operationId": f"{endpoint.method.lower()}{endpoint.path.replace('{', '').replace('}', '').replace('/', '_')}",
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"{(\w+)}", endpoint.path)
        ]
        + [
            {
                "name": each.name,
                "in": "query",
                "description": each.meaning,
                "required": each.required,
                "schema": {"type": each.kind, **({} if each.default is None else {"default": each.default})},
            }
            for each in endpoint.parameters
        ],
        "responses": {
            "200": {"description": "Done.", "content": {endpoint.content: {"schema": ok}}},
            **{str(code): {"description": text, "content": error} for code, text in sorted(answers.items())},
        },
        **({"security": [{"bearer": []}]} if secured and not endpoint.open else {}),
    }


def page(endpoints: Iterable[Endpoint]) -> str:
    """Return the endpoints as HTML."""
    sections = "".join(_section(each) for each in endpoints)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>streamkit API</title><style>{STYLE}</style>'
        f'<h1>HTTP API</h1><p class="first">As <a href="openapi.json">OpenAPI document</a>; '
        f'<a href="./">the application</a>.</p>{sections}'
    )


def _section(endpoint: Endpoint) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(each.name)}</code>{' *' if each.required else ''}</td><td>{escape(each.meaning)}</td></tr>"
        for each in endpoint.parameters
    )
    answers = "".join(f"<p><code>{code}</code> {escape(text)}</p>" for code, text in sorted(endpoint.answers.items()))
    return (
        f"<section><h2><b>{endpoint.method}</b>{escape(endpoint.path)}</h2><p>{escape(endpoint.summary)}</p>"
        f"{f'<table>{rows}</table>' if rows else ''}{answers}</section>"
    )
