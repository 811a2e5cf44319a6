"""The groups of users follow their accounts on the master's host. A removed group is gone at the
next start of a job. A uid with another name there ends the rights of its user.

Accounts are read at each login, once a minute for everybody, and within a second of a change of
`/etc/passwd` or `/etc/group`. An account that cannot be found changes nothing: a directory service
that is away looks the same as an account that was deleted. A uid with another name is an answer.
Its user is refused from then on, since jobs and files of that uid are the other person's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError, PermissionDenied
from dlq_master.control.read_model.ports import Control
from dlq_master.control.stimuli import RefreshUser, User
from dlq_master.rpc.people.host_accounts import HostAccount, HostAccounts

EVERY_S: Final = 60.0
LOOK_S: Final = 1.0
FILES: Final = (Path("/etc/passwd"), Path("/etc/group"))


class Groups:
    """Runs until `close`."""

    def __init__(
        self,
        control: Control,
        accounts: HostAccounts,
        lost: Callable[[], object] = lambda: None,
        files: Sequence[Path] = FILES,
    ) -> None:
        """`lost` hears when a user has lost a right. `files`: the host's own accounts."""
        self.accounts = accounts
        self._lost = lost
        self._files = files
        self._others: dict[tuple[str, int], str] = {}  # why their uids are others' by now
        self._control = control
        self._log = get_logger("master.groups")
        self._differing: set[tuple[str, int]] = set()  # users of whom it was said

    def close(self) -> None:
        """No further look-ups; one that hangs is not waited for."""
        self.accounts.close()

    async def run(self) -> None:
        """Refresh everybody from time to time, until cancelled."""
        seen: tuple[tuple[int, int, int], ...] = ()
        waited_s = 0.0
        while True:
            if (now := self._stamps()) != seen or waited_s >= EVERY_S:
                seen, waited_s = now, 0.0
                await self.refresh_all()
            await asyncio.sleep(LOOK_S)
            waited_s += LOOK_S

    def refusal(self, user: User) -> str:
        """Why this user may do nothing: their uid is another person's by now. "": they may."""
        return self._others.get((user.name, user.uid), "") if self._others else ""

    async def refresh_all(self) -> None:
        """Read the groups of all users, one after another."""
        for user in tuple(self._control.published.users()):
            try:
                account = await self.accounts.find(user.uid)
            except PermissionDenied as error:
                self._say(user, error.what)
                continue
            if account.name != user.name:
                self._give_up(user, f"the account of uid {user.uid} is {account.name}")
                continue
            self._others.pop((user.name, user.uid), None)
            self._differing.discard((user.name, user.uid))
            try:
                await self.refresh(user, account)
            except DlqError as error:
                self._log.warning("groups_not_refreshed", user=user.name, cause=error.what)

    async def refresh(self, user: User, account: HostAccount) -> User:
        """The user with the groups of this account, which is theirs. Root's groups are never
        stored.
        """
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

    def _stamps(self) -> tuple[tuple[int, int, int], ...]:
        """Of the files of accounts. One that is away has none."""
        found = []
        for path in self._files:
            with suppress(OSError):
                told = path.stat()
                found.append((told.st_ino, told.st_size, told.st_mtime_ns))
        return tuple(found)

    def _give_up(self, user: User, why: str) -> None:
        self._say(user, why)
        if self._others.get((user.name, user.uid)) != why:
            self._others[user.name, user.uid] = why
            self._lost()

    def _say(self, user: User, why: str) -> None:
        """Once for each user: only an admin removes a user, never a look-up that failed."""
        if (user.name, user.uid) not in self._differing:
            self._differing.add((user.name, user.uid))
            self._log.warning("user_without_account", user=user.name, uid=user.uid, cause=why)
