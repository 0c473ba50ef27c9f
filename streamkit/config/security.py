"""Security settings of Kafka's Java clients in librdkafka's terms: stores of keys, and login modules (JAAS)."""

from __future__ import annotations

import re

from streamkit.errors import ConfigError

_JAVA_STORES = (".jks", ".jceks", ".p12", ".pfx", ".pkcs12", ".keystore", ".truststore")
_TRUST = (
    "write ssl.ca.location with a PEM file (keytool -exportcert -rfc -keystore STORE -alias NAME -file ca.pem,"
    " or openssl pkcs12 -in STORE -cacerts -nokeys -out ca.pem)"
)
_OWN = (
    "write ssl.certificate.location and ssl.key.location with PEM files (keytool -importkeystore -srckeystore STORE"
    " -destkeystore client.p12 -deststoretype PKCS12, then openssl pkcs12 -in client.p12 -out client.pem)"
)


def protocol(text: str) -> str:
    """Return security.protocol as librdkafka writes it. Raises ConfigError."""
    if text.lower() not in ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"):
        raise ConfigError(f"must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not {text!r}")
    return text.lower()


def truststore(text: str) -> dict[str, str]:
    """Return ssl.ca.location for a PEM file. Raises ConfigError for the other stores of Java."""
    if text.lower().endswith(_JAVA_STORES):
        raise ConfigError(f"is a Java key store; {_TRUST}")
    return {"ssl.ca.location": text}


def truststore_type(text: str) -> dict[str, str]:
    """Return no setting: PEM is the only type. Raises ConfigError for others."""
    if text.upper() != "PEM":
        raise ConfigError(f"can only be PEM; {_TRUST}")
    return {}


def keystore(text: str) -> dict[str, str]:
    """Return certificate and key of a PEM file that holds both. Raises ConfigError for the other stores of Java."""
    if text.lower().endswith(_JAVA_STORES):
        raise ConfigError(f"is a Java key store; {_OWN}")
    return {"ssl.certificate.location": text, "ssl.key.location": text}


def keystore_type(text: str) -> dict[str, str]:
    """Return no setting: PEM is the only type. Raises ConfigError for others."""
    if text.upper() != "PEM":
        raise ConfigError(f"can only be PEM; {_OWN}")
    return {}


_OPTION = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([^\s;"\']+))')
_MODULE = re.compile(r"\s*(?:[\w.]+\.)?(\w+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)


def jaas(text: str) -> dict[str, str]:
    """Return the settings of a login module of PLAIN, SCRAM or OAUTHBEARER. Raises ConfigError, whose text repeats no option."""
    match = _MODULE.match(text)
    module = match[1] if match else ""
    if match is None or module not in _MODULES:
        raise ConfigError(
            "is understood for PlainLoginModule, ScramLoginModule and OAuthBearerLoginModule only; write"
            " sasl.kerberos.keytab and sasl.kerberos.principal for Kerberos"
        )
    options = {}
    for name, quoted, single, bare in _OPTION.findall(text[match.end() :]):
        options[name] = re.sub(r"\\(.)", r"\1", quoted) or single or bare
    return _MODULES[module](options)


def _password(options: dict[str, str]) -> dict[str, str]:
    if not options.keys() >= {"username", "password"}:
        raise ConfigError("has no username and password; write sasl.username and sasl.password")
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


_UNSECURED = "unsecuredLoginStringClaim_"


def _bearer(options: dict[str, str]) -> dict[str, str]:
    """Client credentials (OAuthBearerLoginCallbackHandler), or claims of a token without signature."""
    claims = {name.removeprefix(_UNSECURED): value for name, value in options.items() if name.startswith(_UNSECURED)}
    if "sub" in claims:
        return {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={claims['sub']}"}
    names = {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    }
    found = {own: options[name] for name, own in names.items() if name in options}
    # Without credentials the token comes from a file, which sasl.oauthbearer.token.endpoint.url names.
    return {**found, "sasl.oauthbearer.method": "oidc"} if "sasl.oauthbearer.client.id" in found else found


_MODULES = {"PlainLoginModule": _password, "ScramLoginModule": _password, "OAuthBearerLoginModule": _bearer}
