"""A broker with TLS, SASL and ACLs: certificates made on the spot, users of every mechanism, everything else forbidden."""

from __future__ import annotations

import subprocess
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.broker.kafka_broker import Broker
from tests.cli.support import LIMIT_S
from tests.ports import free_ports
from tests.requirements import require

PASSWORDS = {"alice": "alice-sesame-1", "bob": "bob-sesame-2", "dave": "dave-sesame-3"}
"""alice: SCRAM; dave: PLAIN; bob: SCRAM, and no rights."""
KEY_PASSWORD = "key-sesame-4"
_MODULES = "org.apache.kafka.common.security"
_SETTINGS = """\
listeners=PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}},SECURE://127.0.0.1:{secure},MUTUAL://127.0.0.1:{mutual}
advertised.listeners=PLAINTEXT://127.0.0.1:{{port}},SECURE://127.0.0.1:{secure},MUTUAL://127.0.0.1:{mutual}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL,MUTUAL:SSL
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
ssl.keystore.type=PEM
ssl.keystore.location={folder}/server.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/
listener.name.mutual.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.secure.plain.sasl.jaas.config={modules}.plain.PlainLoginModule required user_dave="{dave}";
listener.name.secure.scram-sha-256.sasl.jaas.config={modules}.scram.ScramLoginModule required;
listener.name.secure.scram-sha-512.sasl.jaas.config={modules}.scram.ScramLoginModule required;
listener.name.secure.oauthbearer.sasl.jaas.config={modules}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
"""
_RIGHTS = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)


class SecureBroker(Broker):
    """`address` is open and all-powerful; `secure` is for SASL over TLS, `mutual` for certificates of clients."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        require("java", "openssl")
        make_certificates(folder)
        secure, mutual = free_ports(2)
        self.secure, self.mutual = f"127.0.0.1:{secure}", f"127.0.0.1:{mutual}"
        parts = {"secure": secure, "mutual": mutual, "folder": folder, "modules": _MODULES, "dave": PASSWORDS["dave"]}
        super().__init__(folder, settings=_SETTINGS.format(**parts))
        users = [(user, kind) for user in ("alice", "bob") for kind in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
        self.format_options = tuple(
            part for user, kind in users for part in ("--add-scram", f"{kind}=[name={user},password={PASSWORDS[user]}]")
        )

    def allow(self, user: str, prefix: str) -> None:
        """Give a user all rights to topics, groups and transactions whose names begin so."""
        allowed = (AclOperation.ALL, AclPermissionType.ALLOW)
        bindings = [
            AclBinding(kind, prefix, ResourcePatternType.PREFIXED, f"User:{user}", "*", *allowed) for kind in _RIGHTS
        ]
        admin = AdminClient({"bootstrap.servers": self.address})
        for answer in admin.create_acls(bindings).values():
            answer.result(LIMIT_S)

    def deny_writes(self, user: str, topic: str, denied: bool) -> None:
        """Forbid a user to write to a topic, or no longer."""
        place = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*")
        rule = (*place, AclOperation.WRITE, AclPermissionType.DENY)
        admin = AdminClient({"bootstrap.servers": self.address})
        answers = admin.create_acls([AclBinding(*rule)]) if denied else admin.delete_acls([AclBindingFilter(*rule)])
        for answer in answers.values():
            answer.result(LIMIT_S)


def make_certificates(folder: Path) -> None:
    """Write ca.pem, server.pem (key and certificate), client.pem, and client.key, which has a password; other-ca.pem."""
    _authority(folder, "ca")
    _authority(folder, "other-ca")
    _signed(folder, "server", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    _signed(folder, "client", "/CN=carol")
    key, certificate = folder / "server.key", folder / "server.crt"
    (folder / "server.pem").write_text(key.read_text() + certificate.read_text())
    (folder / "client.pem").write_text((folder / "client.crt").read_text())
    plain = folder / "client.key"
    plain.rename(folder / "client.plain.key")
    locked = ["-aes256", "-passout", f"pass:{KEY_PASSWORD}", "-out", str(plain)]
    _openssl("pkey", "-in", str(folder / "client.plain.key"), *locked)


def _authority(folder: Path, name: str) -> None:
    files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
    _openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", *files)


def _signed(folder: Path, name: str, subject: str, *more: str) -> None:
    files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.csr")]
    _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", subject, *more, *files)
    signer = ["-CA", str(folder / "ca.pem"), "-CAkey", str(folder / "ca.key"), "-CAcreateserial", "-days", "2"]
    places = ["-in", str(folder / f"{name}.csr"), "-out", str(folder / f"{name}.crt")]
    _openssl("x509", "-req", "-copy_extensions", "copy", *signer, *places)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
