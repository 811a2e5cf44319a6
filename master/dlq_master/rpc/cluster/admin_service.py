"""Calls of operators and admins: tokens, nodes, users, the policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlq.v1 import admin_service_pb2 as wire
from dlq.v1.admin_service_pb2_grpc import AdminServiceServicer
from dlq_common.clock import Clock
from dlq_common.errors import InvalidRequest
from dlq_common.identity.join_token import JoinTokenText
from dlq_common.identity.pki import PEOPLE
from dlq_common.ids import Ids
from dlq_common.text.names import shown
from dlq_common.text.suggest import did_you_mean
from dlq_common.text.units import DAY, HOUR
from dlq_master.control.loop.ports import Control
from dlq_master.control.stimuli import (
    AcceptGpus,
    ClearGpuConditions,
    CreateToken,
    DeleteUser,
    Fenced,
    FenceNode,
    ForgetNode,
    PolicySet,
    RevokeToken,
    SetNodeFlags,
    SetNodeLabels,
    SetPolicy,
    SetUser,
    User,
    UserDeleted,
)
from dlq_master.control.stimuli import JoinToken as StoredToken
from dlq_master.model.nodes.node import Node, NodeFlag
from dlq_master.rpc.calls.auth import caller_of
from dlq_master.rpc.calls.call import Context
from dlq_master.rpc.people.join_service import secret_hash
from dlq_master.rpc.specs.intake import node_id_of, user_name_of, words_of
from dlq_master.rpc.specs.node_choice import labels_of
from dlq_master.rpc.specs.spec import check_request_id, check_span
from dlq_master.rpc.views.convert import node_message, token_message, user_message
from dlq_master.rpc.views.loss_view import node_losses
from dlq_master.rpc.views.policy_view import (
    helper_message,
    planner_message,
    policy_message,
    preset_messages,
    settings_of,
)

DEFAULT_LIFETIME_S = float(HOUR)
SHORTEST_LIFETIME_S = 1.0
LONGEST_LIFETIME_S = 7.0 * DAY
# The kernel's own "no such user" ends the range.
LARGEST_UID = 2**32 - 2
MOST_GROUPS = 64
# The master sets the other flags itself; people release its quarantines.
PEOPLES_FLAGS = {flag.value: flag for flag in (NodeFlag.DRAINING, NodeFlag.CORDONED)}
RELEASABLE = PEOPLES_FLAGS | {NodeFlag.QUARANTINED.value: NodeFlag.QUARANTINED}


class AdminService(AdminServiceServicer):
    """dlq.v1.AdminService. The door has looked at the role; here only at what is asked."""

    def __init__(
        self, control: Control, clock: Clock, ids: Ids, ca_fingerprint: str, join_address: str
    ) -> None:
        self._control = control
        self._clock = clock
        self._ids = ids
        self._ca_fingerprint = ca_fingerprint
        self._join_address = join_address

    async def CreateJoinToken(
        self, request: wire.CreateJoinTokenRequest, context: Context
    ) -> wire.CreateJoinTokenResponse:
        lifetime_s = DEFAULT_LIFETIME_S
        if request.HasField("lifetime_duration"):
            lifetime_s = check_span(
                "lifetime_duration",
                request.lifetime_duration,
                SHORTEST_LIFETIME_S,
                LONGEST_LIFETIME_S,
            )
        made = JoinTokenText(self._ids.session_id()[-10:], self._ids.secret(), self._ca_fingerprint)
        stored = await self._control.ask(
            CreateToken(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                token_id=made.token_id,
                secret_hash=secret_hash(made.secret),
                node_id=node_id_of(request.node_id) if request.node_id else "",
                lifetime_s=lifetime_s,
            )
        )
        assert isinstance(stored, StoredToken)
        # A repeat finds the first token, whose secret nobody here knows any more.
        told = made.text() if stored.token_id == made.token_id else ""
        return wire.CreateJoinTokenResponse(
            token=token_message(stored), secret=told, join_address=self._join_address
        )

    async def ListJoinTokens(
        self, request: wire.ListJoinTokensRequest, context: Context
    ) -> wire.ListJoinTokensResponse:
        now_s = self._clock.now_s()
        usable = [
            token
            for token in self._control.published.tokens()
            if not token.used_by_key and now_s < token.expire_time_s
        ]
        return wire.ListJoinTokensResponse(tokens=[token_message(token) for token in usable])

    async def RevokeJoinToken(
        self, request: wire.RevokeJoinTokenRequest, context: Context
    ) -> wire.RevokeJoinTokenResponse:
        if not request.token_id:
            raise InvalidRequest("which token?", field="token_id")
        await self._control.ask(
            RevokeToken(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                token_id=request.token_id,
            )
        )
        return wire.RevokeJoinTokenResponse()

    async def FenceNode(
        self, request: wire.FenceNodeRequest, context: Context
    ) -> wire.FenceNodeResponse:
        fenced = await self._control.ask(
            FenceNode(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                node_id=node_id_of(request.node_id),
                reason=words_of(request.reason, "reason"),
            )
        )
        assert isinstance(fenced, Fenced)
        return wire.FenceNodeResponse(
            node=node_message(fenced.node, self._control.published),
            job_ids=[str(job_id) for job_id in fenced.job_ids],
        )

    async def SetNodeFlags(
        self, request: wire.SetNodeFlagsRequest, context: Context
    ) -> wire.SetNodeFlagsResponse:
        set_flags = _flags(request.set_flags, "set_flags", PEOPLES_FLAGS)
        clear_flags = _flags(request.clear_flags, "clear_flags", RELEASABLE)
        if set_flags & clear_flags:
            raise InvalidRequest("a flag cannot be set and cleared at once", field="clear_flags")
        node = await self._control.ask(
            SetNodeFlags(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                node_id=node_id_of(request.node_id),
                set_flags=set_flags,
                clear_flags=clear_flags,
                reason=words_of(request.reason, "reason"),
                accept_loss=request.accept_loss,
            )
        )
        assert isinstance(node, Node)
        read = self._control.published
        drained = NodeFlag.DRAINING in set_flags
        return wire.SetNodeFlagsResponse(
            node=node_message(node, read),
            losses=node_losses(node.node_id, read, self._clock.now_s()) if drained else (),
        )

    async def SetNodeLabels(
        self, request: wire.SetNodeLabelsRequest, context: Context
    ) -> wire.SetNodeLabelsResponse:
        set_labels = labels_of(request.set_labels, "set_labels")
        both = sorted(set(request.set_labels) & set(request.clear_labels))
        if both:
            raise InvalidRequest(
                f"label {shown(both[0])} cannot be set and cleared at once", field="clear_labels"
            )
        node = await self._control.ask(
            SetNodeLabels(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                node_id=node_id_of(request.node_id),
                set_labels=frozenset(set_labels),
                clear_labels=frozenset(request.clear_labels),
            )
        )
        assert isinstance(node, Node)
        return wire.SetNodeLabelsResponse(node=node_message(node, self._control.published))

    async def ClearGpuConditions(
        self, request: wire.ClearGpuConditionsRequest, context: Context
    ) -> wire.ClearGpuConditionsResponse:
        node = await self._control.ask(
            ClearGpuConditions(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                node_id=node_id_of(request.node_id),
                indexes=frozenset(request.gpu_indexes),
            )
        )
        assert isinstance(node, Node)
        return wire.ClearGpuConditionsResponse(node=node_message(node, self._control.published))

    async def AcceptGpus(
        self, request: wire.AcceptGpusRequest, context: Context
    ) -> wire.AcceptGpusResponse:
        node = await self._control.ask(
            AcceptGpus(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                node_id=node_id_of(request.node_id),
            )
        )
        assert isinstance(node, Node)
        return wire.AcceptGpusResponse(node=node_message(node, self._control.published))

    async def ForgetNode(
        self, request: wire.ForgetNodeRequest, context: Context
    ) -> wire.ForgetNodeResponse:
        await self._control.ask(
            ForgetNode(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                node_id=node_id_of(request.node_id),
            )
        )
        return wire.ForgetNodeResponse()

    async def ListUsers(
        self, request: wire.ListUsersRequest, context: Context
    ) -> wire.ListUsersResponse:
        users = self._control.published.users()
        return wire.ListUsersResponse(users=[user_message(user) for user in users])

    async def SetUser(self, request: wire.SetUserRequest, context: Context) -> wire.SetUserResponse:
        wanted = request.user
        known = sorted(role.value for role in PEOPLE)
        if wanted.role not in known:
            guess = did_you_mean(wanted.role, known)
            raise InvalidRequest(f"{shown(wanted.role)} is no role{guess}", field="user.role")
        if len(wanted.groups) > MOST_GROUPS:
            raise InvalidRequest(f"more than {MOST_GROUPS} groups", field="user.groups")
        user = await self._control.ask(
            SetUser(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                name=user_name_of(wanted.name, "user.name"),
                role=wanted.role,
                uid=_number(wanted.uid, "user.uid"),
                gid=_number(wanted.gid, "user.gid"),
                groups=tuple(_number(group, "user.groups") for group in wanted.groups),
                same_person=request.same_person,
            )
        )
        assert isinstance(user, User)
        return wire.SetUserResponse(user=user_message(user))

    async def DeleteUser(
        self, request: wire.DeleteUserRequest, context: Context
    ) -> wire.DeleteUserResponse:
        done = await self._control.ask(
            DeleteUser(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                name=user_name_of(request.name, "name"),
                cancel_jobs=request.cancel_jobs,
                give_to=user_name_of(request.give_to, "give_to") if request.give_to else "",
            )
        )
        assert isinstance(done, UserDeleted)
        return wire.DeleteUserResponse(cancelled_count=done.cancelled, given_count=done.given)

    async def GetPolicy(
        self, request: wire.GetPolicyRequest, context: Context
    ) -> wire.GetPolicyResponse:
        published = self._control.published
        return wire.GetPolicyResponse(
            policy=policy_message(published.chosen),
            file_policy=policy_message(published.filed),
            presets=preset_messages(),
            planner=planner_message(published.planning()),
            helpers=[helper_message(health) for health in published.helpers()],
        )

    async def SetPolicy(
        self, request: wire.SetPolicyRequest, context: Context
    ) -> wire.SetPolicyResponse:
        if bool(request.policy) is request.from_file:
            raise InvalidRequest("name a policy, or from_file", field="policy")
        answer = await self._control.ask(
            SetPolicy(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                policy=request.policy,
                settings=settings_of(request.settings),
                from_file=request.from_file,
                force=request.force,
            )
        )
        assert isinstance(answer, PolicySet)
        return wire.SetPolicyResponse(
            policy=policy_message(answer.chosen),
            dropped_job_ids=[str(job_id) for job_id in answer.dropped],
        )


def _flags(words: Iterable[str], field: str, known: Mapping[str, NodeFlag]) -> frozenset[NodeFlag]:
    words = tuple(words)
    for word in words:
        if word not in known:
            guess = did_you_mean(word, known)
            raise InvalidRequest(f"{shown(word)} is no flag people set{guess}", field=field)
    return frozenset(known[word] for word in words)


def _number(value: int, field: str) -> int:
    """A numeric user or group id; never that of root."""
    if not 1 <= value <= LARGEST_UID:
        raise InvalidRequest(f"{field} must be between 1 and {LARGEST_UID}", field=field)
    return value
