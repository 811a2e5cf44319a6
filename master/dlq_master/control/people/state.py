"""The loop's state of people: users, join tokens, revocations, teams, grants, and rules of
notifications. All of it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dlq_master.store.batch import JoinToken, Loaded, User
from dlq_master.store.stored_tables import (
    GRANTS,
    HELD_GRANTS,
    NOTIFY_RULES,
    REVOCATIONS,
    TEAMS,
    TOKENS,
    USERS,
)
from dlq_master.store.tables.notify_rules import NotifyRule
from dlq_master.store.tables.revocations import Revocation
from dlq_master.store.tables.table import Rows
from dlq_master.store.tables.tenants import GivenGrant, HeldGrant, Team


@dataclass(slots=True)
class PeopleState:
    """Users and teams by name, join tokens and rules by id, revocations by subject, grants by
    serial.
    """

    users: Rows[str, User] = field(default_factory=lambda: Rows(USERS))
    tokens: Rows[str, JoinToken] = field(default_factory=lambda: Rows(TOKENS))
    teams: Rows[str, Team] = field(default_factory=lambda: Rows(TEAMS))
    notify_rules: Rows[str, NotifyRule] = field(default_factory=lambda: Rows(NOTIFY_RULES))
    revocations: Rows[str, Revocation] = field(default_factory=lambda: Rows(REVOCATIONS))
    grants: Rows[str, GivenGrant] = field(default_factory=lambda: Rows(GRANTS))
    held_grants: Rows[str, HeldGrant] = field(default_factory=lambda: Rows(HELD_GRANTS))

    def restore(self, loaded: Loaded) -> None:
        """Take over what is stored."""
        self.users = Rows(USERS, loaded.users)
        self.tokens = Rows(TOKENS, loaded.tokens)
        self.teams = Rows(TEAMS, loaded.teams)
        self.notify_rules = Rows(NOTIFY_RULES, loaded.notify_rules)
        self.revocations = Rows(REVOCATIONS, loaded.revocations)
        self.grants = Rows(GRANTS, loaded.grants)
        self.held_grants = Rows(HELD_GRANTS, loaded.held_grants)
