"""The writes of one turn of the loop: all its changes, in one transaction."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.estimates.lessons import Lesson
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.recording import Evidence, Recording
from dlq_master.model.machines.rented import Machine
from dlq_master.model.nodes.node import Node
from dlq_master.model.usage.cost import Stay
from dlq_master.store.tables.accounts import PoolRow, UseRow
from dlq_master.store.tables.notify_rules import NotifyRule
from dlq_master.store.tables.revocations import Revocation
from dlq_master.store.tables.table import Changes, Table
from dlq_master.store.tables.tenants import (
    Foreseen,
    GivenGrant,
    HeldGrant,
    Reservation,
    Team,
    Waited,
)

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class User:
    """A user of the cluster. `uid`: on the master's host, and for the jobs."""

    name: str
    role: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    created_time_s: float
    person: str = ""  # tells apart the owners of the name; "" = one (model/jobs/person.py)
    account: str = ""  # of a guest: the account of the host with this uid
    grant: str = ""  # of a guest: the serial of the grant under which they came last
    home: str = ""  # of a guest: the person, as their own cluster knows them

    @property
    def host_name(self) -> str:
        """The name of the host account with this uid."""
        return self.account or self.name

    @property
    def key(self) -> str:
        """The values by which this person's jobs name their owner."""
        return self.person or self.name


@dataclass(frozen=True, slots=True)
class JoinToken:
    """A token with which a node may join. Only the hash of its secret is kept."""

    token_id: str
    node_id: str  # "" = any new name
    secret_hash: str
    created_time_s: float
    expire_time_s: float
    created_by: str
    used_by_key: str = ""  # fingerprint of the public key that used it


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """An answered idempotency key; a repeat gets `result` again."""

    user: str
    request_id: str
    digest: str
    result: str
    time_s: float


@dataclass(frozen=True, slots=True)
class Intention:
    """A command that its node has not confirmed. `dispatch` adds the rest from its attempt."""

    sequence: int
    node_id: NodeId
    kind: str  # launch, stop, signal, save, suspend or resume (control/attempts/dispatch.py)
    key: AttemptKey
    epoch: int  # with the key's number: the fence of the launch
    node_rank: int
    cause: str = ""
    grace_s: float = 0.0


@dataclass(slots=True)
class Batch:
    """Rows to write and to drop. Empty lists cost nothing; an empty batch is not committed."""

    jobs: list[Job] = field(default_factory=list)
    specs: list[tuple[JobId, bytes]] = field(default_factory=list)
    changed_specs: list[tuple[JobId, bytes]] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    forgotten_nodes: list[NodeId] = field(default_factory=list)
    changes: Changes = field(default_factory=dict)  # of the tables in `stored_tables`
    requests: list[StoredRequest] = field(default_factory=list)
    forget_requests_before_s: float | None = None
    events: list[JournalEvent] = field(default_factory=list)
    intentions: list[Intention] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    recordings: list[Recording] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    uses: list[UseRow] = field(default_factory=list)  # added to the stored sums
    idle_uses: list[UseRow] = field(default_factory=list)  # likewise; of them, the idle seconds
    pool_uses: list[PoolRow] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    # Lines of the audit that its file may not have yet: id and line. The writer lets them go.
    audit_owed: list[tuple[str, str]] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)

    def put(self, table: Table[K, V], *values: V) -> None:
        """Add or change rows; the last change of a row in a batch counts."""
        if values:
            self.changes.setdefault(table, {}).update((table.key_of(one), one) for one in values)

    def drop(self, table: Table[K, V], *keys: K) -> None:
        """Remove rows; a missing row is ignored."""
        if keys:
            self.changes.setdefault(table, {}).update(dict.fromkeys(keys))

    def values(self, table: Table[K, V]) -> list[V]:
        """The rows of this table that are added or changed."""
        if table not in self.changes:
            return []
        return [one for one in self.changes[table].values() if one is not None]


class MemoryWindow(NamedTuple):
    """Ended jobs in memory: the latest `most`, none older than `kept_s`."""

    kept_s: float = math.inf
    most: int = sys.maxsize


ALL_ENDED: Final = MemoryWindow()


class PastJobs(NamedTuple):
    """A selection of ended jobs; a field at its default selects all."""

    user: str | None = None
    queue: str = ""
    name: str = ""
    states: frozenset[str] = frozenset()  # words of stored states
    ended_from_s: float | None = None  # and later
    ended_before_s: float | None = None
    team: str = ""
    gpu_type: str = ""  # asked for, or had
    words: tuple[str, ...] = ()  # all of them (list_order.py)
    person: str | None = None  # only of this one, with the name `user` since `since_s`; None: any
    since_s: float = -math.inf

    def spans(self, end_s: float) -> bool:
        """Whether an end is in the requested span."""
        return (self.ended_from_s is None or end_s >= self.ended_from_s) and (
            self.ended_before_s is None or end_s < self.ended_before_s
        )


class JournalCut(NamedTuple):
    """The events that retention does not keep. Events of living jobs are never among them."""

    by_age: int  # up to this sequence, but for jobs that ended at `ended_from_s` or later
    by_count: int  # up to this one, whenever they ended
    ended_from_s: float

    @property
    def horizon(self) -> int:
        """Events behind this sequence are all kept."""
        return max(self.by_age, self.by_count)


MOST_RECORDINGS: Final = 20_000  # are read at a start
MOST_COMPLETED: Final = 5_000  # likewise, of jobs that have left memory, at the first start
TAUGHT: Final = "taught"  # key of meta: "yes" once what was learned lies in rows
BATCH: Final = "batch"  # key of meta: number of the last batch (store/commit_record.py)
CA_FILES: Final = "ca_files"  # key of meta: the files of the CA for other masters, sealed
COPY: Final = "copy"  # key of meta: a master that starts on this starts on a copy of the past
AUDIT_HEAD: Final = "audit_head"  # key of meta: number and hash of the audit's last line on disk
HOOKS_SEEN: Final = "hooks_seen"  # key of meta: up to this sequence hooks were told; "-1": none is
HORIZON: Final = "journal_horizon"  # key of meta: up to this sequence the journal has been cut


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything a starting master reads."""

    meta: Mapping[str, str]
    jobs: tuple[Job, ...]  # all that live or hold something, and the ended ones of the window
    attempts: tuple[Attempt, ...]  # living ones
    nodes: tuple[Node, ...]
    users: tuple[User, ...]
    tokens: tuple[JoinToken, ...]
    intentions: tuple[Intention, ...]
    last_event: int
    last_time_s: float  # newest time in the journal; the clock never starts below it
    last_job: int = 0  # highest number ever given
    complete_from_s: float = -math.inf  # all jobs that ended after this are loaded
    # Of a database of an earlier version, which has no lessons: the newest `MOST_COMPLETED` jobs
    # that completed before the window, oldest first.
    completed: tuple[Job, ...] = ()
    lessons: tuple[Lesson, ...] = ()
    recordings: tuple[Recording, ...] = ()  # the newest `MOST_RECORDINGS`, oldest first
    teams: tuple[Team, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    notify_rules: tuple[NotifyRule, ...] = ()
    revocations: tuple[Revocation, ...] = ()
    grants: tuple[GivenGrant, ...] = ()
    held_grants: tuple[HeldGrant, ...] = ()
    waited: tuple[Waited, ...] = ()  # of jobs that have not ended
    foreseen: tuple[Foreseen, ...] = ()  # by job
    machines: tuple[Machine, ...] = ()  # rented machines that are open or ended lately
    audit_owed: tuple[tuple[str, str], ...] = ()  # in the order in which they came
