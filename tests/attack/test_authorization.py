"""Every method as everybody: who gets in is as the table of this file says, which is not the
master's own.

The callers are those whom a site has, and those whom it has no more: a removed user, a node that
was forgotten, a certificate that is over, one of another CA, none. The daemons are real.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.message_factory import GetMessageClass

from attack.calling import Caller
from attack.extent import SEED
from attack.site import EVIL, PEOPLE, AttackedSite, attacked_site
from attack.test_messages import JOIN, held, running, told_of
from dlq_client.jobs import Jobs
from dlq_client.line.identity import Identity
from dlq_common.clock import SteadyClock
from dlq_common.identity.pki import Authority, Role
from support.proofs import proved
from support.waiting import wait_until
from support.wire_methods import Method, every_method, tells

pytestmark = pytest.mark.attack

DAY_S = 86_400.0
REFUSED = {
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNAVAILABLE,
}
NOT_YOURS = REFUSED | {grpc.StatusCode.NOT_FOUND}

NOBODY = {
    "/grpc.health.v1.Health/List",
    "/dlq.v1.IdentityService/UseSignInLink",  # the role web
    "/dlq.v1.IdentityService/CertifyUser",  # through a service that acts for its user
    "/dlq.v1.NotifyService/ListStartEstimates",  # the role notifier
}
EVERYBODY = {"Check", "Watch", "GetCluster", "RenewCertificate", "CheckIdentity"}
INFERENCE = {"ListLoans", "LendServers", "PlanReclaim", "ReclaimServers", "SetLoanController"}
NOTIFIER = {
    "RenewCertificate",
    "CheckIdentity",
    "WatchEvents",
    "ListNotifyRules",
    "ListStartEstimates",
    "ReadLogs",  # of jobs whose owner has a rule with --with-output
}
LOOKING = {"ListNodes", "GetNode", "ListQueues"}
USERS = {
    "EstimateJob",
    "GetGpuMap",
    "GetForecastQuality",
    "ListPromises",
    "ListReservations",
    "ListTeams",
    "GetUsage",
    "GetCosts",
    "CreateSignInLink",
    "Introduce",
    "AddNotifyRule",
    "ListNotifyRules",
    "RemoveNotifyRule",
    "TestNotifyRule",
}
ADMINS = {"CreateJoinToken", "ListJoinTokens", "RevokeJoinToken", "ForgetNode", "SetUser", "DeleteUser", "SetPolicy",  # noqa: E501
          "SetTeam", "DeleteTeam", "RevokeCertificates", "ListRevocations",
          "RotateAuthority", "GetAuthority", "FinishAuthority", "StepDown", "ReloadHooks",
          "TestHooks", "MakeGrant", "RevokeGrant", "TakeDocument"}  # fmt: skip


def may(role: Role, method: Method) -> bool:
    """Whether somebody of this role has business there."""
    service, name = method.path.rsplit("/", 1)
    if method.path in NOBODY:
        return False
    if name in EVERYBODY:
        return True
    if role is Role.NODE:
        return "AgentService" in service
    if "AgentService" in service:
        return False
    if role is Role.INFERENCE:
        return name in INFERENCE | LOOKING
    if role is Role.ADMIN:
        return True
    if role is Role.OPERATOR:
        return name not in ADMINS
    return "JobService" in service or name in LOOKING | USERS


class Stranger(NamedTuple):
    """Somebody who has no right at all."""

    name: str
    identity: Identity | None


@pytest.fixture(scope="module")
def site() -> Iterator[AttackedSite]:
    with attacked_site(SEED) as made:
        yield made


def methods() -> list[Method]:
    return [method for method in every_method() if not method.path.startswith(JOIN)]


def empty(method: Method) -> bytes:
    """Nothing is said: a call that is let in fails on that, and changes nothing."""
    return b""


def ends(site: AttackedSite, identity: Identity | None) -> dict[Method, grpc.StatusCode]:
    """How each method ends for them, when nothing is said."""
    founder = site.identity("root", Role.ADMIN)
    caller = Caller(site.api, founder.ca, identity)
    try:
        return {method: caller.ask(method, [empty(method)])[0] for method in methods()}
    finally:
        caller.close()


@pytest.mark.parametrize(
    ("name", "role"), [("mallory", Role.USER), ("prism", Role.INFERENCE), (EVIL, Role.NODE), ("olga", Role.OPERATOR),  # noqa: E501
                       ("root", Role.ADMIN)]
)  # fmt: skip
def test_each_role_gets_in_where_it_has_business(site: AttackedSite, name: str, role: Role) -> None:
    found = ends(site, site.identity(name, role))
    wrong = {
        method.path: code.name
        for method, code in found.items()
        if may(role, method) == (code in REFUSED)
    }
    assert wrong == {}
    proved("every method by role", caller=role.value, calls=len(found), unexpected=0)


def test_a_web_server_gets_in_for_nobody_whom_it_does_not_name(site: AttackedSite) -> None:
    site.said("admin", "user", "set", "portal", "--role", "web", "--uid", "64301", "--gid", "64301")
    found = ends(site, site.identity("portal", Role.WEB))
    site.said("admin", "user", "del", "portal", "-y")
    let_in = {
        method.path.rsplit("/", 1)[1] for method, code in found.items() if code not in REFUSED
    }
    assert let_in == {"Check", "Watch", "RenewCertificate", "CheckIdentity", "UseSignInLink"}


def test_a_notifier_hears_events_and_rules_and_gets_in_nowhere_else(site: AttackedSite) -> None:
    site.said(
        "admin", "user", "set", "crier", "--role", "notifier", "--uid", "64302", "--gid", "64302"
    )
    found = ends(site, site.identity("crier", Role.NOTIFIER))
    site.said("admin", "user", "del", "crier", "-y")
    let_in = {
        method.path.rsplit("/", 1)[1] for method, code in found.items() if code not in REFUSED
    }
    assert let_in == NOTIFIER


def test_whoever_is_nobody_any_more_gets_in_nowhere(site: AttackedSite) -> None:
    now_s = SteadyClock().now_s()
    site.said("admin", "user", "set", "gone", "--role", "admin", "--uid", "64300", "--gid", "64300")
    gone = site.identity("gone", Role.ADMIN)
    site.said("admin", "user", "del", "gone", "-y")
    strangers = [
        Stranger("without a certificate", None),
        Stranger("of another CA", site.identity("root", Role.ADMIN, authority=Authority.create("torture", now_s))),  # noqa: E501
        Stranger("over since a year", site.identity("root", Role.ADMIN, now_s=now_s - 400 * DAY_S)),
        Stranger("removed", gone),
        Stranger("of a role that was taken away", site.identity("mallory", Role.ADMIN)),
        Stranger("a user who calls himself a node", site.identity("mallory", Role.NODE)),
        Stranger("a node that calls itself a user", site.identity("n1", Role.USER)),
        Stranger("a node that never joined", site.identity("n9", Role.NODE)),
    ]  # fmt: skip
    wrong, cells = {}, 0
    for stranger in strangers:
        found = ends(site, stranger.identity)
        cells += len(found)
        let_in = [method.path for method, code in found.items() if code not in REFUSED]
        if let_in:
            wrong[stranger.name] = let_in
    assert wrong == {}
    proved("every method with bad credentials", callers=len(strangers), calls=cells, unexpected=0)


def refuses_each(method: Method, came: list[bytes]) -> bool:
    """Whether the call was let in, and refused each of its jobs as one that is not there."""
    answer = GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(method.output_type))
    each = [answer.FromString(one) for one in came]
    return bool(each) and all(getattr(one, "refusals", ()) and not tells(one) for one in each)


@pytest.mark.parametrize("name", ["mallory", "prism", EVIL])
def test_a_job_is_nobody_elses_to_read_or_change(site: AttackedSite, name: str) -> None:
    identity = site.identity(name, PEOPLE.get(name, Role.NODE))
    with site.connect_person("alice") as line:
        jobs = Jobs(line)
        ids = [
            jobs.submit(site.ledger_job(600.0, 0)).job.job_id,
            jobs.submit(held(site)).job.job_id,
        ]
        wait_until(lambda: running(jobs, ids[0]), what="it runs")
        before = [told_of(jobs, job_id) for job_id in ids]
        caller, wrong, cells = Caller(site.api, identity.ca, identity), [], 0
        for method in methods():
            for job_id in ids:
                for request in naming(method, job_id):
                    code, came = caller.ask(method, [request])
                    cells += 1
                    if site.secret.encode() in b"".join(came):
                        wrong.append(f"{method.path} shows the secret")
                    if changes(method) and code not in NOT_YOURS and not refuses_each(method, came):
                        wrong.append(f"{method.path} of job {job_id}: {code.name} {came!r}")
        caller.close()
        assert wrong == []
        assert [told_of(jobs, job_id) for job_id in ids] == before
        for job_id in ids:
            jobs.cancel(job_id, kill=True)
        proved("jobs of another user", caller=name, calls=cells, unexpected=0)


def changes(method: Method) -> bool:
    """Whether it does something to a job, by its name."""
    name = method.path.rsplit("/", 1)[1]
    words = (
        "Cancel",
        "Hold",
        "Release",
        "Pause",
        "Resume",
        "Update",
        "Requeue",
        "Signal",
        "Checkpoint",
        "Exec",
    )
    return name.startswith(words) and "JobService" in method.path


def naming(method: Method, job_id: str) -> Iterator[bytes]:
    """Requests that name the job in each field that could."""
    cls = GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(method.input_type))
    for field in ("job_id", "job_ids", "opening"):
        request: Any = cls()
        if field not in request.DESCRIPTOR.fields_by_name:
            continue
        for name, value in (
            ("request_id", f"{method.path}{job_id}"[-60:]),
            ("signal", "USR1"),
            ("name", "mine"),
            ("accept_loss", True),
        ):
            if name in request.DESCRIPTOR.fields_by_name:
                setattr(request, name, value)
        if field == "job_id":
            request.job_id = job_id
        elif field == "job_ids":
            request.job_ids.append(job_id)
        else:
            request.opening.job_id = job_id
            request.opening.spec.command.append("/bin/true")
        yield bytes(request.SerializeToString())
