"""A guest's identity at the cluster of another organisation: introduced at home, traded there.

The key is made here and stays here. Nothing is kept in between: a command that is killed asks for
another introduction.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import grpc

from dlq.v1 import identity_service_pb2 as wire
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub, JoinServiceStub
from dlq_client.line.connection import CALL_DEADLINE_S, Connection, channel_options
from dlq_client.line.errors import from_rpc_error
from dlq_client.line.identity import Identity, certified
from dlq_common.errors import ConfigError
from dlq_common.identity.files import write_public
from dlq_common.identity.pki import new_key_and_csr, requested_key_fingerprint

FILE = "grant.json"


class GuestPlace(NamedTuple):
    """How the identity in a directory is got: the grant, and the directory of the own cluster."""

    grant: str
    own_home: Path


def read_place(home: Path) -> GuestPlace | None:
    """The place that `keep_place` wrote; None: no guest's identity is there. ConfigError."""
    path = home / FILE
    try:
        told = json.loads(path.read_bytes())
        return GuestPlace(str(told["grant"]), Path(str(told["own_home"])))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", source=path) from None
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{path} is damaged", hint="dlq login --grant NAME") from None


def keep_place(home: Path, place: GuestPlace) -> None:
    """Later commands get another certificate by themselves."""
    told = {"grant": place.grant, "own_home": str(place.own_home)}
    write_public(home / FILE, (json.dumps(told, indent=2) + "\n").encode())


def enter(own: Connection, grant: str) -> Identity:
    """The identity of a guest. `own`: the line to the own cluster, which knows the grant. Raises a
    DlqError of either cluster.
    """
    fresh = new_key_and_csr(own.identity.user)
    asked = wire.IntroduceRequest(
        grant=grant, key_fingerprint=requested_key_fingerprint(fresh.request)
    )
    told = own.call(IdentityServiceStub(own.channel).Introduce, asked)
    credentials = grpc.ssl_channel_credentials(told.ca_certificates)
    request = wire.EnterAsGuestRequest(
        introduction=told.introduction, certificate_request=fresh.request
    )
    with grpc.secure_channel(told.join_address, credentials, channel_options()) as channel:
        try:
            answer = own.asking(
                lambda: JoinServiceStub(channel).EnterAsGuest(request, timeout=CALL_DEADLINE_S)
            )
        except grpc.RpcError as error:
            raise from_rpc_error(error, told.join_address) from None
    ca = answer.ca_certificates or told.ca_certificates
    return certified(fresh.key, answer.certificate, ca, answer.api_address)
