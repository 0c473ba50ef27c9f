"""Bearer tokens for SASL OAUTHBEARER: from a file, from an OpenID Connect server, or without a signature for tests."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from streamkit.errors import ConfigError, TransportError

URL = "sasl.oauthbearer.token.endpoint.url"
_FILE = "file:"
_MARGIN = 0.8
"""The part of a token's lifetime after which the next one is fetched (sasl.login.refresh.window.factor)."""
_TIMEOUT_SECONDS = 10
_LIFE_SECONDS = 3600


class Token(NamedTuple):
    """A token and the time at which it expires, in seconds since the epoch."""

    text: str
    expires: float


def token_file(config: Mapping[str, str]) -> str | None:
    """Return the path of the token file (`file:///…` in place of a server's address), or None."""
    url = config.get(URL, "")
    return url.removeprefix(_FILE).removeprefix("//") if url.startswith(_FILE) else None


def read_token(path: str) -> Token:
    """Return the token in a file, which is read each time because its issuer replaces it. Raises ConfigError."""
    try:
        text = Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{URL}: {path} can't be read: {getattr(error, 'strerror', None) or 'not a token'}"
        ) from error
    return Token(text, _expiry(text))


def for_librdkafka(config: Mapping[str, str]) -> dict[str, object]:
    """Return settings with a callback in place of the token file, which librdkafka can't read itself."""
    path = token_file(config)
    if path is None:
        return dict(config)
    rest = {name: value for name, value in config.items() if name not in (URL, "sasl.oauthbearer.method")}
    return {**rest, "oauth_cb": lambda _config: tuple(read_token(path))}


def source(config: Mapping[str, str]) -> Callable[[], str]:
    """Return a function that returns a valid token, for librdkafka's settings of a connection. Raises ConfigError."""
    path = token_file(config)
    if path is not None:
        return lambda: read_token(path).text
    if config.get("sasl.oauthbearer.method", "").lower() == "oidc":
        return _Renewed(lambda: _fetch(config))
    if config.get("enable.sasl.oauthbearer.unsecure.jwt", "").lower() == "true":
        return _Renewed(lambda: _unsecured(config.get("sasl.oauthbearer.config", "")))
    raise ConfigError(f"sasl.mechanism OAUTHBEARER needs {URL}, with a server's address or file:///PATH")


class _Renewed:
    """Keeps a token until _MARGIN of its lifetime is over. Used by the threads of one client."""

    def __init__(self, make: Callable[[], Token]):
        self._make = make
        self._lock = threading.Lock()
        self._text = ""
        self._until = 0.0

    def __call__(self) -> str:
        with self._lock:
            now = time.time()
            if now >= self._until:
                token = self._make()
                self._text, self._until = token.text, now + (token.expires - now) * _MARGIN
            return self._text


def _fetch(config: Mapping[str, str]) -> Token:
    """Request a token from a server by client credentials (RFC 6749, section 4.4)."""
    import ssl
    import urllib.parse
    import urllib.request

    url = config.get(URL, "")
    fields = {"grant_type": "client_credentials"}
    if config.get("sasl.oauthbearer.scope"):
        fields["scope"] = config["sasl.oauthbearer.scope"]
    extra = {"cafile": config.get("https.ca.location"), "cadata": config.get("https.ca.pem")}
    user = ":".join(urllib.parse.quote(_credential(config, part), safe="") for part in ("id", "secret"))
    request = urllib.request.Request(
        url,
        urllib.parse.urlencode(fields).encode(),
        {"Authorization": "Basic " + base64.b64encode(user.encode()).decode(), "Accept": "application/json"},
    )
    try:
        context = ssl.create_default_context(**extra) if url.startswith("https:") else None  # type: ignore[arg-type]  # the stub has one type for all arguments
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=context) as response:
            answer = json.load(response)
        return Token(str(answer["access_token"]), time.time() + float(answer.get("expires_in", _LIFE_SECONDS)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        # The response may contain the token, so the message has only the kind of error.
        raise TransportError(f"no token from {url}: {_reason(error)}") from error


def _credential(config: Mapping[str, str], part: str) -> str:
    for name in (f"sasl.oauthbearer.client.credentials.client.{part}", f"sasl.oauthbearer.client.{part}"):
        if config.get(name):
            return config[name]
    raise ConfigError(f"sasl.oauthbearer.client.credentials.client.{part} is missing")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return str(error)
    return "the response has no access_token"


def _unsecured(text: str) -> Token:
    """Create a token without a signature (RFC 7515, appendix A.5), from librdkafka's `principal=NAME lifeSeconds=N`."""
    options = dict(part.split("=", 1) for part in text.split() if "=" in part)
    now = time.time()
    life = float(options.get("lifeSeconds", _LIFE_SECONDS))
    name = options.get("principalClaimName", "sub")
    claims: dict[str, object] = {name: options.get("principal", ""), "iat": now, "exp": now + life}
    parts = ({"alg": "none"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return Token(".".join([*encoded, ""]), now + life)


def _expiry(token: str) -> float:
    """Return when a JSON web token expires; an hour from now if it does not state this."""
    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return float(claims["exp"])
    except (ValueError, IndexError, KeyError, TypeError):
        return time.time() + _LIFE_SECONDS
