"""What the loop keeps of people: users, join tokens and teams. All of it is stored."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlq_master.store.batch import JoinToken, Loaded, User
from dlq_master.store.tables.tenants import Team


@dataclass(slots=True)
class PeopleState:
    """Users and teams by name, join tokens by id."""

    users: dict[str, User] = field(default_factory=dict)
    tokens: dict[str, JoinToken] = field(default_factory=dict)
    teams: dict[str, Team] = field(default_factory=dict)

    def restore(self, loaded: Loaded) -> None:
        """Take over what is stored."""
        self.users = {user.name: user for user in loaded.users}
        self.tokens = {token.token_id: token for token in loaded.tokens}
        self.teams = {team.name: team for team in loaded.teams}
