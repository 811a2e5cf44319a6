"""The tables whose rows are put and dropped as values. `migrations.py` has their columns."""

from typing import Final

from dlq_master.model.estimates.lessons import Lesson
from dlq_master.model.ids import JobId
from dlq_master.model.machines.rented import Machine
from dlq_master.store.batch import JoinToken, User
from dlq_master.store.tables.notify_rules import NotifyRule
from dlq_master.store.tables.revocations import Revocation
from dlq_master.store.tables.table import Table
from dlq_master.store.tables.tenants import (
    Foreseen,
    GivenGrant,
    HeldGrant,
    Reservation,
    Team,
    Waited,
)

USERS: Final[Table[str, User]] = Table("users", User, "name")
TOKENS: Final[Table[str, JoinToken]] = Table("tokens", JoinToken, "token_id", "expire_time_s")
TEAMS: Final[Table[str, Team]] = Table("teams", Team, "name")
RESERVATIONS: Final[Table[str, Reservation]] = Table("reservations", Reservation, "reservation_id")
MACHINES: Final[Table[str, Machine]] = Table(
    "machines", Machine, "request_id", "pool", "asked_s", "end_s"
)
WAITED: Final[Table[JobId, Waited]] = Table("waited", Waited, "job_id")
FORESEEN: Final[Table[JobId, Foreseen]] = Table("foreseen", Foreseen, "job_id")
NOTIFY_RULES: Final[Table[str, NotifyRule]] = Table("notify_rules", NotifyRule, "rule_id")
REVOCATIONS: Final[Table[str, Revocation]] = Table("revocations", Revocation, "subject")
GRANTS: Final[Table[str, GivenGrant]] = Table("grants", GivenGrant, "serial")
HELD_GRANTS: Final[Table[str, HeldGrant]] = Table("held_grants", HeldGrant, "serial")
LESSONS: Final[Table[str, Lesson]] = Table("lessons", Lesson, "name")

TABLES: Final = (
    USERS, TOKENS, TEAMS, RESERVATIONS, MACHINES, WAITED, FORESEEN, LESSONS, NOTIFY_RULES,
    REVOCATIONS, GRANTS, HELD_GRANTS,
)  # fmt: skip
