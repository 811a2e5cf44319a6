"""Users and their groups follow the accounts on the master's host.

An account is read at each login, and at a call if it was not read in the last two seconds
(`FRESH_S`). The call waits half a second for that (`WAIT_S`); the loop never waits. If a directory
service answers later, or not at all, the last answer counts. After five minutes (`KNOWN_S`) the
groups count no more. All users are read once a minute too, and within a second of a change of
`/etc/passwd` or `/etc/group`. That ends open streams.

Two answers end the rights of a user. One is that the uid has another name, so that its jobs and
files are another person's. The other is that the account is gone. The host's own files are believed
at once. A directory is believed only if it finds another of its accounts at this moment. Otherwise
a failed directory would end all users' rights. Users without an account here keep the rights that
an admin gave. `accounts-seen.json` in the state directory names the users with an account.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError, PermissionDenied
from dlq_common.identity.files import write_public
from dlq_master.control.read_model.ports import Control
from dlq_master.control.stimuli import RefreshUser, User
from dlq_master.rpc.people.host_accounts import AccountGone, HostAccount, HostAccounts

FRESH_S: Final = 2.0  # a call accepts an account that was read this recently
WAIT_S: Final = 0.5  # of a call, for the host's answer
KNOWN_S: Final = 300.0  # for this time groups count that the host does not confirm
SEEN: Final = "accounts-seen.json"
WITNESSES: Final = 3
EVERY_S: Final = 60.0
LOOK_S: Final = 1.0
FILES: Final = (Path("/etc/passwd"), Path("/etc/group"))


class Groups:
    """Reads accounts until `close`."""

    def __init__(
        self,
        control: Control,
        accounts: HostAccounts,
        lost: Callable[[], object] = lambda: None,
        files: Sequence[Path] = FILES,
        state_dir: Path | None = None,
    ) -> None:
        """`lost` is called when a user has lost a right. `files`: the host's own accounts.
        `state_dir`: where users with an account are stored; None: nowhere.
        """
        self.accounts = accounts
        self._lost = lost
        self._files = files
        self._others: dict[tuple[str, int], str] = {}  # why their uids are others' by now
        self._control = control
        self._log = get_logger("master.groups")
        self._differing: set[tuple[str, int]] = set()  # users of whom it was said
        self._read_s: dict[tuple[str, int], float] = {}  # when the host was asked last
        self._answered_s: dict[tuple[str, int], float] = {}  # and when it last answered
        self._looking: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._began_s: float | None = None
        self._seen_path = None if state_dir is None else state_dir / SEEN
        self._seen = _read_seen(self._seen_path)  # whether the account was one of the files

    def close(self) -> None:
        """No further look-ups; one that hangs is not waited for."""
        self.accounts.close()

    async def run(self) -> None:
        """Read all users from time to time, until cancelled."""
        seen: tuple[tuple[int, int, int], ...] = ()
        waited_s = 0.0
        while True:
            if (now := self._stamps()) != seen or waited_s >= EVERY_S:
                seen, waited_s = now, 0.0
                await self.refresh_all()
            await asyncio.sleep(LOOK_S)
            waited_s += LOOK_S

    def refusal(self, user: User) -> str:
        """Why this user may do nothing: the uid is another person's now. "": the user may."""
        return self._others.get((user.host_name, user.uid), "") if self._others else ""

    def due(self, name: str) -> Awaitable[object] | None:
        """The look-up for which a call of this user waits; None: none is due.

        A running look-up delays only the call that started it.
        """
        user = self._control.published.user(name)
        if user is None or user.uid == 0:
            return None
        key, now_s = (user.host_name, user.uid), asyncio.get_running_loop().time()
        if key in self._looking or now_s - self._read_s.get(key, -FRESH_S) < FRESH_S:
            return None
        return asyncio.wait([self._begun(user)], timeout=WAIT_S)

    async def refresh_all(self) -> None:
        """Read all users, one after another. One that hangs delays the others for a moment."""
        for user in tuple(self._control.published.users()):
            await asyncio.wait([self._begun(user)], timeout=WAIT_S)

    def _begun(self, user: User) -> asyncio.Task[None]:
        key = (user.host_name, user.uid)
        if key not in self._looking:
            self._read_s[key] = asyncio.get_running_loop().time()
            task = self._looking[key] = asyncio.create_task(self._look(user, key))
            task.add_done_callback(lambda _: self._looking.pop(key, None))
        return self._looking[key]

    async def _look(self, user: User, key: tuple[str, int]) -> None:
        clock_s = asyncio.get_running_loop().time
        self._began_s = clock_s() if self._began_s is None else self._began_s
        left_s = self._answered_s.get(key, self._began_s) + KNOWN_S - clock_s()
        finding = asyncio.ensure_future(self.accounts.find(user.uid))
        await asyncio.wait([finding], timeout=max(0.0, left_s))
        if not finding.done():
            self._say(user, "the host's accounts do not answer")
            await self._forget_groups(user)
        try:
            account = await finding
        except PermissionDenied as error:
            if isinstance(error, AccountGone) and await self._is_believed(key):
                self._give_up(user, f"the account of uid {user.uid} is gone")
                return
            self._say(user, error.what)
            if clock_s() - self._answered_s.get(key, self._began_s) >= KNOWN_S:
                await self._forget_groups(user)
            return
        self._answered_s[key] = clock_s()
        if account.name != user.host_name:
            self._give_up(user, f"the account of uid {user.uid} is {account.name}")
            return
        self._others.pop(key, None)
        self._differing.discard(key)
        self._note_seen(key, account.local)
        present = self._control.published.user(user.name)
        if present is None or present.uid != user.uid:
            return
        try:
            await self.refresh(present, account)
        except DlqError as error:
            self._log.warning("groups_not_refreshed", user=user.name, cause=error.what)

    async def refresh(self, user: User, account: HostAccount) -> User:
        """The user with the groups of this account. Root's groups are never stored."""
        if user.uid == 0 or account.gid == 0:
            return user
        if (user.gid, user.groups) == (account.gid, account.groups):
            return user
        stored = await self._control.ask(
            RefreshUser(name=user.name, uid=account.uid, gid=account.gid, groups=account.groups)
        )
        if stored is None:
            raise PermissionDenied(f"the user {user.name} was removed or changed meanwhile")
        assert isinstance(stored, User)
        return stored

    async def _is_believed(self, key: tuple[str, int]) -> bool:
        """Whether a missing account is really gone: its directory must find another one now."""
        if key not in self._seen:
            return False
        if self._seen[key]:
            return True
        others = [other for other, local in self._seen.items() if not local and other != key]
        for name, uid in others[:WITNESSES]:
            with suppress(PermissionDenied):
                if (await self.accounts.find(uid)).name == name:
                    return True
        return False

    async def _forget_groups(self, user: User) -> None:
        """Drop a user's groups, which have not been confirmed for too long.

        Users without an account here keep those that an admin gave.
        """
        key = (user.host_name, user.uid)
        present = self._control.published.user(user.name)
        if key not in self._seen or present is None or present.uid != user.uid:
            return
        if not present.groups:
            return
        self._log.error("groups_dropped", user=user.name, unanswered_s=KNOWN_S)
        with suppress(DlqError):
            await self._control.ask(
                RefreshUser(name=user.name, uid=user.uid, gid=present.gid, groups=())
            )

    def _note_seen(self, key: tuple[str, int], local: bool) -> None:
        if self._seen.get(key) is local:
            return
        self._seen[key] = local
        if self._seen_path is not None:
            rows = sorted([*one, here] for one, here in self._seen.items())
            try:
                write_public(self._seen_path, json.dumps(rows).encode())
            except OSError as error:  # a full disk ends nothing
                self._log.error("accounts_not_kept", file=str(self._seen_path), cause=str(error))

    def _stamps(self) -> tuple[tuple[int, int, int], ...]:
        """The times of the files of accounts. A missing file has none."""
        found = []
        for path in self._files:
            with suppress(OSError):
                told = path.stat()
                found.append((told.st_ino, told.st_size, told.st_mtime_ns))
        return tuple(found)

    def _give_up(self, user: User, why: str) -> None:
        self._say(user, why)
        if self._others.get((user.host_name, user.uid)) != why:
            self._others[user.host_name, user.uid] = why
            self._lost()

    def _say(self, user: User, why: str) -> None:
        """Log once for each user: a failed look-up never removes a user, only an admin does."""
        if (user.host_name, user.uid) not in self._differing:
            self._differing.add((user.host_name, user.uid))
            self._log.warning("user_without_account", user=user.name, uid=user.uid, cause=why)


def _read_seen(path: Path | None) -> dict[tuple[str, int], bool]:
    """The users with an account; none if the file is missing or damaged. Look-ups add
    them again.
    """
    if path is None:
        return {}
    try:
        return {
            (str(name), int(uid)): bool(local) for name, uid, local in json.loads(path.read_bytes())
        }
    except (OSError, ValueError, TypeError):
        return {}
