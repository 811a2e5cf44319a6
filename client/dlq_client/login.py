"""How an identity is got (from the login broker's socket) and kept (renewed over mutual TLS)."""

from __future__ import annotations

import hashlib
import json
import socket
from pathlib import Path

from dlq.v1 import identity_service_pb2 as wire
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub
from dlq_client.line.connection import Connection
from dlq_client.line.identity import Identity, certified
from dlq_common.errors import DlqError, PermissionDenied, Unavailable
from dlq_common.identity.pki import new_key_and_csr

LOGIN_TIMEOUT_S = 10.0
LARGEST_ANSWER_BYTES = 64 * 1024


def login(socket_path: Path, wished_name: str) -> Identity:
    """Ask the broker on the master's host for a certificate; it knows the caller by the kernel.

    Unavailable without a listener there, PermissionDenied when the broker refuses this user.
    """
    fresh = new_key_and_csr(wished_name)
    answer = _ask(socket_path, {"v": 1, "csr": fresh.request.decode("ascii")})
    if "error" in answer:
        raise PermissionDenied(
            f"login refused: {answer['error']}",
            hint=str(answer.get("hint", "")),
            cause=str(answer.get("reason", "")),
        )
    try:
        certificate, ca = (str(answer[name]).encode("ascii") for name in ("certificate", "ca"))
        return certified(fresh.key, certificate, ca, str(answer["address"]))
    except (KeyError, UnicodeEncodeError, DlqError) as error:
        raise Unavailable(f"the login broker's answer makes no sense: {error}") from None


def renew(connection: Connection) -> Identity:
    """A new key and certificate for the same name and role; the old ones stay good until they
    end.
    """
    old = connection.identity
    fresh = new_key_and_csr(old.user)
    stub = IdentityServiceStub(connection.channel)
    answer = connection.call(
        stub.RenewCertificate, wire.RenewCertificateRequest(certificate_request=fresh.request)
    )
    ca = answer.ca_certificates or old.ca
    return certified(fresh.key, answer.certificate, ca, old.address)


def renewal_wanted(connection: Connection) -> bool:
    """Whether the master wishes a renewal now, because the CA of the cluster changes."""
    digest = hashlib.sha256(connection.identity.ca).hexdigest()
    stub = IdentityServiceStub(connection.channel)
    answer = connection.call(stub.CheckIdentity, wire.CheckIdentityRequest(trust_digest=digest))
    return answer.renewal_wanted


def make_sign_in_link(connection: Connection) -> wire.CreateSignInLinkResponse:
    """A secret that signs one browser in as the caller, at the cluster's web server."""
    stub = IdentityServiceStub(connection.channel)
    return connection.call(stub.CreateSignInLink, wire.CreateSignInLinkRequest())


def _ask(path: Path, question: dict[str, object]) -> dict[str, object]:
    """Send and receive one JSON line."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(LOGIN_TIMEOUT_S)
            line.connect(str(path))
            line.sendall(json.dumps(question).encode("utf-8") + b"\n")
            text = _read_line(line)
    except OSError as error:
        raise Unavailable(
            f"no login broker answers at {path}: {error.strerror or error}",
            hint="log in on the master's host, or name its socket with --socket",
        ) from None
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Unavailable(f"the program at {path} is not a login broker")
    return answer


def _read_line(line: socket.socket) -> bytes:
    received = bytearray()
    while b"\n" not in received and len(received) < LARGEST_ANSWER_BYTES:
        piece = line.recv(4096)
        if not piece:
            break
        received += piece
    return bytes(received).partition(b"\n")[0]
