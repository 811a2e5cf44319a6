"""The table of the wire's methods: the roles that may call each, and its handler.

A method that is missing here is refused to every caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.roles import (
    ADMINS,
    GREETED,
    HEARERS,
    LENDERS,
    LOOKERS,
    MEMBERS,
    NOBODY,
    NODES,
    NOTIFIERS,
    OPERATORS,
    USERS,
    VISITORS,
    WEB,
    RpcMethod,
)
from dlq_master.rpc.cluster import admin_service as admin
from dlq_master.rpc.cluster import audit_lines, gpu_map, profiling
from dlq_master.rpc.cluster import authority_service as authority
from dlq_master.rpc.cluster import facts_service as facts
from dlq_master.rpc.cluster import loan_service as loans
from dlq_master.rpc.cluster import notify_service as notify
from dlq_master.rpc.cluster import pool_service as pools
from dlq_master.rpc.cluster import reservation_service as reservations
from dlq_master.rpc.cluster import team_service as teams
from dlq_master.rpc.cluster import usage_service as usage
from dlq_master.rpc.jobs import cancelling, execs, logs, promises, steps, submitting, watch
from dlq_master.rpc.jobs import forecast_service as forecasts
from dlq_master.rpc.jobs import job_service as jobs
from dlq_master.rpc.people import certificates, signing_in
from dlq_master.rpc.reports import agent_service as agents


async def _health(call: Call, request: object) -> object:
    """gRPC's own servicer; it writes the answers of its stream itself."""
    return await getattr(call.parts.health, call.path.rsplit("/", 1)[-1])(request, call.context)


def _of_grants(name: str) -> Callable[[Call, Any], Awaitable[object]]:
    """A handler of `grant_service`, which is loaded at its first call: most masters
    have no grants.
    """

    async def handle(call: Call, request: Any) -> object:
        from dlq_master.rpc.cluster import grant_service

        return await getattr(grant_service, name)(call, request)

    return handle


def _of_guests(name: str) -> Callable[[Call, Any], Awaitable[object]]:
    """A handler of `guests`, loaded likewise."""

    async def handle(call: Call, request: Any) -> object:
        from dlq_master.rpc.people import guests

        return await getattr(guests, name)(call, request)

    return handle


