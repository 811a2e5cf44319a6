"""Calls of operators and admins, over the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import grpc

from dlq.v1 import admin_service_pb2 as wire
from dlq.v1 import job_pb2, master_profile_pb2, node_pb2
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq_client.line.connection import CALL_DEADLINE_S, Connection, ServiceCalls, apart
from dlq_client.line.errors import from_rpc_error
from dlq_client.line.identity import Identity
from dlq_common.errors import DlqError, InvalidRequest, Unavailable
from dlq_common.text.wire import to_duration

Parts = Mapping[str, "wire.MasterPart | DlqError"]
LEADING = ("leads", "alone")
ASKED_S = 3.0  # one master has so long to tell its part
TRIAL_S, TRIED_S = 20.0, 2.0  # a trial of hooks: to load their file, and for each of the last


def parts_of(identity: Identity) -> Parts:
    """The part of each master, by its address; the error of one that does not tell it. All that
    this identity or an answer names are asked, at the same time.
    """
    found: dict[str, wire.MasterPart | DlqError] = {}
    while todo := _addresses(identity, found):
        with ThreadPoolExecutor(len(todo)) as threads:
            found |= zip(todo, threads.map(partial(_part_of, identity), todo), strict=True)
    return found


def leader_of(parts: Parts, *, after: int = -1) -> wire.MasterPart | None:
    """The one that leads, with an epoch above `after`; None: none of them."""
    leading = [
        part
        for part in parts.values()
        if isinstance(part, wire.MasterPart) and part.part in LEADING and part.epoch > after
    ]
    return max(leading, key=lambda part: part.epoch, default=None)


def _addresses(identity: Identity, found: Parts) -> list[str]:
    """The masters that were not asked yet."""
    told = [part for part in found.values() if isinstance(part, wire.MasterPart)]
    named = [*identity.address.split(","), *(name for part in told for name in part.masters)]
    return [name for name in dict.fromkeys(named) if name not in found]


def _part_of(identity: Identity, address: str) -> wire.MasterPart | DlqError:
    alone = replace(identity, address=address)
    try:
        with Connection(alone, patience_s=0.0, deadline_s=ASKED_S) as connection:
            return Admin(connection).part()
    except DlqError as error:
        return error


class Admin(ServiceCalls[AdminServiceStub]):
    """Tokens, nodes, users."""

    stub_kind = AdminServiceStub

    def create_token(
        self, *, node_id: str = "", lifetime_s: float | None = None
    ) -> wire.CreateJoinTokenResponse:
        """A token with which one node can join; its secret is in this answer and nowhere else."""
        lifetime = None if lifetime_s is None else to_duration(lifetime_s)
        request = wire.CreateJoinTokenRequest(node_id=node_id, lifetime_duration=lifetime)
        return self._change(self.stub.CreateJoinToken, request)

    def tokens(self) -> Sequence[wire.JoinToken]:
        """Tokens that can still be used."""
        return self._connection.call(self.stub.ListJoinTokens, wire.ListJoinTokensRequest()).tokens

    def revoke_token(self, token_id: str) -> None:
        """Make a token useless."""
        self._change(self.stub.RevokeJoinToken, wire.RevokeJoinTokenRequest(token_id=token_id))

    def revoke(
        self, *, serial: str = "", user: str = "", node_id: str = "", reason: str = ""
    ) -> wire.RevokeCertificatesResponse:
        """Make certificates worthless: one by its serial, or all of a user or a node."""
        request = wire.RevokeCertificatesRequest(
            serial=serial, name=user, node_id=node_id, reason=reason
        )
        return self._change(self.stub.RevokeCertificates, request)

    def revocations(self) -> Sequence[wire.Revocation]:
        """All revocations, the oldest first."""
        request = wire.ListRevocationsRequest()
        return self._connection.call(self.stub.ListRevocations, request).revocations

    def make_grant(self, request: wire.MakeGrantRequest) -> wire.Grant:
        """Lend GPUs to another organisation."""
        return self._change(self.stub.MakeGrant, request).grant

    def revoke_grant(self, serial: str, reason: str = "") -> wire.RevokeGrantResponse:
        """End a grant that was given, with the jobs of its guests, or forget one that was got."""
        request = wire.RevokeGrantRequest(serial=serial, reason=reason)
        return self._change(self.stub.RevokeGrant, request)

    def grants(self) -> Sequence[wire.Grant]:
        """Grants of both directions: first the given ones."""
        return self._connection.call(self.stub.ListGrants, wire.ListGrantsRequest()).grants

    def sign_document(self, serial: str, kind: str) -> str:
        """A grant that was given, or a statement about it, signed."""
        request = wire.SignDocumentRequest(serial=serial, kind=kind)
        return self._connection.call(self.stub.SignDocument, request).document

    def take_document(
        self, document: str, organisation: str = "", users: Sequence[str] = ()
    ) -> wire.Grant:
        """Keep what another organisation has signed."""
        request = wire.TakeDocumentRequest(
            document=document, organisation=organisation, users=users
        )
        return self._change(self.stub.TakeDocument, request).grant

    def rotate_authority(self) -> wire.AuthorityFacts:
        """Let another CA sign from now on; both count until `finish_authority`."""
        return self._change(self.stub.RotateAuthority, wire.RotateAuthorityRequest()).authority

    def authority(self) -> wire.AuthorityFacts:
        """The CA that counts, and during a change who follows it."""
        request = wire.GetAuthorityRequest()
        return self._connection.call(self.stub.GetAuthority, request).authority

    def finish_authority(self, *, force: bool = False) -> wire.AuthorityFacts:
        """End the former CA. IllegalTransition while somebody still uses it, unless forced."""
        request = wire.FinishAuthorityRequest(force=force)
        return self._change(self.stub.FinishAuthority, request).authority

    def part(self) -> wire.MasterPart:
        """The part of the master that is asked, among several."""
        return self._connection.call(self.stub.GetLeader, wire.GetLeaderRequest()).master

    def step_down(self, *, force: bool = False) -> int:
        """Let a standby lead; return the epoch that ends. IllegalTransition when none is ready."""
        return self._change(self.stub.StepDown, wire.StepDownRequest(force=force)).epoch

    def hooks(self) -> wire.HooksFacts:
        """The hooks of the operator; without a file there are none."""
        return self._connection.call(self.stub.GetHooks, wire.GetHooksRequest()).hooks

    def reload_hooks(self) -> wire.HooksFacts:
        """Read their file anew. InvalidRequest: it is no good, and the former one goes on."""
        return self._change(self.stub.ReloadHooks, wire.ReloadHooksRequest()).hooks

    def test_hooks(
        self,
        source: str,
        file: str,
        *,
        spec: job_pb2.JobSpec | None = None,
        user: str = "",
        last: int = 0,
        hook: str = "",
    ) -> Sequence[wire.HookTrial]:
        """Try another file on a job, or on the last ones; or, with `hook` "on_start" or "on_end",
        on the last attempts. Nothing comes of it. InvalidRequest: the master is of a former
        release, and tries on_submit only.
        """
        request = wire.TestHooksRequest(
            source=source, file=file, spec=spec, user=user, last_count=last, hook=hook
        )
        longest_s = TRIAL_S + TRIED_S * last
        answer = self._connection.call(self.stub.TestHooks, request, deadline_s=longest_s)
        if (answer.hook or "on_submit") != (hook or "on_submit"):  # "" of a former release
            raise InvalidRequest(
                f"the master is of a former release, and cannot try {hook}",
                hint="update the master first; it has tried on_submit, and nothing came of it",
            )
        return answer.trials

    def fence_node(self, node_id: str, *, reason: str = "") -> wire.FenceNodeResponse:
        """Declare a node dead; the caller has made sure that the machine is off."""
        request = wire.FenceNodeRequest(node_id=node_id, reason=reason)
        return self._change(self.stub.FenceNode, request)

    def set_node_flags(
        self,
        node_id: str,
        *,
        set_flags: Sequence[str] = (),
        clear_flags: Sequence[str] = (),
        reason: str = "",
        accept_loss: bool = False,
        more: Sequence[str] = (),
    ) -> wire.SetNodeFlagsResponse:
        """Set and clear "draining" and "cordoned" of a node, and of `more` at once; WorkWouldBeLost
        when a drain would lose work of jobs.
        """
        request = wire.SetNodeFlagsRequest(
            node_id=node_id,
            more_node_ids=more,
            set_flags=set_flags,
            clear_flags=clear_flags,
            reason=reason,
            accept_loss=accept_loss,
        )
        return self._change(self.stub.SetNodeFlags, request)

    def check_nodes(self, kind: str, node_ids: Sequence[str]) -> str:
        """Begin a check of one node, or of two together; return the number of its job."""
        request = wire.CheckNodesRequest(kind=kind, node_ids=node_ids)
        return self._change(self.stub.CheckNodes, request).job_id

    def set_node_labels(
        self, node_id: str, *, set_labels: Mapping[str, str], clear_labels: Sequence[str] = ()
    ) -> node_pb2.Node:
        """Set and clear labels that jobs may ask for."""
        request = wire.SetNodeLabelsRequest(
            node_id=node_id, set_labels=set_labels, clear_labels=clear_labels
        )
        return self._change(self.stub.SetNodeLabels, request).node

    def clear_gpu_conditions(self, node_id: str, gpu_indexes: Iterable[int] = ()) -> node_pb2.Node:
        """Use GPUs again that were withheld for a fault; none named: all of them."""
        request = wire.ClearGpuConditionsRequest(node_id=node_id, gpu_indexes=sorted(gpu_indexes))
        return self._change(self.stub.ClearGpuConditions, request).node

    def accept_gpus(self, node_id: str) -> node_pb2.Node:
        """Use the GPUs that a node shows beyond those it was accepted with."""
        return self._change(self.stub.AcceptGpus, wire.AcceptGpusRequest(node_id=node_id)).node

    def forget_node(self, node_id: str) -> None:
        """Forget a node that is DOWN and holds nothing, and refuse its certificate."""
        self._change(self.stub.ForgetNode, wire.ForgetNodeRequest(node_id=node_id))

    def users(self) -> Sequence[wire.User]:
        """All users by name."""
        return self._connection.call(self.stub.ListUsers, wire.ListUsersRequest()).users

    def set_user(self, user: wire.User, *, same_person: bool = False) -> wire.User:
        """Add or change a user. `same_person`: also with another uid; else the name with a new uid
        is a new person.
        """
        request = wire.SetUserRequest(user=user, same_person=same_person)
        return self._change(self.stub.SetUser, request).user

    def delete_user(
        self, name: str, *, cancel_jobs: bool = False, give_to: str = ""
    ) -> wire.DeleteUserResponse:
        """Remove a user: no new certificate, and the present one is refused. IllegalTransition
        while jobs live that are neither given away nor to be cancelled."""
        request = wire.DeleteUserRequest(name=name, cancel_jobs=cancel_jobs, give_to=give_to)
        return self._change(self.stub.DeleteUser, request)

    def audit_lines(self, request: wire.ListAuditLinesRequest) -> wire.ListAuditLinesResponse:
        """A page of the audit, the newest line first."""
        return self._connection.call(self.stub.ListAuditLines, request)

    def policy(self) -> wire.GetPolicyResponse:
        """The policy that decides, the possible ones, and the state of the planning process."""
        return self._connection.call(self.stub.GetPolicy, wire.GetPolicyRequest())

    def set_policy(
        self,
        policy: str = "",
        settings: Mapping[str, str] | None = None,
        *,
        from_file: bool = False,
        force: bool = False,
    ) -> wire.SetPolicyResponse:
        """Let another policy decide; `from_file`: that of master.toml."""
        request = wire.SetPolicyRequest(
            policy=policy, settings=settings, from_file=from_file, force=force
        )
        return self._change(self.stub.SetPolicy, request)

    def profile(
        self, seconds: float, heard: Callable[[int], object] = lambda _: None
    ) -> master_profile_pb2.MasterProfile:
        """Samples of the master's stacks; `heard` is told their number from time to time. TryAgain
        while another profile is taken. It is not asked for again after a lost line.
        """
        address = self._connection.identity.address
        request = wire.ProfileMasterRequest(sample_duration=to_duration(seconds))
        begin = partial(self.stub.ProfileMaster, request, timeout=seconds + 3 * CALL_DEADLINE_S)
        try:
            for message in apart(begin):
                if message.HasField("profile"):
                    return message.profile
                heard(message.sample_count)
        except grpc.RpcError as error:
            raise from_rpc_error(error, address) from None
        raise Unavailable(f"the master at {address} ended without a profile")

    def node_profile(
        self, node_id: str, seconds: float, heard: Callable[[int], object] = lambda _: None
    ) -> master_profile_pb2.MasterProfile:
        """The same of the agent of a node; `heard` is told 0. Unavailable when the node is not
        connected, or when its agent ended meanwhile.
        """
        address = self._connection.identity.address
        request = wire.ProfileNodeRequest(node_id=node_id, sample_duration=to_duration(seconds))
        begin = partial(self.stub.ProfileNode, request, timeout=seconds + 3 * CALL_DEADLINE_S)
        try:
            for message in apart(begin):
                if message.HasField("profile"):
                    return message.profile
                heard(0)
        except grpc.RpcError as error:
            raise from_rpc_error(error, address) from None
        raise Unavailable(f"the master at {address} ended without a profile")
