"""Requests of operators and admins, and about rules of notifications.

Addresses and keys of rules are secrets: no `repr` shows them.
"""

from dataclasses import dataclass, field

from dlq_master.control.stimuli.caller import Answered, CallerRequest, NodeRequest
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.nodes.node import Node, NodeFlag
from dlq_master.store.batch import JoinToken, User
from dlq_master.store.tables.chosen_policy import Chosen
from dlq_master.store.tables.notify_rules import NotifyRule
from dlq_master.store.tables.revocations import Revocation
from dlq_master.store.tables.tenants import (
    GivenGrant,
    GrantLimits,
    GuestAccount,
    HeldGrant,
    Reservation,
    Team,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateToken(CallerRequest[JoinToken]):
    """Make a join token; the caller made the secret and hands in its hash."""

    token_id: str
    secret_hash: str
    node_id: str
    lifetime_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeToken(CallerRequest[None]):
    """Make a token useless."""

    token_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeCertificates(CallerRequest[Revocation]):
    """Make certificates worthless: one by its serial, or all that a user or node has by now."""

    subject: str  # as in Revocation
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UseToken(Answered[NodeId]):
    """A node wants in. Refused with Unauthenticated."""

    token_id: str
    secret_hash: str
    key_fingerprint: str
    wished_node_id: str


@dataclass(frozen=True, slots=True)
class Fenced:
    """The node after the fence, and the jobs whose attempts were lost by it."""

    node: Node
    job_ids: tuple[JobId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceNode(NodeRequest[Fenced]):
    """The machine is off, says an operator."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodeFlags(NodeRequest[Node]):
    """Set and clear flags of a node, and of `more` at once."""

    set_flags: frozenset[NodeFlag]
    clear_flags: frozenset[NodeFlag]
    reason: str
    accept_loss: bool = True  # False: WorkWouldBeLost when a drain would lose what jobs have done
    more: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodeLabels(NodeRequest[Node]):
    """Set and clear labels of a node."""

    set_labels: frozenset[str]  # `K=V`
    clear_labels: frozenset[str]  # names


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptGpus(NodeRequest[Node]):
    """Use the GPUs that a node shows beyond those it was accepted with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearGpuConditions(NodeRequest[Node]):
    """Take GPUs for healthy; no indexes: all of them."""

    indexes: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetNode(NodeRequest[None]):
    """Drop a node that is DOWN and empty; its certificate is refused from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUser(CallerRequest[User]):
    """Add or change a user. `request_id` "" = the login broker's own."""

    name: str
    role: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    same_person: bool = False  # also with another uid: their jobs stay theirs


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshUser(Answered[User | None]):
    """The groups that a user's account has now, on the master's host. Changes nothing of a user who
    is gone or has another uid by now. Its answer is None then."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UserDeleted:
    """How many jobs of theirs were cancelled, and how many given to somebody else."""

    cancelled: int = 0
    given: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteUser(CallerRequest[UserDeleted]):
    """Remove a user. Jobs that live are given to `give_to` as far as that can be, else cancelled if
    `cancel_jobs`; while any is left the user stays."""

    name: str
    cancel_jobs: bool = False
    give_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeGrant(CallerRequest[GivenGrant]):
    """Lend GPUs to another organisation. A repeat is answered with the first one's grant."""

    new_serial: str  # drawn anew by each try
    organisation: str
    ca: str
    team: str
    accounts: tuple[GuestAccount, ...]
    limits: GrantLimits
    lifetime_s: float
    replace: bool = False


@dataclass(frozen=True, slots=True)
class GrantRevoked:
    """The grant as it is now, and how many jobs were cancelled."""

    grant: GivenGrant | HeldGrant
    cancelled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeGrant(CallerRequest[GrantRevoked]):
    """End a grant that was given, or forget one that was got."""

    serial: str  # or the word for the organisation, of one that was got
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitGuest(CallerRequest[User]):
    """A guest comes with an introduction. The caller is the grant, and the request id is the number
    of the introduction: each is good once.
    """

    serial: str
    user: str  # at home
    home: str  # the person, as their own cluster knows them


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepGrant(CallerRequest[HeldGrant]):
    """Keep what another organisation has signed: a grant, or a statement about one."""

    held: HeldGrant


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantsUsed(Answered[bool]):
    """The GPU-seconds of the guests of each grant in its present period. The answer: whether a
    grant has changed by it.
    """

    periods: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class PolicySet:
    """The policy that holds now, and the jobs whose promises were dropped for it."""

    chosen: Chosen
    dropped: tuple[JobId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPolicy(CallerRequest[PolicySet]):
    """Let another policy decide from now on."""

    policy: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    from_file: bool = False  # what master.toml says; policy and settings are not asked then
    force: bool = False  # even if promises are dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDown(CallerRequest[int]):
    """Let another master lead. Answered with the epoch that ends."""

    found: str = ""  # why that may not be, as the server has found it; empty: it may
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAuthority(Answered[None]):
    """Store the files of the CA for other masters, sealed (`rpc/people/shared_authority.py`)."""

    sealed: str


@dataclass(frozen=True, slots=True)
class TeamSet:
    """The team as stored, and what that means for what runs."""

    team: Team
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTeam(CallerRequest[TeamSet]):
    """Add or change a team, the whole of it."""

    team: Team  # its version: the one that is to be changed; 0 = do not care
    force: bool = False  # even if more is promised than its quota


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTeam(CallerRequest[int]):
    """Remove a team. Answered with the number of its jobs that have not ended."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateReservation(CallerRequest[Reservation]):
    """Keep nodes free for a while."""

    node_ids: tuple[NodeId, ...]
    begin_s: float | None  # None: now
    end_s: float
    reason: str
    accept_loss: bool = True  # False: WorkWouldBeLost when it begins now and jobs would lose work


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelReservation(CallerRequest[None]):
    """Cancel a reservation, or end it early."""

    reservation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddNotifyRule(CallerRequest[NotifyRule]):
    """Add a rule of the caller. The server makes the key anew for each try; the first one stays."""

    target: str
    address: str = field(repr=False)
    events: tuple[str, ...]
    with_output: bool
    quiet_hours: str
    time_zone: str
    gather_s: float | None
    signing_key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveNotifyRule(CallerRequest[None]):
    """Remove a rule of the caller, or of anybody for an operator."""

    rule_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TestNotifyRule(CallerRequest[None]):
    """Have the notifier send a message by a rule of the caller. The event tells the notifier.

    Nothing else is stored of it. A notifier that is away sends the message once it is back.
    """

    rule_id: str

    __test__ = False  # not for pytest