SERVICES: Mapping[str, Mapping[str, RpcMethod]] = {
    "dlq.v1.JobService": {
        "SubmitJob": RpcMethod(VISITORS, jobs.submit_job, changes=True),
        "SubmitJobs": RpcMethod(VISITORS, submitting.submit_jobs, changes=True),
        "WithdrawSubmission": RpcMethod(VISITORS, submitting.withdraw_submission, changes=True),
        "GetJob": RpcMethod(VISITORS, jobs.get_job),
        "ListJobs": RpcMethod(VISITORS, jobs.list_jobs),
        "ListSteps": RpcMethod(VISITORS, steps.list_steps),
        "CancelJob": RpcMethod(VISITORS, jobs.cancel_job, changes=True),
        "CancelJobs": RpcMethod(VISITORS, cancelling.cancel_jobs, changes=True),
        "HoldJob": RpcMethod(VISITORS, jobs.hold_job, changes=True),
        "ReleaseJob": RpcMethod(VISITORS, jobs.release_job, changes=True),
        "PauseJob": RpcMethod(VISITORS, jobs.pause_job, changes=True),
        "ResumeJob": RpcMethod(VISITORS, jobs.resume_job, changes=True),
        "UpdateJob": RpcMethod(VISITORS, jobs.update_job, changes=True),
        "RequeueJob": RpcMethod(VISITORS, jobs.requeue_job, changes=True),
        "SignalJob": RpcMethod(VISITORS, jobs.signal_job, changes=True),
        "CheckpointJob": RpcMethod(VISITORS, jobs.checkpoint_job, changes=True),
        "ExplainJob": RpcMethod(VISITORS, jobs.explain_job),
        "ListEvents": RpcMethod(VISITORS, jobs.list_events),
        "WatchEvents": RpcMethod(HEARERS, watch.watch_events),
        "ReadLogs": RpcMethod(HEARERS, logs.read_logs),
        "ExecJob": RpcMethod(VISITORS, execs.exec_job, changes=True),
        "AttendJob": RpcMethod(VISITORS, jobs.attend_job),
    },
    "dlq.v1.NodeService": {
        "ListNodes": RpcMethod(LOOKERS, facts.list_nodes),
        "GetNode": RpcMethod(LOOKERS, facts.get_node),
        "GetGpuMap": RpcMethod(USERS, gpu_map.get_gpu_map),
    },
    "dlq.v1.QueueService": {
        "ListQueues": RpcMethod(LOOKERS, facts.list_queues),
        "GetCluster": RpcMethod(GREETED, facts.get_cluster),
    },
    "dlq.v1.ForecastService": {
        "EstimateJob": RpcMethod(VISITORS, forecasts.estimate_job),
        "GetForecastQuality": RpcMethod(USERS, forecasts.get_forecast_quality),
        "CompareForecasts": RpcMethod(OPERATORS, forecasts.compare_forecasts),
    },
    "dlq.v1.PromiseService": {
        "ListPromises": RpcMethod(USERS, promises.list_promises),
    },
    "dlq.v1.AdminService": {
        "CreateJoinToken": RpcMethod(ADMINS, admin.create_join_token, changes=True),
        "ListJoinTokens": RpcMethod(ADMINS, admin.list_join_tokens),
        "RevokeJoinToken": RpcMethod(ADMINS, admin.revoke_join_token, changes=True),
        "RevokeCertificates": RpcMethod(ADMINS, admin.revoke_certificates, changes=True),
        "ListRevocations": RpcMethod(ADMINS, admin.list_revocations),
        "RotateAuthority": RpcMethod(ADMINS, authority.rotate_authority, changes=True),
        "GetAuthority": RpcMethod(ADMINS, authority.get_authority),
        "FinishAuthority": RpcMethod(ADMINS, authority.finish_authority, changes=True),
        "GetLeader": RpcMethod(OPERATORS, admin.get_leader),
        "StepDown": RpcMethod(ADMINS, admin.step_down, changes=True),
        "GetHooks": RpcMethod(OPERATORS, admin.get_hooks),
        "ReloadHooks": RpcMethod(ADMINS, admin.reload_hooks, changes=True),
        "TestHooks": RpcMethod(ADMINS, admin.test_hooks),
        "FenceNode": RpcMethod(OPERATORS, admin.fence_node, changes=True),
        "SetNodeFlags": RpcMethod(OPERATORS, admin.set_node_flags, changes=True),
        "SetNodeLabels": RpcMethod(OPERATORS, admin.set_node_labels, changes=True),
        "AcceptGpus": RpcMethod(OPERATORS, admin.accept_gpus, changes=True),
        "ClearGpuConditions": RpcMethod(OPERATORS, admin.clear_gpu_conditions, changes=True),
        "ForgetNode": RpcMethod(ADMINS, admin.forget_node, changes=True),
        "ListUsers": RpcMethod(OPERATORS, admin.list_users),
        "SetUser": RpcMethod(ADMINS, admin.set_user, changes=True),
        "DeleteUser": RpcMethod(ADMINS, admin.delete_user, changes=True),
        "ListAuditLines": RpcMethod(OPERATORS, audit_lines.list_audit_lines),
        "GetPolicy": RpcMethod(OPERATORS, admin.get_policy),
        "SetPolicy": RpcMethod(ADMINS, admin.set_policy, changes=True),
        "ProfileMaster": RpcMethod(OPERATORS, profiling.profile_master),
        "ProfileNode": RpcMethod(OPERATORS, profiling.profile_node),
        "CheckNodes": RpcMethod(OPERATORS, admin.check_nodes, changes=True),
        "MakeGrant": RpcMethod(ADMINS, _of_grants("make_grant"), changes=True),
        "RevokeGrant": RpcMethod(ADMINS, _of_grants("revoke_grant"), changes=True),
        "ListGrants": RpcMethod(OPERATORS, _of_grants("list_grants")),
        "SignDocument": RpcMethod(OPERATORS, _of_grants("sign_document"), changes=True),
        "TakeDocument": RpcMethod(ADMINS, _of_grants("take_document"), changes=True),
    },
    "dlq.v1.ReservationService": {
        "ListReservations": RpcMethod(USERS, reservations.list_reservations),
        "CreateReservation": RpcMethod(OPERATORS, reservations.create_reservation, changes=True),
        "CancelReservation": RpcMethod(OPERATORS, reservations.cancel_reservation, changes=True),
    },
    "dlq.v1.TeamService": {
        "ListTeams": RpcMethod(USERS, teams.list_teams),
        "SetTeam": RpcMethod(ADMINS, teams.set_team, changes=True),
        "DeleteTeam": RpcMethod(ADMINS, teams.delete_team, changes=True),
    },
    "dlq.v1.UsageService": {
        "GetUsage": RpcMethod(VISITORS, usage.get_usage),
        "GetCosts": RpcMethod(USERS, usage.get_costs),
    },
    "dlq.v1.LoanService": {
        "ListLoans": RpcMethod(LENDERS, loans.list_loans),
        "LendServers": RpcMethod(LENDERS, loans.lend_servers, changes=True),
        "PlanReclaim": RpcMethod(LENDERS, loans.plan_reclaim),
        "ReclaimServers": RpcMethod(LENDERS, loans.reclaim_servers, changes=True),
        "SetLoanController": RpcMethod(LENDERS, loans.set_loan_controller, changes=True),
    },
    "dlq.v1.PoolService": {
        "ListPools": RpcMethod(OPERATORS, pools.list_pools),
        "StopMachines": RpcMethod(OPERATORS, pools.stop_machines, changes=True),
    },
    "dlq.v1.NotifyService": {
        "ListNotifyRules": RpcMethod(USERS | NOTIFIERS, notify.list_notify_rules),
        "AddNotifyRule": RpcMethod(USERS, notify.add_notify_rule, changes=True),
        "RemoveNotifyRule": RpcMethod(USERS, notify.remove_notify_rule, changes=True),
        "TestNotifyRule": RpcMethod(USERS, notify.test_notify_rule, changes=True),
        "ListStartEstimates": RpcMethod(NOTIFIERS, notify.list_start_estimates),
    },
    "dlq.v1.IdentityService": {
        "RenewCertificate": RpcMethod(
            MEMBERS | NOTIFIERS | WEB,
            certificates.renew_certificate,
            changes=True,
            in_person=True,
        ),
        "CheckIdentity": RpcMethod(
            MEMBERS | NOTIFIERS | WEB, certificates.check_identity, in_person=True
        ),
        "CreateSignInLink": RpcMethod(
            USERS, signing_in.create_sign_in_link, changes=True, in_person=True
        ),
        "UseSignInLink": RpcMethod(WEB, signing_in.use_sign_in_link, changes=True, in_person=True),
        "CertifyUser": RpcMethod(USERS, certificates.certify_user, changes=True, by_service=True),
        "Introduce": RpcMethod(USERS, _of_guests("introduce"), changes=True, in_person=True),
    },
    "dlq.v1.AgentService": {
        "Session": RpcMethod(NODES, agents.session),
        "PushLog": RpcMethod(NODES, agents.push_log),
        "ServeExec": RpcMethod(NODES, agents.serve_exec),
        "AnnounceMaintenance": RpcMethod(NODES, agents.announce_maintenance, changes=True),
        "AnnounceLeave": RpcMethod(NODES, agents.announce_leave, changes=True),
    },
    "grpc.health.v1.Health": {
        "Check": RpcMethod(MEMBERS | WEB, _health),
        "Watch": RpcMethod(MEMBERS | WEB, _health),
    },
}

# The same by path, such as "/dlq.v1.JobService/SubmitJob".
METHODS: Mapping[str, RpcMethod] = MappingProxyType(
    {
        f"/{service}/{name}": method
        for service, methods in SERVICES.items()
        for name, method in methods.items()
    }
)

# Served on the join port alone, where nobody has a certificate yet.
JOIN_SERVICE = "dlq.v1.JoinService"
JOIN_METHODS = {
    "Join": RpcMethod(NOBODY, certificates.join, changes=True),
    "EnterAsGuest": RpcMethod(NOBODY, _of_guests("enter_as_guest"), changes=True),
}
