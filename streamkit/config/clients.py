"""The one table from the names of Kafka's Java clients to librdkafka's, and the names that have no counterpart.

Roles: "consumer" (main, restore and global ones), "producer", "admin"; a row lists the roles that have the name.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from streamkit.config.settings import parse_reset
from streamkit.errors import ConfigError

# The names of librdkafka's own settings (2.x: what rd_kafka_conf_properties_show prints, callbacks left out).

COMMON = frozenset(
    """
    allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    bootstrap.servers broker.address.family broker.address.ttl broker.version.fallback client.dns.lookup
    client.id client.rack connections.max.idle.ms debug enable.metrics.push enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification enabled_events https.ca.location
    https.ca.pem log.connection.close log.queue log.thread.name log_level max.in.flight
    max.in.flight.requests.per.connection message.copy.max.bytes message.max.bytes metadata.broker.list
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    plugin.library.paths receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
    reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism
    sasl.mechanisms sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config
    sasl.oauthbearer.extensions sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type
    sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol socket.blocking.max.ms
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
    socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores
    ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites ssl.crl.location
    ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location ssl.key.location
    ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers ssl.sigalgs.list
    statistics.interval.ms topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    """.split()  # noqa: SIM905 - a list of names reads better as text
)
CONSUMER = frozenset(
    """
    auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs consume.callback.max.messages
    coordinator.query.interval.ms enable.auto.commit enable.auto.offset.store enable.partition.eof
    fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type group.remote.assignor
    heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    offset.store.method offset.store.path offset.store.sync.interval.ms partition.assignment.strategy
    queued.max.messages.kbytes queued.min.messages session.timeout.ms share.acknowledgement.mode
    """.split()  # noqa: SIM905 - a list of names reads better as text
)
PRODUCER = frozenset(
    """
    acks batch.num.messages batch.size compression.codec compression.level compression.type
    delivery.report.only.error delivery.timeout.ms enable.gapless.guarantee enable.idempotence linger.ms
    message.send.max.retries message.timeout.ms partitioner produce.offset.report
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms request.required.acks request.timeout.ms retries sticky.partitioning.linger.ms
    transaction.timeout.ms transactional.id
    """.split()  # noqa: SIM905 - a list of names reads better as text
)
LIBRDKAFKA_NAMES = COMMON | CONSUMER | PRODUCER


# Security settings of Kafka's Java clients in librdkafka's terms: stores of keys, and login modules (JAAS).

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
    settings = {own: options[name] for name, own in names.items() if name in options}
    # Without credentials the token comes from a file, which sasl.oauthbearer.token.endpoint.url names.
    return {**settings, "sasl.oauthbearer.method": "oidc"} if "sasl.oauthbearer.client.id" in settings else settings


_MODULES = {"PlainLoginModule": _password, "ScramLoginModule": _password, "OAuthBearerLoginModule": _bearer}


# The table: a row for each name of the Java clients.

Convert = Callable[[str], dict[str, str]]
ALL = "consumer producer admin"


class Row:
    """A setting of the Java clients: the roles that have it, and the conversion to librdkafka's settings."""

    __slots__ = ("convert", "roles")

    def __init__(self, roles: str, convert: Convert):
        self.roles = frozenset(roles.split())
        self.convert = convert


def _to(name: str, value: Callable[[str], str] = str) -> Convert:
    return lambda text: {name: value(text)}


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError(f"must be a whole number, not {text!r}") from error


def _buffer(text: str) -> str:
    return str(max(0, _integer(text)))  # Java's -1 and librdkafka's 0 are the system's default


