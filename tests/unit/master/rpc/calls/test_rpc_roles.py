"""The table of who may call what holds every method there is, and nothing else."""

from __future__ import annotations

from google.protobuf import descriptor_pool

from dlq_common.identity.pki import Role
from dlq_master.rpc.methods import JOIN_SERVICE, METHODS
from support.wire_methods import every_method

JOIN = {f"/{JOIN_SERVICE}/{name}" for name in ("Join", "EnterAsGuest")}
# gRPC's own health servicer does not implement it.
UNSERVED = "/grpc.health.v1.Health/List"


def test_every_method_of_the_wire_is_in_the_table() -> None:
    served = {method.path for method in every_method()}
    assert served - METHODS.keys() == JOIN | {UNSERVED}


def test_the_table_names_no_method_that_does_not_exist() -> None:
    served = {method.path for method in every_method()}
    assert METHODS.keys() - served == set()


def test_each_role_of_people_may_do_what_the_one_below_it_may() -> None:
    for path, rule in METHODS.items():
        if Role.GUEST in rule.roles:
            assert Role.USER in rule.roles, path
        if Role.USER in rule.roles:
            assert Role.OPERATOR in rule.roles, path
        if Role.OPERATOR in rule.roles:
            assert Role.ADMIN in rule.roles, path


def test_nodes_may_not_call_what_is_for_people_alone() -> None:
    for_nodes = {path for path, rule in METHODS.items() if Role.NODE in rule.roles}
    assert for_nodes == {
        "/dlq.v1.AgentService/Session",
        "/dlq.v1.AgentService/PushLog",
        "/dlq.v1.AgentService/ServeExec",
        "/dlq.v1.AgentService/AnnounceMaintenance",
        "/dlq.v1.AgentService/AnnounceLeave",
        "/dlq.v1.IdentityService/RenewCertificate",
        "/dlq.v1.IdentityService/CheckIdentity",
        "/dlq.v1.QueueService/GetCluster",
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
    }


def test_whatever_carries_a_request_id_changes_something_and_is_audited() -> None:
    pool = descriptor_pool.Default()
    for method in every_method():
        fields = pool.FindMessageTypeByName(method.input_type).fields_by_name
        if "request_id" in fields:
            assert METHODS[method.path].changes, method.path


def test_the_master_and_strangers_may_call_nothing() -> None:
    assert not any(Role.MASTER in rule.roles for rule in METHODS.values())


def for_roles(*roles: Role) -> set[str]:
    """Names of the methods that exactly these roles may call."""
    return {path.rsplit("/", 1)[-1] for path, rule in METHODS.items() if rule.roles == set(roles)}


def test_tokens_users_and_forgetting_are_for_admins_alone() -> None:
    assert for_roles(Role.ADMIN) == {
        "CreateJoinToken",
        "ListJoinTokens",
        "RevokeJoinToken",
        "RevokeCertificates",
        "ListRevocations",
        "RotateAuthority",
        "GetAuthority",
        "FinishAuthority",
        "StepDown",
        "ReloadHooks",
        "TestHooks",
        "ForgetNode",
        "SetUser",
        "DeleteUser",
        "SetPolicy",
        "SetTeam",
        "DeleteTeam",
        "MakeGrant",
        "RevokeGrant",
        "TakeDocument",
    }


def test_the_care_of_nodes_is_for_operators() -> None:
    assert for_roles(Role.OPERATOR, Role.ADMIN) == {
        "CreateReservation",
        "CancelReservation",
        "FenceNode",
        "SetNodeFlags",
        "SetNodeLabels",
        "CompareForecasts",
        "AcceptGpus",
        "CheckNodes",
        "ClearGpuConditions",
        "ListUsers",
        "ListAuditLines",
        "GetHooks",
        "GetLeader",
        "GetPolicy",
        "ListPools",
        "ProfileMaster",
        "ProfileNode",
        "StopMachines",
        "ListGrants",
        "SignDocument",
    }


def test_the_inference_service_looks_and_takes_back_what_is_its_own() -> None:
    may = {
        path.rsplit("/", 1)[-1] for path, rule in METHODS.items() if Role.INFERENCE in rule.roles
    }
    assert may == {
        "ListNodes",
        "GetNode",
        "ListQueues",
        "GetCluster",
        "ListLoans",
        "LendServers",
        "PlanReclaim",
        "ReclaimServers",
        "SetLoanController",
        "RenewCertificate",
        "CheckIdentity",
        "Check",
        "Watch",
    }


def test_the_notifier_reads_events_and_rules_and_changes_nothing_but_its_certificate() -> None:
    may = {path.rsplit("/", 1)[-1] for path, rule in METHODS.items() if Role.NOTIFIER in rule.roles}
    assert may == {
        "WatchEvents",
        "ReadLogs",
        "ListNotifyRules",
        "ListStartEstimates",
        "RenewCertificate",
        "CheckIdentity",
    }
    assert for_roles(Role.NOTIFIER) == {"ListStartEstimates"}


def test_a_web_server_by_itself_does_nothing_but_renew_and_let_in() -> None:
    may = {path.rsplit("/", 1)[-1] for path, rule in METHODS.items() if Role.WEB in rule.roles}
    assert may == {"RenewCertificate", "CheckIdentity", "UseSignInLink", "Check", "Watch"}
    assert for_roles(Role.WEB) == {"UseSignInLink"}


def test_certificates_are_for_their_holders_in_person() -> None:
    in_person = {path.rsplit("/", 1)[-1] for path, rule in METHODS.items() if rule.in_person}
    assert in_person == {
        *("RenewCertificate", "CheckIdentity", "CreateSignInLink", "UseSignInLink", "Introduce"),
    }


def test_only_the_certificate_of_another_host_needs_a_service() -> None:
    by_service = {path.rsplit("/", 1)[-1] for path, rule in METHODS.items() if rule.by_service}
    assert by_service == {"CertifyUser"}
