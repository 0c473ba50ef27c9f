"""Who may send requests to a server: by token, by the name of the host, and not from pages of other sites."""

from __future__ import annotations

import hmac
import ipaddress
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from streamkit.errors import UsageError

if TYPE_CHECKING:
    from starlette.requests import Request

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?\]|[A-Za-z0-9._-]+)(:[0-9]{0,5})?")
HOST_NAME = re.compile(r"[A-Za-z0-9._-]+|(?=.*:.*:)[0-9A-Fa-f:.]+")
"""A host name or an address, without brackets."""
_LOCAL_NAMES = ("localhost", "localhost.localdomain")
_READING = ("GET", "HEAD")


class Refusal(NamedTuple):
    """The answer to a request without access."""

    status: int
    text: str


@dataclass(frozen=True)
class Access:
    """The rules of one server.

    token: that of the header `Authorization: Bearer …`; None: it asks for none. hosts: the names, beside those of loopback,
    that a request may have in its header Host; None: any name. A web page can have a name of its own site resolve to this
    machine (DNS rebinding), so that a server without a token accepts no name that it does not know.
    """

    token: str | None
    hosts: frozenset[str] | None

    @classmethod
    def of(cls, address: tuple[str, int], token: str | None, hosts: str | None = None, *, loopback: bool) -> Access:
        """Return the rules for an address. hosts: the names of --http-hosts; loopback: only this machine reaches the address.

        Raises UsageError if other machines reach it, and nothing limits who may send requests.
        """
        names = (
            None if hosts is None else frozenset(map(_name, filter(None, (part.strip() for part in hosts.split(",")))))
        )
        if token is None and not names and not loopback:
            host, port = address
            shown = f"[{host}]" if ":" in host else host
            raise UsageError(
                f"--http {shown}:{port} can be reached from other machines and needs a token: set STREAMKIT_HTTP_TOKEN, or give "
                "--http-token-file FILE; or list the host names by which clients may address it: --http-hosts NAME,NAME"
            )
        return cls(token, frozenset() if names is None and loopback else names)

    def with_host(self, address: str) -> Access:
        """Return the rules with the host of an address HOST:PORT, such as that by which other instances send requests."""
        host = address.rpartition(":")[0].strip("[]").lower()
        return self if self.hosts is None or not host else replace(self, hosts=self.hosts | {host})

    def refusal(self, request: Request, *, is_open: bool) -> Refusal | None:
        """Return why a request is refused, None if it has access. `is_open`: its path needs no token."""
        host = request.headers.get("host")
        if host is not None and not _HOST.fullmatch(host):
            return Refusal(400, f"the header Host is {host!r}; expected HOST or HOST:PORT")
        name = request.url.hostname or ""
        if self.hosts is not None and name not in self.hosts and not is_local(name):
            return Refusal(
                403, f"{name} is not a name of this server; --http-hosts lists further names that it accepts"
            )
        foreign = _of_another_site(request, is_open)
        if foreign is not None:
            return Refusal(403, foreign)
        if self.token is None or is_open or self.has_token(request):
            return None
        return Refusal(401, "a token is needed: Authorization: Bearer …")

    def has_token(self, request: Request) -> bool:
        """Return whether a request has the token of this server."""
        header = request.headers.get("authorization", "").encode()
        return self.token is not None and hmac.compare_digest(header, f"Bearer {self.token}".encode())


def _of_another_site(request: Request, is_open: bool) -> str | None:
    """Return why a request from a web page is refused; None for a request from this server's own pages, or not from a page.

    Browsers add both headers, and no page can change them. A link on another site may lead to an open path.
    """
    headers = request.headers
    if headers.get("sec-fetch-site") == "cross-site":
        is_link = request.method in _READING and headers.get("sec-fetch-dest") == "document"
        if not (is_link and is_open):
            return "requests from pages of other sites are not answered (Sec-Fetch-Site: cross-site)"
    origin = headers.get("origin")
    if origin is None or request.method in _READING:
        return None
    # Pages of other sites can't add X-Forwarded-Proto: the browser would ask this server for permission first.
    scheme = headers.get("x-forwarded-proto", request.url.scheme).partition(",")[0].strip().lower()
    own = f"{scheme}://{headers.get('host')}"
    if origin.lower() == own.lower():
        return None
    hint = (
        "; a proxy that ends TLS sends X-Forwarded-Proto: https" if origin.lower() == f"https{own[4:]}".lower() else ""
    )
    return f"requests from {origin} are not answered, only those from {own}{hint}"


def _name(text: str) -> str:
    """Return a name of --http-hosts as requests are compared with it. Raises UsageError."""
    name = text.strip("[]")
    if not HOST_NAME.fullmatch(name):
        raise UsageError(f"--http-hosts: {text!r} is no host name; expected names or addresses without a port")
    return name.lower()


def is_local(name: str) -> bool:
    """Return whether a host name or address is this machine's own loopback."""
    if name in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
