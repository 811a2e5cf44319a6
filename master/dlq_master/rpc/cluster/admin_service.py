"""Calls of operators and admins: tokens, nodes, users, the policy. The door has checked
the role.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from dlq.v1 import admin_service_pb2 as wire
from dlq.v1.job_pb2 import JobSpec
from dlq_common.errors import ConfigError, IllegalTransition, InvalidRequest, NotFound
from dlq_common.identity.join_token import JoinTokenText
from dlq_common.identity.pki import PEOPLE, Role, fingerprint
from dlq_common.text.names import shown
from dlq_common.text.suggest import did_you_mean
from dlq_common.text.units import DAY, HOUR
from dlq_common.text.wire import filled, to_timestamp
from dlq_master.control.stimuli import (
    AcceptGpus,
    Caller,
    CheckNodes,
    ClearGpuConditions,
    CreateToken,
    DeleteUser,
    FenceNode,
    ForgetNode,
    JoinToken,
    Revocation,
    RevokeCertificates,
    RevokeToken,
    SetNodeFlags,
    SetNodeLabels,
    SetPolicy,
    SetUser,
    StepDown,
    SubmitJob,
    User,
)
from dlq_master.model.jobs.naming import shown_id
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.people.certificates import secret_hash
from dlq_master.rpc.specs.intake import (
    job_stimulus,
    needed,
    node_id_of,
    person_name_of,
    user_name_of,
    words_of,
)
from dlq_master.rpc.specs.node_choice import labels_of
from dlq_master.rpc.specs.spec import check_span
from dlq_master.rpc.views.convert import ALONE, node_message, part_message
from dlq_master.rpc.views.policy_view import (
    helper_message,
    planner_message,
    policy_message,
    preset_messages,
    settings_of,
)
from dlq_master.rpc.views.preemption_view import node_losses
from dlq_master.store.tables.revocations import NODE, SERIAL, USER, subject_of

if TYPE_CHECKING:
    from dlq_master.rpc.specs.hooked import SubmitHooks

LARGEST_HOOKS = 1 << 20
MOST_TRIED = 100
DEFAULT_LIFETIME_S = float(HOUR)
SHORTEST_LIFETIME_S = 1.0
LONGEST_LIFETIME_S = 7.0 * DAY
# The kernel's own "no such user" ends the range.
LARGEST_UID = 2**32 - 2
MOST_GROUPS = 64
MOST_NODES = 10_000  # that one call changes
# The master sets the other flags itself; people release its quarantines.
PEOPLES_FLAGS = {flag.value: flag for flag in (NodeFlag.DRAINING, NodeFlag.CORDONED)}
RELEASABLE = PEOPLES_FLAGS | {NodeFlag.QUARANTINED.value: NodeFlag.QUARANTINED}

# --- the lead -------------------------------------------------------------------------------------


async def get_leader(call: Call, request: wire.GetLeaderRequest) -> wire.GetLeaderResponse:
    if (lead := call.parts.lead) is not None:
        return wire.GetLeaderResponse(master=part_message(lead.part(), call.now_s))
    alone = wire.MasterPart(address=call.parts.api_address, part=ALONE, epoch=call.read.epoch)
    return wire.GetLeaderResponse(master=alone)


async def step_down(call: Call, request: wire.StepDownRequest) -> wire.StepDownResponse:
    """Let another master lead. A repeat gets the first answer, and ends no other leader."""
    lead, found = call.parts.lead, ""
    signed = call.signed(request)
    if lead is None:
        found = "there is no other master ([leader] masters)"
    elif not request.force and not await lead.ready():
        found = "no standby has read all turns (see dlq admin leader show, or use --force)"
    epoch = await call.ask(StepDown(**signed, found=found, force=request.force))
    if lead is not None:
        lead.step_down(epoch)
    return wire.StepDownResponse(epoch=epoch)


# --- hooks ----------------------------------------------------------------------------------------


async def get_hooks(call: Call, request: wire.GetHooksRequest) -> wire.GetHooksResponse:
    hooks = call.parts.hooks
    return wire.GetHooksResponse(hooks=None if hooks is None else hooks.facts())


async def reload_hooks(call: Call, request: wire.ReloadHooksRequest) -> wire.ReloadHooksResponse:
    """Read the file of hooks again. A repeat reads it once more."""
    hooks = _hooks(call)
    call.signed(request)
    try:
        await hooks.desk.reload()
    except ConfigError as error:
        told = f"{error.what}; the former file goes on"
        raise InvalidRequest(told, field="file") from None
    return wire.ReloadHooksResponse(hooks=hooks.facts())


async def test_hooks(call: Call, request: wire.TestHooksRequest) -> wire.TestHooksResponse:
    hooks, name = _hooks(call), words_of(request.file, "file") or "hooks.py"
    if len(request.source) > LARGEST_HOOKS:
        raise InvalidRequest("the file has more than 1 MiB", field="source")
    hook, of_attempts = hooks.named(request.hook)
    try:
        if of_attempts:
            tried = (call.read, hook, _attempt_count(request))
            trials = await hooks.attempt_trials((name, request.source), *tried)
        else:
            trials = await hooks.trials((name, request.source), [*_tried(call, request)])
    except ConfigError as error:
        raise InvalidRequest(error.what, field="source") from None
    return wire.TestHooksResponse(trials=trials, hook=hook)


def _hooks(call: Call) -> SubmitHooks:
    if call.parts.hooks is None:
        told = "this master has no hooks"
        raise IllegalTransition(told, hint="set [hooks] file in master.toml, and restart it")
    return call.parts.hooks


def _attempt_count(request: wire.TestHooksRequest) -> int:
    for field, given in (("spec", request.HasField("spec")), ("user", bool(request.user))):
        if given:
            told = f"{request.hook} is tried on the last attempts, and takes no job and no user"
            raise InvalidRequest(told, field=field)
    return _last_count(request)


def _last_count(request: wire.TestHooksRequest) -> int:
    if not 1 <= request.last_count <= MOST_TRIED:
        raise InvalidRequest(f"name a job, or 1 to {MOST_TRIED} of the last", field="last_count")
    return request.last_count


def _tried(call: Call, request: wire.TestHooksRequest) -> Iterator[tuple[str, JobSpec, SubmitJob]]:
    """The job of the request, or the newest jobs, each as its user would submit it."""
    if request.HasField("spec"):
        user = call.read.user(request.user or call.caller.name)
        if user is None:
            raise NotFound(f"there is no user {shown(request.user)}", kind="user", id=request.user)
        yield "", request.spec, _asked(request.spec, user.name, user.role)
        return
    for job in islice(reversed([*call.read.jobs()]), _last_count(request)):
        spec = JobSpec.FromString(call.read.spec(job.spec_id))
        spec.ClearField("hook_notes")
        user = call.read.user(job.user)
        role = "user" if user is None else user.role
        yield shown_id(job), spec, _asked(spec, job.user, role)


def _asked(spec: JobSpec, user: str, role: str) -> SubmitJob:
    return job_stimulus(spec, Caller(user, role), "", brief=True, validate_only=True)


# --- join tokens ----------------------------------------------------------------------------------


async def create_join_token(
    call: Call, request: wire.CreateJoinTokenRequest
) -> wire.CreateJoinTokenResponse:
    lifetime_s, parts = DEFAULT_LIFETIME_S, call.parts
    if request.HasField("lifetime_duration"):
        asked, shortest_s = request.lifetime_duration, SHORTEST_LIFETIME_S
        lifetime_s = check_span("lifetime_duration", asked, shortest_s, LONGEST_LIFETIME_S)
    seal = fingerprint(parts.authority.pinned_pem())
    made = JoinTokenText(parts.ids.session_id()[-10:], parts.ids.secret(), seal)
    stored = await call.ask(
        CreateToken(
            **call.signed(request),
            token_id=made.token_id,
            secret_hash=secret_hash(made.secret),
            node_id=node_id_of(request.node_id) if request.node_id else "",
            lifetime_s=lifetime_s,
        )
    )
    # A repeat finds the first token, whose secret nobody here knows any more.
    secret = made.text() if stored.token_id == made.token_id else ""
    return wire.CreateJoinTokenResponse(
        token=_token_message(stored), secret=secret, join_address=parts.join_address
    )


async def list_join_tokens(
    call: Call, request: wire.ListJoinTokensRequest
) -> wire.ListJoinTokensResponse:
    now_s = call.now_s
    usable = [
        token
        for token in call.read.tokens()
        if not token.used_by_key and now_s < token.expire_time_s
    ]
    return wire.ListJoinTokensResponse(tokens=map(_token_message, usable))


async def revoke_join_token(
    call: Call, request: wire.RevokeJoinTokenRequest
) -> wire.RevokeJoinTokenResponse:
    token_id = needed(request.token_id, "token_id", "which token?")
    await call.ask(RevokeToken(**call.signed(request), token_id=token_id))
    return wire.RevokeJoinTokenResponse()


def _token_message(token: JoinToken) -> wire.JoinToken:
    """A join token without its secret."""
    return filled(
        wire.JoinToken,
        token,
        create_time=to_timestamp(token.created_time_s),
        expire_time=to_timestamp(token.expire_time_s),
    )


# --- certificates ---------------------------------------------------------------------------------


async def revoke_certificates(
    call: Call, request: wire.RevokeCertificatesRequest
) -> wire.RevokeCertificatesResponse:
    """Revoke certificates. Open streams of their holders end before the answer."""
    row = await call.ask(
        RevokeCertificates(
            **call.signed(request),
            subject=_subject(request),
            reason=words_of(request.reason, "reason"),
        )
    )
    cut = call.parts.open_calls.look()
    return wire.RevokeCertificatesResponse(revocation=_revocation_message(row), cut_count=cut)


async def list_revocations(
    call: Call, request: wire.ListRevocationsRequest
) -> wire.ListRevocationsResponse:
    rows = sorted(call.read.revocations.values(), key=lambda row: (row.time_s, row.subject))
    return wire.ListRevocationsResponse(revocations=map(_revocation_message, rows))


def _subject(request: wire.RevokeCertificatesRequest) -> str:
    told = {SERIAL: request.serial, USER: request.name, NODE: request.node_id}
    named = [subject_of(kind, name) for kind, name in told.items() if name]
    if len(named) != 1:
        raise InvalidRequest("name one serial, one user or one node", field="serial")
    return named[0]


def _revocation_message(row: Revocation) -> wire.Revocation:
    kind, _, name = row.subject.partition(":")
    return wire.Revocation(
        kind=kind,
        name=name,
        create_time=to_timestamp(row.time_s),
        created_by=row.by,
        reason=row.reason,
    )


# --- nodes ----------------------------------------------------------------------------------------


async def fence_node(call: Call, request: wire.FenceNodeRequest) -> wire.FenceNodeResponse:
    fenced = await call.ask(
        FenceNode(
            **call.signed(request),
            node_id=node_id_of(request.node_id),
            reason=words_of(request.reason, "reason"),
        )
    )
    return wire.FenceNodeResponse(
        node=node_message(fenced.node, call.read), job_ids=map(str, fenced.job_ids)
    )


async def set_node_flags(
    call: Call, request: wire.SetNodeFlagsRequest
) -> wire.SetNodeFlagsResponse:
    set_flags = _flags(request.set_flags, "set_flags", PEOPLES_FLAGS)
    clear_flags = _flags(request.clear_flags, "clear_flags", RELEASABLE)
    if set_flags & clear_flags:
        raise InvalidRequest("a flag cannot be set and cleared at once", field="clear_flags")
    if len(request.more_node_ids) > MOST_NODES:
        raise InvalidRequest(f"at most {MOST_NODES} nodes at once", field="more_node_ids")
    more = tuple(node_id_of(text, "more_node_ids") for text in request.more_node_ids)
    node = await call.ask(
        SetNodeFlags(
            **call.signed(request),
            node_id=node_id_of(request.node_id),
            more=more,
            set_flags=set_flags,
            clear_flags=clear_flags,
            reason=words_of(request.reason, "reason"),
            accept_loss=request.accept_loss,
        )
    )
    drained = (node.node_id, *more) if NodeFlag.DRAINING in set_flags else ()
    others = (call.read.node(node_id) for node_id in more)
    return wire.SetNodeFlagsResponse(
        node=node_message(node, call.read),
        more_nodes=[node_message(one, call.read) for one in others if one is not None],
        losses=[loss for one in drained for loss in node_losses(one, call.read, call.now_s)],
    )


async def check_nodes(call: Call, request: wire.CheckNodesRequest) -> wire.CheckNodesResponse:
    job = await call.ask(
        CheckNodes(
            **call.signed(request),
            kind=needed(request.kind, "kind", "which check?"),
            node_ids=tuple(node_id_of(text, "node_ids") for text in request.node_ids),
        )
    )
    return wire.CheckNodesResponse(job_id=str(job.job_id))


async def set_node_labels(
    call: Call, request: wire.SetNodeLabelsRequest
) -> wire.SetNodeLabelsResponse:
    set_labels = labels_of(request.set_labels, "set_labels")
    both = sorted(set(request.set_labels) & set(request.clear_labels))
    if both:
        raise InvalidRequest(
            f"label {shown(both[0])} cannot be set and cleared at once", field="clear_labels"
        )
    node = await call.ask(
        SetNodeLabels(
            **call.signed(request),
            node_id=node_id_of(request.node_id),
            set_labels=frozenset(set_labels),
            clear_labels=frozenset(request.clear_labels),
        )
    )
    return wire.SetNodeLabelsResponse(node=node_message(node, call.read))


async def clear_gpu_conditions(
    call: Call, request: wire.ClearGpuConditionsRequest
) -> wire.ClearGpuConditionsResponse:
    node = await call.ask(
        ClearGpuConditions(
            **call.signed(request),
            node_id=node_id_of(request.node_id),
            indexes=frozenset(request.gpu_indexes),
        )
    )
    return wire.ClearGpuConditionsResponse(node=node_message(node, call.read))


async def accept_gpus(call: Call, request: wire.AcceptGpusRequest) -> wire.AcceptGpusResponse:
    node = await call.ask(AcceptGpus(**call.signed(request), node_id=node_id_of(request.node_id)))
    return wire.AcceptGpusResponse(node=node_message(node, call.read))


async def forget_node(call: Call, request: wire.ForgetNodeRequest) -> wire.ForgetNodeResponse:
    await call.ask(ForgetNode(**call.signed(request), node_id=node_id_of(request.node_id)))
    call.parts.open_calls.look()
    return wire.ForgetNodeResponse()


def _flags(words: Iterable[str], field: str, known: Mapping[str, NodeFlag]) -> frozenset[NodeFlag]:
    words = tuple(words)
    for word in words:
        if word not in known:
            guess = did_you_mean(word, known)
            raise InvalidRequest(f"{shown(word)} is no flag people set{guess}", field=field)
    return frozenset(known[word] for word in words)


# --- users ----------------------------------------------------------------------------------------


async def list_users(call: Call, request: wire.ListUsersRequest) -> wire.ListUsersResponse:
    return wire.ListUsersResponse(users=map(_user_message, call.read.users()))


async def set_user(call: Call, request: wire.SetUserRequest) -> wire.SetUserResponse:
    wanted = request.user
    known = sorted(role.value for role in PEOPLE - {Role.GUEST})
    if wanted.role not in known:
        guess = did_you_mean(wanted.role, known)
        raise InvalidRequest(f"{shown(wanted.role)} is no role{guess}", field="user.role")
    if len(wanted.groups) > MOST_GROUPS:
        raise InvalidRequest(f"more than {MOST_GROUPS} groups", field="user.groups")
    user = await call.ask(
        SetUser(
            **call.signed(request),
            name=user_name_of(wanted.name, "user.name"),
            role=wanted.role,
            uid=_number(wanted.uid, "user.uid"),
            gid=_number(wanted.gid, "user.gid"),
            groups=tuple(_number(group, "user.groups") for group in wanted.groups),
            same_person=request.same_person,
        )
    )
    call.parts.open_calls.look()
    return wire.SetUserResponse(user=_user_message(user))


async def delete_user(call: Call, request: wire.DeleteUserRequest) -> wire.DeleteUserResponse:
    done = await call.ask(
        DeleteUser(
            **call.signed(request),
            name=person_name_of(request.name, "name"),
            cancel_jobs=request.cancel_jobs,
            give_to=user_name_of(request.give_to, "give_to") if request.give_to else "",
        )
    )
    call.parts.open_calls.look()
    return wire.DeleteUserResponse(cancelled_count=done.cancelled, given_count=done.given)


def _user_message(user: User) -> wire.User:
    return filled(wire.User, user, create_time=to_timestamp(user.created_time_s))


def _number(value: int, field: str) -> int:
    """A numeric user or group id, never root's."""
    if not 1 <= value <= LARGEST_UID:
        raise InvalidRequest(f"{field} must be between 1 and {LARGEST_UID}", field=field)
    return value


# --- the policy -----------------------------------------------------------------------------------


async def get_policy(call: Call, request: wire.GetPolicyRequest) -> wire.GetPolicyResponse:
    read = call.read
    return wire.GetPolicyResponse(
        policy=policy_message(read.chosen),
        file_policy=policy_message(read.filed),
        presets=preset_messages(),
        planner=planner_message(read.planning()),
        helpers=map(helper_message, read.helpers()),
    )


async def set_policy(call: Call, request: wire.SetPolicyRequest) -> wire.SetPolicyResponse:
    if bool(request.policy) is request.from_file:
        raise InvalidRequest("name a policy, or from_file", field="policy")
    answer = await call.ask(
        SetPolicy(
            **call.signed(request),
            policy=request.policy,
            settings=settings_of(request.settings),
            from_file=request.from_file,
            force=request.force,
        )
    )
    return wire.SetPolicyResponse(
        policy=policy_message(answer.chosen), dropped_job_ids=map(str, answer.dropped)
    )
