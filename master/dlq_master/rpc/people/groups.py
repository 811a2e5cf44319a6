"""The groups of users follow their accounts on the master's host. A removed group is gone at the
next start of a job.

They are read at each login and once a minute for everybody. An account that cannot be found changes
nothing: a directory service that is away looks the same as an account that was deleted.
"""

from __future__ import annotations

import asyncio
from typing import Final

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError, PermissionDenied
from dlq_master.control.read_model.ports import Control
from dlq_master.control.stimuli import RefreshUser, User
from dlq_master.rpc.people.host_accounts import HostAccount, HostAccounts

EVERY_S: Final = 60.0


class Groups:
    """Runs until `close`."""

    def __init__(self, control: Control, accounts: HostAccounts) -> None:
        self.accounts = accounts
        self._control = control
        self._log = get_logger("master.groups")
        self._differing: set[tuple[str, int]] = set()  # users of whom it was said

    def close(self) -> None:
        """No further look-ups; one that hangs is not waited for."""
        self.accounts.close()

    async def run(self) -> None:
        """Refresh everybody from time to time, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.refresh_all()

    async def refresh_all(self) -> None:
        """Read the groups of all users, one after another."""
        for user in tuple(self._control.published.users()):
            try:
                account = await self.accounts.find(user.uid)
            except PermissionDenied as error:
                self._say(user, error.what)
                continue
            if account.name != user.name:
                self._say(user, f"the account of uid {user.uid} is {account.name}")
                continue
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

    def _say(self, user: User, why: str) -> None:
        """Once for each user: only an admin removes a user, never a look-up that failed."""
        if (user.name, user.uid) not in self._differing:
            self._differing.add((user.name, user.uid))
            self._log.warning("user_without_account", user=user.name, uid=user.uid, cause=why)
