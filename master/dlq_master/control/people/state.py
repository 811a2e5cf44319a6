"""The loop's state of people: users, join tokens and teams. All of it is stored."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlq_master.store.batch import JoinToken, Loaded, User
from dlq_master.store.stored_tables import TEAMS, TOKENS, USERS
from dlq_master.store.tables.table import Rows
from dlq_master.store.tables.tenants import Team


@dataclass(slots=True)
class PeopleState:
    """Users and teams by name, join tokens by id."""

    users: Rows[str, User] = field(default_factory=lambda: Rows(USERS))
    tokens: Rows[str, JoinToken] = field(default_factory=lambda: Rows(TOKENS))
    teams: Rows[str, Team] = field(default_factory=lambda: Rows(TEAMS))

    def restore(self, loaded: Loaded) -> None:
        """Take over what is stored."""
        self.users = Rows(USERS, loaded.users)
        self.tokens = Rows(TOKENS, loaded.tokens)
        self.teams = Rows(TEAMS, loaded.teams)