def _kilobytes(text: str) -> str:
    return str(max(1, _integer(text) // 1024))


def _timeout(text: str) -> dict[str, str]:
    return {"socket.timeout.ms": str(min(max(_integer(text), 10), 300_000))}


def _acks(text: str) -> dict[str, str]:
    if text not in ("all", "-1", "0", "1"):
        raise ConfigError(f"must be all, -1, 0 or 1, not {text!r}")
    return {"acks": text}


def _isolation(text: str) -> dict[str, str]:
    if text not in ("read_committed", "read_uncommitted"):
        raise ConfigError(f"must be read_committed or read_uncommitted, not {text!r}")
    return {"isolation.level": text}


def _reset(text: str) -> dict[str, str]:
    parse_reset(text)
    return {}  # streamkit finds the offset by itself


def _nothing(text: str) -> dict[str, str]:
    return {}


_SAME = {
    ALL: "client.dns.lookup connections.max.idle.ms enable.metrics.push metadata.recovery.strategy "
    "metadata.recovery.rebootstrap.trigger.ms reconnect.backoff.ms reconnect.backoff.max.ms retry.backoff.ms "
    "retry.backoff.max.ms sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name "
    "sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url socket.connection.setup.timeout.ms "
    "ssl.cipher.suites ssl.key.password client.id",
    "consumer": "allow.auto.create.topics check.crcs client.rack fetch.max.bytes fetch.min.bytes group.instance.id "
    "heartbeat.interval.ms max.partition.fetch.bytes max.poll.interval.ms session.timeout.ms",
    "producer": "batch.size compression.type delivery.timeout.ms enable.idempotence linger.ms "
    "max.in.flight.requests.per.connection retries transaction.timeout.ms",
}
JAVA: dict[str, Row] = {
    **{name: Row(roles, _to(name)) for roles, names in _SAME.items() for name in names.split()},
    "metadata.max.age.ms": Row(ALL, _to("topic.metadata.refresh.interval.ms")),
    "receive.buffer.bytes": Row(ALL, _to("socket.receive.buffer.bytes", _buffer)),
    "send.buffer.bytes": Row(ALL, _to("socket.send.buffer.bytes", _buffer)),
    "request.timeout.ms": Row(ALL, _timeout),
    "security.protocol": Row(ALL, _to("security.protocol", protocol)),
    "sasl.mechanism": Row(ALL, _to("sasl.mechanism")),
    "sasl.jaas.config": Row(ALL, jaas),
    "ssl.endpoint.identification.algorithm": Row(
        ALL, _to("ssl.endpoint.identification.algorithm", lambda text: text.lower() or "none")
    ),
    "ssl.truststore.location": Row(ALL, truststore),
    "ssl.truststore.certificates": Row(ALL, _to("ssl.ca.pem")),
    "ssl.truststore.type": Row(ALL, truststore_type),
    "ssl.keystore.location": Row(ALL, keystore),
    "ssl.keystore.certificate.chain": Row(ALL, _to("ssl.certificate.pem")),
    "ssl.keystore.key": Row(ALL, _to("ssl.key.pem")),
    "ssl.keystore.type": Row(ALL, keystore_type),
    "auto.offset.reset": Row("consumer", _reset),
    "fetch.max.wait.ms": Row("consumer", _to("fetch.wait.max.ms")),
    "isolation.level": Row("consumer", _isolation),
    "max.poll.records": Row("consumer", _nothing),  # the threads of streamkit take batches of this size
    "acks": Row("producer", _acks),
    "buffer.memory": Row("producer", _to("queue.buffering.max.kbytes", _kilobytes)),
    "compression.gzip.level": Row("producer", _to("compression.level")),
    "compression.lz4.level": Row("producer", _to("compression.level")),
    "compression.zstd.level": Row("producer", _to("compression.level")),
    "max.request.size": Row("producer", _to("message.max.bytes")),
}

_SERDE = "the serdes of 'topics' decide"
_OWN_COMMIT = "streamkit commits by itself, every commit.interval.ms"
_NO_JAVA = "it names a Java class, which Python can't load"
_RENEWED = "librdkafka renews a token when 80% of its life is over"
_CHECKED = "brokers check tokens"
_NO_METRICS = "clients have no metrics of their own; write it without a prefix"
_OWN_CALLS = "streamkit sets it, since it follows from how it calls librdkafka"
_UNUSED = "librdkafka takes no notice of it any more"
_OPENSSL = "OpenSSL decides; ssl.cipher.suites, ssl.curves.list and ssl.sigalgs.list are what it offers"
REFUSED: dict[str, str] = {
    "key.serializer": _SERDE, "value.serializer": _SERDE, "key.deserializer": _SERDE, "value.deserializer": _SERDE,
    "enable.auto.commit": _OWN_COMMIT, "auto.commit.interval.ms": "write commit.interval.ms",
    "auto.commit.enable": _OWN_COMMIT, "enable.auto.offset.store": _OWN_COMMIT, "offset.store.method": _OWN_COMMIT,
    "group.id": "the group is 'application:' of the file",
    "group.protocol": "write it without a prefix",
    "group.protocol.type": "assignment is that of Kafka Streams",
    "group.remote.assignor": "assignment is that of Kafka Streams",
    "partition.assignment.strategy": "assignment is that of Kafka Streams; rack.aware.assignment.tags steers it",
    "transactional.id": "streamkit makes one for each thread; write processing.guarantee: exactly_once_v2",
    "partitioner": "write 'partition:' of 'to'", "partitioner.class": "write 'partition:' of 'to'",
    "partitioner.ignore.keys": "write 'partition:' of 'to'",
    "partitioner.adaptive.partitioning.enable": "write 'partition:' of 'to'",
    "partitioner.availability.timeout.ms": "write 'partition:' of 'to'",
    "interceptor.classes": f"{_NO_JAVA}; write a 'process' step",
    "metric.reporters": f"{_NO_JAVA}; the metrics of streamkit are read over HTTP",
    "auto.include.jmx.reporter": "there is no JMX; the metrics of streamkit are read over HTTP",
    "config.providers": "write ${NAME}, which reads the environment",
    "default.api.timeout.ms": "write task.timeout.ms, or request.timeout.ms",
    "max.block.ms": "write task.timeout.ms", "metadata.max.idle.ms": "write topic.metadata.refresh.sparse",
    "exclude.internal.topics": "internal topics are never matched by a pattern",
    "bootstrap.controllers": "write bootstrap.servers",
    "enable.transactional.two.phase.commit": "write processing.guarantee: exactly_once_v2",
    "socket.connection.setup.timeout.max.ms": "write socket.connection.setup.timeout.ms",
    "security.providers": _NO_JAVA, "ssl.engine.factory.class": f"{_NO_JAVA}; write ssl.engine.location",
    "ssl.truststore.password": "a PEM file needs none; write ssl.ca.location",
    "ssl.keystore.password": "a PEM file has none of its own; write ssl.key.password for an encrypted key",
    "ssl.enabled.protocols": _OPENSSL, "ssl.protocol": _OPENSSL, "ssl.provider": f"{_OPENSSL}; write ssl.providers",
    "ssl.keymanager.algorithm": _OPENSSL, "ssl.trustmanager.algorithm": _OPENSSL,
    "ssl.secure.random.implementation": _OPENSSL,
    "sasl.client.callback.handler.class": f"{_NO_JAVA}; write sasl.mechanism and its settings",
    "sasl.login.callback.handler.class": f"{_NO_JAVA}; write sasl.oauthbearer.method: oidc and its settings",
    "sasl.login.refresh.buffer.seconds": _RENEWED, "sasl.login.refresh.min.period.seconds": _RENEWED,
    "sasl.login.refresh.window.factor": _RENEWED, "sasl.login.refresh.window.jitter": _RENEWED,
    "sasl.login.retry.backoff.ms": _RENEWED, "sasl.login.retry.backoff.max.ms": _RENEWED,
    "sasl.login.class": f"{_NO_JAVA}; write sasl.oauthbearer.method: oidc and its settings",
    "sasl.login.connect.timeout.ms": "write socket.timeout.ms", "sasl.login.read.timeout.ms": "write socket.timeout.ms",
    "sasl.kerberos.ticket.renew.jitter": "write sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.window.factor": "write sasl.kerberos.min.time.before.relogin",
    "sasl.oauthbearer.scope.claim.name": "write sasl.oauthbearer.scope",
    "sasl.oauthbearer.jwks.endpoint.url": "write sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.expected.audience": "write sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.expected.issuer": "write sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.template.file": "write sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.header.urlencode": "librdkafka writes the client's id and secret as they are",
    "sasl.oauthbearer.jwt.retriever.class": f"{_NO_JAVA}; write sasl.oauthbearer.method: oidc and its settings",
    "sasl.oauthbearer.jwt.validator.class": f"{_NO_JAVA}; {_CHECKED}",
    "sasl.oauthbearer.clock.skew.seconds": _CHECKED, "sasl.oauthbearer.jwks.endpoint.refresh.ms": _CHECKED,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _CHECKED,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _CHECKED,
    "sasl.oauthbearer.allow.unverified.audience": _CHECKED, "sasl.oauthbearer.allow.unverified.issuer": _CHECKED,
    "bootstrap.resolve.timeout.ms": "names are looked up at each connection",
    "metadata.cluster.check.enable": "librdkafka does not send the cluster and node that it expects",
    "buffer.memory.allocation.strategy": "librdkafka takes memory as records come",
    "partitioner.rack.aware": "write 'partition:' of 'to'",
    "metrics.num.samples": _NO_METRICS, "metrics.recording.level": _NO_METRICS,
    "metrics.sample.window.ms": _NO_METRICS,
    "share.acquire.mode": "a topology reads its topics as a consumer group, not as a share group",
    "transaction.two.phase.commit.enable": "write processing.guarantee: exactly_once_v2",
    "internal.throw.on.fetch.stable.offset.unsupported": "it is internal to Kafka Streams",
    "statistics.interval.ms": "the metrics of streamkit are read over HTTP",
    "metadata.broker.list": "write bootstrap.servers", "enable.partition.eof": _OWN_CALLS,
    "enabled_events": _OWN_CALLS, "log.queue": _OWN_CALLS, "consume.callback.max.messages": _OWN_CALLS,
    "delivery.report.only.error": _OWN_CALLS, "produce.offset.report": _UNUSED, "socket.blocking.max.ms": _UNUSED,
    "offset.store.path": "the group keeps offsets", "offset.store.sync.interval.ms": "the group keeps offsets",
    "coordinator.query.interval.ms": "librdkafka is no member of the group; write heartbeat.interval.ms",
    "share.acknowledgement.mode": "a topology reads its topics as a consumer group, not as a share group",
    "plugin.library.paths": "a topology can't load native code",
}  # fmt: skip
"""Settings of the clients that a file can't set, with what to write in their place."""

KNOWN = tuple({*JAVA, *LIBRDKAFKA_NAMES} - set(REFUSED))
"""Every setting of a client that a file may have."""


def roles_of(name: str) -> frozenset[str]:
    """Return the roles that have a setting, by its name in Java or librdkafka; none for an unknown name."""
    if name in JAVA:
        return JAVA[name].roles
    roles = set()
    if name in COMMON:
        roles |= {"consumer", "producer", "admin"}
    if name in CONSUMER:
        roles.add("consumer")
    if name in PRODUCER:
        roles.add("producer")
    return frozenset(roles)


def translate(name: str, text: str) -> dict[str, str]:
    """Return librdkafka's settings of a setting. Raises ConfigError for a value without counterpart."""
    row = JAVA.get(name)
    if row is None:
        return {name: text}
    try:
        return row.convert(text)
    except ConfigError as error:
        raise ConfigError(f"{name} {error}") from error
