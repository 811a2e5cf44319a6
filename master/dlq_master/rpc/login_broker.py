"""The login broker: who the kernel says is calling gets a certificate for their user.

A unix socket on the master's host; one line of JSON each way. The caller's word about themselves is
not asked for: SO_PEERCRED is.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dlq_common.clock import Clock
from dlq_common.errors import (
    AuditUnavailable,
    DlqError,
    InternalError,
    InvalidRequest,
    PermissionDenied,
)
from dlq_common.logs import get_logger
from dlq_common.names import check_user_name
from dlq_common.pki import LIFETIME_S, Authority, Role, parse_identity
from dlq_master.control.ports import Control
from dlq_master.control.stimuli import Caller, SetUser, User
from dlq_master.rpc.audit import Audit

LOGIN = "login"
LARGEST_LINE = 32 * 1024
TIMEOUT_S = 5.0
VERSION = 1
MASTER = Caller("master", Role.ADMIN.value)
_UCRED = struct.Struct("3i")  # pid, uid, gid


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Where it listens, and what it tells those who come."""

    socket_path: Path
    api_address: str
    auto_users: bool = True


class LoginBroker:
    """Serves until `stop`."""

    def __init__(
        self,
        settings: BrokerSettings,
        control: Control,
        authority: Authority,
        clock: Clock,
        audit: Audit,
        listening: socket.socket | None = None,
    ) -> None:
        """`listening` is a socket that somebody else made, and keeps: callers wait in it meanwhile."""
        self._listening = listening
        self._settings = settings
        self._control = control
        self._authority = authority
        self._clock = clock
        self._audit = audit
        self._log = get_logger("master.login")
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; a socket that a dead master left is replaced. OSError when another one listens."""
        path = self._settings.socket_path
        if self._listening is not None:
            self._server = await asyncio.start_unix_server(
                self._serve, sock=self._listening, limit=LARGEST_LINE
            )
            return
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        await asyncio.to_thread(_remove_dead_socket, path)
        self._server = await asyncio.start_unix_server(self._serve, path, limit=LARGEST_LINE)
        # Everybody may ask; who they are is for the kernel to say.
        path.chmod(0o666)

    async def stop(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        if self._server is not None and self._listening is None:
            self._settings.socket_path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await self._answer(reader, peer_uid(writer))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (TimeoutError, OSError):
            pass  # a caller who is slow or gone gets nothing
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, uid: int) -> dict[str, object]:
        try:
            request = _request(await _line(reader))
            self._audit.writer.check()
            user = await self._user(uid)
            certificate = self._authority.sign_user(
                request, user.name, Role(user.role), self._clock.now_s()
            )
            # On record before anybody has it.
            whose = parse_identity(certificate)
            await self._audit.recorded(whose, LOGIN, f"uid {uid}", "OK", "unix")
        except DlqError as refusal:
            if not isinstance(refusal, AuditUnavailable):
                self._audit.record(None, LOGIN, f"uid {uid}", refusal.reason, "unix")
            return {"v": VERSION, "error": refusal.what, "reason": refusal.reason}
        except Exception as error:  # noqa: BLE001 - the caller must not see our text
            self._log.error("login_failed", uid=uid, exc_info=error)
            return {"v": VERSION, "error": "a fault of the master", "reason": InternalError.reason}
        return {
            "v": VERSION,
            "certificate": certificate.decode(),
            "ca": self._authority.certificate_pem().decode(),
            "address": self._settings.api_address,
            "cluster": self._authority.cluster,
            "user": user.name,
            "role": user.role,
            "expires_in_s": int(LIFETIME_S),
        }

    async def _user(self, uid: int) -> User:
        """The user with this uid; made now if they have an account here and the settings allow."""
        users = self._control.published.users()
        known = next((user for user in users if user.uid == uid), None)
        if known is not None:
            return known
        if uid == 0 or not self._settings.auto_users:
            raise PermissionDenied(f"no user of the cluster has uid {uid}", needs="a user row")
        name, gid, groups = await asyncio.to_thread(_account, uid)
        if self._control.published.user(name) is not None:
            raise PermissionDenied(f"the user {name} of the cluster has another uid than {uid}")
        made = await self._control.ask(
            SetUser(
                caller=MASTER,
                request_id="",
                name=name,
                role=Role.USER.value,
                uid=uid,
                gid=gid,
                groups=groups,
            )
        )
        assert isinstance(made, User)
        return made


def peer_uid(writer: asyncio.StreamWriter) -> int:
    """The numeric user id of whoever opened this connection, as the kernel noted it then."""
    connection = writer.get_extra_info("socket")
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(raw)[1])


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\n")
    except (asyncio.LimitOverrunError, asyncio.IncompleteReadError):
        raise InvalidRequest("one line of JSON is expected") from None


def _request(line: bytes) -> bytes:
    """The certificate request in a line; the answer never repeats what was sent."""
    try:
        parsed = json.loads(line)
        version, csr = parsed["v"], parsed["csr"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidRequest('expected {"v": 1, "csr": PEM}') from None
    if version != VERSION or not isinstance(csr, str):
        raise InvalidRequest('expected {"v": 1, "csr": PEM}')
    return csr.encode("utf-8", "replace")


def _account(uid: int) -> tuple[str, int, tuple[int, ...]]:
    """Name, group and supplementary groups of an account of this host; may ask a directory service."""
    try:
        entry = pwd.getpwuid(uid)
        name = check_user_name(entry.pw_name)
    except (KeyError, ValueError):
        raise PermissionDenied(f"uid {uid} has no account here with a usable name") from None
    if entry.pw_gid == 0:
        raise PermissionDenied(f"the account of uid {uid} is in the group of root")
    groups = os.getgrouplist(name, entry.pw_gid)
    return name, entry.pw_gid, tuple(sorted({gid for gid in groups if gid > 0} - {entry.pw_gid}))


def _remove_dead_socket(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(f"{path} is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise FileExistsError(f"another master listens at {path}")
