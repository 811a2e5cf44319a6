"""The permissions: the one table, by method. A method that is missing here is refused to everybody.

Among people each role may do what the one before it may: user < operator < admin. Nodes and the
inference service stand apart. Whose job it is, is not decided here but by the service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dlq_common.identity.pki import Role

USERS = frozenset({Role.USER, Role.OPERATOR, Role.ADMIN})
OPERATORS = frozenset({Role.OPERATOR, Role.ADMIN})
ADMINS = frozenset({Role.ADMIN})
NODES = frozenset({Role.NODE})
LENDERS = OPERATORS | {Role.INFERENCE}
LOOKERS = USERS | {Role.INFERENCE}  # may look at nodes and queues
MEMBERS = LOOKERS | NODES


@dataclass(frozen=True, slots=True)
class Rule:
    """The roles that may call a method, and whether it changes something (then every call is in the
    audit).
    """

    roles: frozenset[Role]
    changes: bool = False


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "/dlq.v1.JobService/SubmitJob": Rule(USERS, changes=True),
        "/dlq.v1.JobService/GetJob": Rule(USERS),
        "/dlq.v1.JobService/ListJobs": Rule(USERS),
        "/dlq.v1.JobService/CancelJob": Rule(USERS, changes=True),
        "/dlq.v1.JobService/HoldJob": Rule(USERS, changes=True),
        "/dlq.v1.JobService/ReleaseJob": Rule(USERS, changes=True),
        "/dlq.v1.JobService/PauseJob": Rule(USERS, changes=True),
        "/dlq.v1.JobService/ResumeJob": Rule(USERS, changes=True),
        "/dlq.v1.JobService/UpdateJob": Rule(USERS, changes=True),
        "/dlq.v1.JobService/RequeueJob": Rule(USERS, changes=True),
        "/dlq.v1.JobService/SignalJob": Rule(USERS, changes=True),
        "/dlq.v1.JobService/CheckpointJob": Rule(USERS, changes=True),
        "/dlq.v1.JobService/ExplainJob": Rule(USERS),
        "/dlq.v1.JobService/ListEvents": Rule(USERS),
        "/dlq.v1.JobService/WatchEvents": Rule(USERS),
        "/dlq.v1.JobService/ReadLogs": Rule(USERS),
        "/dlq.v1.JobService/ExecJob": Rule(USERS, changes=True),
        "/dlq.v1.NodeService/ListNodes": Rule(LOOKERS),
        "/dlq.v1.NodeService/GetNode": Rule(LOOKERS),
        "/dlq.v1.QueueService/ListQueues": Rule(LOOKERS),
        "/dlq.v1.QueueService/GetCluster": Rule(MEMBERS),
        "/dlq.v1.ForecastService/EstimateJob": Rule(USERS),
        "/dlq.v1.ForecastService/GetForecastQuality": Rule(USERS),
        "/dlq.v1.ForecastService/CompareForecasts": Rule(OPERATORS),
        "/dlq.v1.AdminService/CreateJoinToken": Rule(ADMINS, changes=True),
        "/dlq.v1.AdminService/ListJoinTokens": Rule(ADMINS),
        "/dlq.v1.AdminService/RevokeJoinToken": Rule(ADMINS, changes=True),
        "/dlq.v1.AdminService/FenceNode": Rule(OPERATORS, changes=True),
        "/dlq.v1.AdminService/SetNodeFlags": Rule(OPERATORS, changes=True),
        "/dlq.v1.AdminService/SetNodeLabels": Rule(OPERATORS, changes=True),
        "/dlq.v1.AdminService/AcceptGpus": Rule(OPERATORS, changes=True),
        "/dlq.v1.AdminService/ClearGpuConditions": Rule(OPERATORS, changes=True),
        "/dlq.v1.AdminService/ForgetNode": Rule(ADMINS, changes=True),
        "/dlq.v1.AdminService/ListUsers": Rule(OPERATORS),
        "/dlq.v1.AdminService/SetUser": Rule(ADMINS, changes=True),
        "/dlq.v1.AdminService/DeleteUser": Rule(ADMINS, changes=True),
        "/dlq.v1.AdminService/GetPolicy": Rule(OPERATORS),
        "/dlq.v1.AdminService/SetPolicy": Rule(ADMINS, changes=True),
        "/dlq.v1.ReservationService/ListReservations": Rule(USERS),
        "/dlq.v1.ReservationService/CreateReservation": Rule(OPERATORS, changes=True),
        "/dlq.v1.ReservationService/CancelReservation": Rule(OPERATORS, changes=True),
        "/dlq.v1.TeamService/ListTeams": Rule(USERS),
        "/dlq.v1.TeamService/SetTeam": Rule(ADMINS, changes=True),
        "/dlq.v1.TeamService/DeleteTeam": Rule(ADMINS, changes=True),
        "/dlq.v1.UsageService/GetUsage": Rule(USERS),
        "/dlq.v1.UsageService/GetCosts": Rule(USERS),
        "/dlq.v1.LoanService/ListLoans": Rule(LENDERS),
        "/dlq.v1.LoanService/LendServers": Rule(LENDERS, changes=True),
        "/dlq.v1.LoanService/PlanReclaim": Rule(LENDERS),
        "/dlq.v1.LoanService/ReclaimServers": Rule(LENDERS, changes=True),
        "/dlq.v1.PoolService/ListPools": Rule(OPERATORS),
        "/dlq.v1.PoolService/StopMachines": Rule(OPERATORS, changes=True),
        "/dlq.v1.LoanService/SetLoanController": Rule(LENDERS, changes=True),
        "/dlq.v1.IdentityService/RenewCertificate": Rule(MEMBERS, changes=True),
        "/dlq.v1.AgentService/Session": Rule(NODES),
        "/dlq.v1.AgentService/PushLog": Rule(NODES),
        "/dlq.v1.AgentService/ServeExec": Rule(NODES),
        "/dlq.v1.AgentService/AnnounceMaintenance": Rule(NODES, changes=True),
        "/dlq.v1.AgentService/AnnounceLeave": Rule(NODES, changes=True),
        "/grpc.health.v1.Health/Check": Rule(MEMBERS),
        "/grpc.health.v1.Health/Watch": Rule(MEMBERS),
    }
)

# Served on the join port alone, where nobody has a certificate yet.
JOIN = "/dlq.v1.JoinService/Join"
