"""Requests of operators and admins."""

from dataclasses import dataclass

from dlq_master.control.placement.chosen_policy import Chosen
from dlq_master.control.stimuli.caller import Caller
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.nodes.node import Node, NodeFlag
from dlq_master.store.tables.tenants import Team


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateToken:
    """Make a join token; the caller made the secret and hands in its hash. Answered with
    `JoinToken`.
    """

    caller: Caller
    request_id: str
    token_id: str
    secret_hash: str
    node_id: str
    lifetime_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeToken:
    """Make a token useless. Answered with None."""

    caller: Caller
    request_id: str
    token_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UseToken:
    """A node wants in. Answered with the node's id; refused with Unauthenticated."""

    token_id: str
    secret_hash: str
    key_fingerprint: str
    wished_node_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceNode:
    """The machine is off, says an operator. Answered with `Fenced`."""

    caller: Caller
    request_id: str
    node_id: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class Fenced:
    """The node after the fence, and the jobs whose attempts were lost by it."""

    node: Node
    job_ids: tuple[JobId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodeFlags:
    """Set and clear flags of a node. Answered with the `Node`."""

    caller: Caller
    request_id: str
    node_id: NodeId
    set_flags: frozenset[NodeFlag]
    clear_flags: frozenset[NodeFlag]
    reason: str
    accept_loss: bool = True  # False: WorkWouldBeLost when a drain would lose what jobs have done


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodeLabels:
    """Set and clear labels of a node. Answered with the `Node`."""

    caller: Caller
    request_id: str
    node_id: NodeId
    set_labels: frozenset[str]  # `K=V`
    clear_labels: frozenset[str]  # names


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptGpus:
    """Use the GPUs that a node shows beyond those it was accepted with. Answered with the
    `Node`.
    """

    caller: Caller
    request_id: str
    node_id: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearGpuConditions:
    """Take GPUs for healthy; no indexes: all of them. Answered with the `Node`."""

    caller: Caller
    request_id: str
    node_id: NodeId
    indexes: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetNode:
    """Drop a node that is DOWN and empty; its certificate is refused from now on. Answered with
    None.
    """

    caller: Caller
    request_id: str
    node_id: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUser:
    """Add or change a user. `request_id` "" = the login broker's own. Answered with the `User`."""

    caller: Caller
    request_id: str
    name: str
    role: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    same_person: bool = False  # also with another uid: their jobs stay theirs


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshUser:
    """The groups that a user's account has now, on the master's host. Changes nothing of a user who
    is gone or has another uid by now. Answered with the `User`, or None."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteUser:
    """Remove a user. Jobs that live are given to `give_to` as far as that can be, else cancelled if
    `cancel_jobs`; while any is left the user stays. Answered with `UserDeleted`."""

    caller: Caller
    request_id: str
    name: str
    cancel_jobs: bool = False
    give_to: str = ""


@dataclass(frozen=True, slots=True)
class UserDeleted:
    """How many jobs of theirs were cancelled, and how many given to somebody else."""

    cancelled: int = 0
    given: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPolicy:
    """Let another policy decide from now on. Answered with `PolicySet`."""

    caller: Caller
    request_id: str
    policy: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    from_file: bool = False  # what master.toml says; policy and settings are not asked then
    force: bool = False  # even if promises are dropped


@dataclass(frozen=True, slots=True)
class PolicySet:
    """The policy that holds now, and the jobs whose promises were dropped for it."""

    chosen: Chosen
    dropped: tuple[JobId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTeam:
    """Add or change a team, the whole of it. Answered with `TeamSet`."""

    caller: Caller
    request_id: str
    team: Team  # its version: the one that is to be changed; 0 = do not care
    force: bool = False  # even if more is promised than its quota


@dataclass(frozen=True, slots=True)
class TeamSet:
    """The team as stored, and what that means for what runs."""

    team: Team
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTeam:
    """Remove a team. Answered with the number of its jobs that have not ended."""

    caller: Caller
    request_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateReservation:
    """Keep nodes free for a while. Answered with the `Reservation`."""

    caller: Caller
    request_id: str
    node_ids: tuple[NodeId, ...]
    begin_s: float | None  # None: now
    end_s: float
    reason: str
    accept_loss: bool = True  # False: WorkWouldBeLost when it begins now and jobs would lose work


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelReservation:
    """Cancel a reservation, or end it early. Answered with None."""

    caller: Caller
    request_id: str
    reservation_id: str
