"""The login broker: it gives a certificate to the user that the kernel names.

It is a unix socket on the master's host, with one line of JSON each way. The kernel tells the
caller's uid (SO_PEERCRED), not the caller.
"""

from __future__ import annotations

import asyncio
import json
import socket
import stat
import struct
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import (
    AuditUnavailable,
    DlqError,
    InternalError,
    InvalidRequest,
    PermissionDenied,
    TryAgain,
)
from dlq_common.identity.facts import LIFETIME_S
from dlq_common.identity.pki import Role, parse_identity
from dlq_master.control.read_model.ports import Control
from dlq_master.control.stimuli import Caller, SetUser, User
from dlq_master.rpc.audit.audit import Audit
from dlq_master.rpc.people.groups import Groups
from dlq_master.rpc.people.host_accounts import HostAccount
from dlq_master.store.tables.revocations import USER, signing_s

if TYPE_CHECKING:
    from dlq_master.rpc.calls.signs import Signs

LOGIN = "login"
LARGEST_LINE = 32 * 1024
TIMEOUT_S = 5.0
REFUSAL_S = 0.2
MOST_OF_AN_ACCOUNT = 32  # connections at once: each is a file of the master
VERSION = 1
MASTER = Caller("master", Role.ADMIN.value)
_UCRED = struct.Struct("3i")  # pid, uid, gid
# From Python 3.13 on a server takes its socket along when it is closed: also one that systemd holds
# for the next.
_LEAVES_ITS_SOCKET: dict[str, Any] = (
    {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The address, and the facts for callers."""

    socket_path: Path
    api_address: str
    auto_users: bool = True


class LoginBroker:
    """Serves until `stop`."""

    def __init__(
        self,
        settings: BrokerSettings,
        control: Control,
        authority: Signs,
        clock: Clock,
        audit: Audit,
        groups: Groups,
        listening: socket.socket | None = None,
    ) -> None:
        """`listening`: a socket made and kept by another process, in which callers wait
        meanwhile.
        """
        self._listening = listening
        self._settings = settings
        self._control = control
        self._authority = authority
        self._clock = clock
        self._audit = audit
        self.groups = groups
        self._log = get_logger("master.login")
        self._server: asyncio.Server | None = None
        self._open = Counter[int]()  # connections by uid

    async def start(self) -> None:
        """Listen, and replace the socket of a dead master. OSError: another process listens."""
        path = self._settings.socket_path
        if self._listening is not None:
            self._server = await asyncio.start_unix_server(
                self._serve, sock=self._listening, limit=LARGEST_LINE, **_LEAVES_ITS_SOCKET
            )
            return
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        await asyncio.to_thread(_remove_dead_socket, path)
        self._server = await asyncio.start_unix_server(
            self._serve, path, limit=LARGEST_LINE, **_LEAVES_ITS_SOCKET
        )
        # Everybody may ask; the kernel names the caller.
        path.chmod(0o666)

    async def stop(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        if self._server is not None and self._listening is None:
            self._settings.socket_path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = peer_uid(writer)
        self._open[uid] += 1
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if self._open[uid] > 2 * MOST_OF_AN_ACCOUNT:
                    return
                if self._open[uid] > MOST_OF_AN_ACCOUNT:
                    answer = await _too_many(reader, uid)
                else:
                    answer = await self._answer(reader, uid)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (TimeoutError, OSError):
            pass  # a caller who is slow or gone gets nothing
        finally:
            self._open[uid] -= 1
            if not self._open[uid]:
                del self._open[uid]
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, uid: int) -> dict[str, object]:
        try:
            request = _request(await _line(reader))
            self._audit.writer.check()
            user = await self._user(uid)
            rows, now_s = self._control.published.revocations, self._clock.now_s()
            certificate = self._authority.sign_user(
                request, user.name, Role(user.role), signing_s(rows, USER, user.name, now_s)
            )
            # On record before anybody has it.
            whose = parse_identity(certificate)
            await self._audit.recorded(whose, LOGIN, f"uid {uid}", "OK", "unix")
        except DlqError as refusal:
            if not isinstance(refusal, AuditUnavailable):
                self._audit.record(None, LOGIN, f"uid {uid}", refusal.reason, "unix")
            return _refused(refusal)
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
        """The user whose account has this uid, with the account's present groups.

        A missing row is made now if the settings allow. A row with another name belongs to another
        owner of the uid, and is refused.
        """
        known = next((one for one in self._control.published.users() if one.uid == uid), None)
        if known is None and (uid == 0 or not self._settings.auto_users):
            raise PermissionDenied(f"no user of the cluster has uid {uid}", needs="a user row")
        account = await self.groups.accounts.find(uid)
        named = self._control.published.user(account.name)
        if named is not None and named.uid != uid:
            raise PermissionDenied(
                f"the user {account.name} of the cluster has uid {named.uid}, your account has "
                f"{uid}",
                hint=f"an admin gives the name to you: dlq admin user del {account.name}",
            )
        if known is not None and known.name != account.name:
            raise PermissionDenied(
                f"uid {uid} is {account.name} on this host, and {known.name} in the cluster",
                hint=f"an admin frees the uid: dlq admin user del {known.name}",
            )
        if named is None:
            _check_new(account)
            return await self._add(account)
        return await self.groups.refresh(named, account)

    async def _add(self, account: HostAccount) -> User:
        made = await self._control.ask(
            SetUser(
                caller=MASTER,
                request_id="",
                name=account.name,
                role=Role.USER.value,
                uid=account.uid,
                gid=account.gid,
                groups=account.groups,
            )
        )
        assert isinstance(made, User)
        return made


def _check_new(account: HostAccount) -> None:
    """PermissionDenied: this account gets no row by itself."""
    if account.gid == 0:
        raise PermissionDenied(f"the account {account.name} is in the group of root")
    if not account.may_log_in:
        raise PermissionDenied(
            f"the account {account.name} is one that nobody logs in with (shell {account.shell})",
            hint="if it shall submit jobs, an admin adds it: dlq admin user set "
            f"{account.name} --uid {account.uid} --gid {account.gid}",
        )


def peer_uid(writer: asyncio.StreamWriter) -> int:
    """The uid of the peer of this connection, as the kernel noted it at the connect."""
    connection = writer.get_extra_info("socket")
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(raw)[1])


async def _too_many(reader: asyncio.StreamReader, uid: int) -> dict[str, object]:
    """Its line is read: a caller whose words are left unread is cut off, and hears nothing."""
    with suppress(TimeoutError, DlqError):
        async with asyncio.timeout(REFUSAL_S):
            await _line(reader)
    refusal = TryAgain(
        f"uid {uid} has {MOST_OF_AN_ACCOUNT} logins on their way already",
        hint="ask again in a second",
        retry_after_s=1,
        limit="logins",
    )
    return _refused(refusal)


def _refused(refusal: DlqError) -> dict[str, object]:
    told = {"v": VERSION, "error": refusal.what, "reason": refusal.reason}
    return told | ({"hint": refusal.hint} if refusal.hint else {})


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\n")
    except (asyncio.LimitOverrunError, asyncio.IncompleteReadError):
        raise InvalidRequest("one line of JSON is expected") from None


def _request(line: bytes) -> bytes:
    """The certificate request in a line. The answer never repeats the sent text."""
    try:
        parsed = json.loads(line)
        version, csr = parsed["v"], parsed["csr"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidRequest('expected {"v": 1, "csr": PEM}') from None
    if version != VERSION or not isinstance(csr, str):
        raise InvalidRequest('expected {"v": 1, "csr": PEM}')
    return csr.encode("utf-8", "replace")


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
