"""Guests of another organisation: what opens the door, what does not, and what they see inside."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from dlq.v1 import admin_service_pb2 as admin
from dlq.v1 import identity_service_pb2 as identity
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role, new_key_and_csr, parse_identity
from dlq_common.identity.signed import INTRODUCTION, claimed, signed
from dlq_master.rpc.people import grant_books
from support.rpc_house import DEADLINE_S, ended, refusal
from support.two_organisations import Guest, TwoOrganisations, two_organisations

pytestmark = pytest.mark.integration
OUT, NO = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[TwoOrganisations]:
    async with two_organisations(tmp_path) as found:
        yield found


async def submit(jobs: Any, request_id: str = "one", **told: Any) -> str:
    request = wire.SubmitJobRequest(request_id=request_id)
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 1
    request.spec.environment["TOKEN"] = "s3cret"
    for name, value in told.items():
        setattr(request.spec, name, value)
    return str((await jobs.SubmitJob(request, timeout=DEADLINE_S)).job.job_id)


async def refused(call: Any) -> aio.AioRpcError:
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return caught.value


def listing(guest: Guest) -> Any:
    return guest.jobs.ListJobs(wire.ListJobsRequest(page_size=10), timeout=DEADLINE_S)


def audit_lines(house: Any, method: str) -> list[dict[str, str]]:
    house.audit.close()
    lines = [json.loads(line) for line in house.audit_path.read_text().splitlines()]
    return [line for line in lines if line.get("method", "").endswith(method)]


async def test_a_guest_runs_jobs_there_and_both_audits_say_so(
    two: TwoOrganisations,
) -> None:
    grant = await two.agreed()
    guest = await two.guest()
    who = parse_identity(guest.certificate)
    assert (who.name, who.role, who.through) == ("ann@orga", Role.GUEST, f"grant-{grant.serial}")
    job_id = await submit(guest.jobs)
    seen = await guest.jobs.GetJob(wire.GetJobRequest(job_id=job_id), timeout=DEADLINE_S)
    assert (seen.job.user, seen.job.team) == ("ann@orga", "orga")
    (said,) = audit_lines(two.a.house, "/Introduce")
    (came,) = audit_lines(two.b.house, "/EnterAsGuest")
    assert (said["who"], said["object"]) == ("ann", guest.serial)
    assert (came["who"], came["object"]) == ("ann@orga", guest.serial)
    (ran,) = audit_lines(two.b.house, "/SubmitJob")
    assert (ran["who"], ran["through"]) == ("ann@orga", f"grant-{grant.serial}")


async def test_guests_see_and_steer_their_own_jobs_alone(two: TwoOrganisations) -> None:
    await two.agreed()
    ann, bob = await two.guest("ann"), await two.guest("bob")
    locals_: Any = JobServiceStub(two.b.house.channel_as("ann", Role.USER))
    others = {await submit(locals_, "local"), await submit(bob.jobs, "bob")}
    own = await submit(ann.jobs, "ann")
    for whose in ("", "*", "ann@orga"):
        request = wire.ListJobsRequest(page_size=10, user=whose)
        call = ann.jobs.ListJobs(request, timeout=DEADLINE_S)
        if whose == "*":
            assert (await refused(call)).code() is NO
            continue
        listed = await call
        assert [job.job_id for job in listed.jobs] == [own]
    for other in others:
        for call in (
            ann.jobs.GetJob(wire.GetJobRequest(job_id=other), timeout=DEADLINE_S),
            ann.jobs.CancelJob(
                wire.CancelJobRequest(request_id="c", job_id=other), timeout=DEADLINE_S
            ),
            ann.jobs.ExplainJob(wire.ExplainJobRequest(job_id=other), timeout=DEADLINE_S),
            ann.jobs.UpdateJob(
                wire.UpdateJobRequest(request_id="u", job_id=other), timeout=DEADLINE_S
            ),
        ):
            failure = await refused(call)
            assert failure.code() is grpc.StatusCode.NOT_FOUND
            assert "s3cret" not in str(failure)
    operators: Any = JobServiceStub(two.b.house.channel_as("olga", Role.OPERATOR))
    request = wire.ListJobsRequest(page_size=10, user="*")
    assert len((await operators.ListJobs(request, timeout=DEADLINE_S)).jobs) == 3


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"user": "root"}, "forged"),
        ({"grant": "00ff00ff00ff00ff"}, "no grant"),
    ],
)
async def test_a_changed_introduction_is_refused(
    two: TwoOrganisations, changed: dict[str, str], words: str
) -> None:
    await two.agreed()
    key = new_key_and_csr("ann")
    text = await two.a.introduce("ann", key)
    body = {**claimed(text)[1], **changed}
    bent = json.loads(text) | {"body": base64.b64encode(json.dumps(body).encode()).decode()}
    failure = await refused(two.b.let_in(json.dumps(bent), key))
    assert failure.code() is OUT
    assert words in str(failure.details())


async def test_an_introduction_is_good_once_for_one_key_and_for_one_cluster(
    two: TwoOrganisations,
) -> None:
    await two.agreed()
    key, other = new_key_and_csr("ann"), new_key_and_csr("ann")
    text = await two.a.introduce("ann", key)
    stolen = await refused(two.b.let_in(text, other))
    assert "another key" in str(stolen.details())
    await two.b.let_in(text, key)
    again = await refused(two.b.let_in(text, key))
    assert again.code() is OUT
    assert "used already" in str(again.details())
    elsewhere = await refused(two.a.let_in(text, key))
    assert elsewhere.code() is OUT
    assert "no grant" in str(elsewhere.details())


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"to": "00" * 32}, "another cluster"),
        ({"until_s": 1.0}, "too old"),
        ({"number": "../x"}, "lacks something"),
        ({"user": "../root"}, "lacks something"),
        ({"user": "root@orga"}, "lacks something"),
        ({"person": ""}, "lacks something"),
        ({"until_s": "nan"}, "too old"),
    ],
)
async def test_words_that_the_other_organisation_signs_in_earnest_are_checked(
    two: TwoOrganisations, told: dict[str, Any], words: str
) -> None:
    grant = await two.agreed()
    key = new_key_and_csr("ann")
    body = dict(claimed(await two.a.introduce("ann", key))[1])
    assert body["grant"] == grant.serial
    authority, now_s = two.a.house.authority, two.a.house.clock.now_s()
    text = signed(authority, INTRODUCTION, body | told, now_s)
    failure = await refused(two.b.let_in(text, key))
    assert failure.code() in (OUT, grpc.StatusCode.INVALID_ARGUMENT)
    assert words in str(failure.details())


async def test_an_old_introduction_and_one_of_the_future_are_refused(
    two: TwoOrganisations,
) -> None:
    await two.agreed()
    key = new_key_and_csr("ann")
    body = dict(claimed(await two.a.introduce("ann", key))[1])
    authority, now_s = two.a.house.authority, two.a.house.clock.now_s()
    for at_s in (now_s - 3_600.0, now_s + 3_600.0):
        text = signed(authority, INTRODUCTION, body | {"until_s": at_s + 300.0}, at_s)
        failure = await refused(two.b.let_in(text, key))
        assert "too old, or of the future" in str(failure.details())


async def test_another_organisation_cannot_speak_for_the_users_of_this_one(
    two: TwoOrganisations,
) -> None:
    """B's own CA, or any third one, signs under A's grant."""
    await two.agreed()
    key = new_key_and_csr("ann")
    body = claimed(await two.a.introduce("ann", key))[1]
    text = signed(two.b.house.authority, INTRODUCTION, body, two.b.house.clock.now_s())
    failure = await refused(two.b.let_in(text, key))
    assert failure.code() is OUT
    assert "not signed by this organisation" in str(failure.details())


async def test_a_revoked_grant_is_over_at_once_for_calls_and_open_streams(
    two: TwoOrganisations,
) -> None:
    grant = await two.agreed()
    guest, key = await two.guest(), new_key_and_csr("ann")
    kept = await two.a.introduce("ann", key)
    await submit(guest.jobs)
    watch = guest.jobs.WatchEvents(wire.WatchEventsRequest(), timeout=DEADLINE_S)
    await watch.read()
    request = admin.RevokeGrantRequest(request_id="r", serial=grant.serial, reason="over")
    done = await two.b.admins().RevokeGrant(request, timeout=DEADLINE_S)
    assert (done.cancelled_count, done.grant.state) == (1, "revoked")
    assert await ended(watch) is OUT
    assert (await refused(listing(guest))).code() is OUT
    assert "was revoked" in str((await refused(two.b.let_in(kept, key))).details())
    renewal: Any = IdentityServiceStub(guest.channel)
    asked = identity.RenewCertificateRequest(certificate_request=key.request)
    assert await refusal(renewal.RenewCertificate(asked, timeout=DEADLINE_S)) is OUT


async def test_one_guest_or_one_certificate_is_revoked_as_a_users(two: TwoOrganisations) -> None:
    await two.agreed()
    ann, bob = await two.guest("ann"), await two.guest("bob")
    for told in ({"name": "ann@orga"}, {"serial": parse_identity(bob.certificate).serial}):
        request = admin.RevokeCertificatesRequest(request_id=next(iter(told)), **told)
        await two.b.admins().RevokeCertificates(request, timeout=DEADLINE_S)
    for guest in (ann, bob):
        assert (await refused(listing(guest))).code() is OUT


async def test_a_replaced_grant_lets_nobody_in_under_the_former_one(
    two: TwoOrganisations,
) -> None:
    await two.agreed()
    before = await two.guest()
    await two.agreed(replace=True, request_id="again")
    assert "replaced" in str((await refused(listing(before))).details())
    assert (await listing(await two.guest())).jobs is not None


async def test_the_own_cluster_introduces_those_users_whom_its_admin_has_named(
    two: TwoOrganisations,
) -> None:
    await two.agreed(users=("bob",))
    await two.guest("bob")
    assert (await refused(two.guest("ann"))).code() is NO
    guest = await two.guest("bob")
    stub: Any = IdentityServiceStub(guest.channel)
    asked = identity.IntroduceRequest(grant="roof", key_fingerprint="0" * 64)
    assert await refusal(stub.Introduce(asked, timeout=DEADLINE_S)) is NO, "guests introduce nobody"


async def test_limits_are_refused_in_words(two: TwoOrganisations) -> None:
    await two.agreed(limits={"gpu_count": 1, "queues": ["default"]})
    guest = await two.guest()
    request = wire.SubmitJobRequest(request_id="wide")
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 2
    failure = await refused(guest.jobs.SubmitJob(request, timeout=DEADLINE_S))
    assert "may hold 1 at most" in str(failure.details())
    failure = await refused(submit(guest.jobs, "team", team="vision"))
    assert "in no team" in str(failure.details())


async def test_statements_settle_the_account_of_both(
    two: TwoOrganisations, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = await two.agreed()
    await two.guest()

    async def used(*_: Any, **__: Any) -> dict[str, float]:
        return {"ann@orga": 7_200.0}

    monkeypatch.setattr("dlq_master.rpc.cluster.grant_service.used_gpu_s", used)
    statement = await two.b.document(grant.serial, "statement")
    assert claimed(statement)[1]["users"] == {"ann": 7_200.0}
    held = await two.a.take(statement)
    assert (held.held, held.used_gpu_seconds) == (True, 7_200.0)
    given = (await two.b.admins().ListGrants(admin.ListGrantsRequest(), timeout=DEADLINE_S)).grants
    assert [(one.held, one.used_gpu_seconds) for one in given] == [(False, 7_200.0)]
    bent = json.loads(statement)
    bent["body"] = base64.b64encode(base64.b64decode(bent["body"]).replace(b"7200", b"1200"))
    bent["body"] = bent["body"].decode()
    assert (await refused(two.a.take(json.dumps(bent)))).code() is OUT
    assert (await refused(two.b.take(statement))).code() is grpc.StatusCode.NOT_FOUND


async def test_what_the_accounts_say_closes_a_grant_and_cuts_nobody_off(
    two: TwoOrganisations,
) -> None:
    grant = await two.agreed(limits={"gpu_count": 4, "gpu_hours": 0.5})
    guest = await two.guest()
    loop, lost = two.b.loop, []

    async def used(*_: Any, **__: Any) -> dict[str, float]:
        return {"ann@orga": 1_800.0}

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(grant_books, "used_gpu_s", used)
        await grant_books.look(loop, two.b.house.clock.now_s, lambda: lost.append(1))
    assert loop.published.grants[grant.serial].state == "spent"
    failure = await refused(submit(guest.jobs))
    assert failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await listing(guest)  # they still see their jobs
    await grant_books.look(loop, two.b.house.clock.now_s, lambda: lost.append(1))
    assert loop.published.grants[grant.serial].state == "good", "nothing was used in truth"
    assert len(lost) == 2


async def test_a_grant_for_somebody_else_is_not_taken(two: TwoOrganisations) -> None:
    grant = await two.b.grant(two.a)
    document = await two.b.document(grant.serial, "grant")
    failure = await refused(two.b.take(document))
    assert "for another organisation" in str(failure.details())
    operators = AdminServiceStub(two.a.house.channel_as("olga", Role.OPERATOR))
    request = admin.TakeDocumentRequest(request_id="t", document=document)
    assert await refusal(operators.TakeDocument(request, timeout=DEADLINE_S)) is NO


async def test_root_and_the_accounts_of_users_are_for_no_guest(two: TwoOrganisations) -> None:
    for name in ("root", "nobody", "no-such-account"):
        failure = await refused(two.b.grant(two.a, accounts=(name,)))
        assert failure.code() is NO
    failure = await refused(two.b.grant(two.a, ca=two.b.ca))
    assert "of this cluster itself" in str(failure.details())
