"""Rules of notifications over real mutual TLS: who sees secrets, and what the notifier may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlq.v1 import job_service_pb2, queue_service_pb2
from dlq.v1 import notify_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq.v1.notify_service_pb2_grpc import NotifyServiceStub
from dlq.v1.queue_service_pb2_grpc import QueueServiceStub
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.pki import Role
from dlq_master.model.ids import JobId
from dlq_master.planner.forecasts import Range
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration

URL = "https://hooks.example.org/very-secret"
_IDS = count()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


def notify_as(house: RpcHouse, name: str, role: Role) -> Any:
    return NotifyServiceStub(house.channel_as(name, role))


async def add(house: RpcHouse, name: str = "alice", **told: Any) -> wire.NotifyRule:
    told = {"target": "webhook", "address": URL, "events": ["failed"]} | told
    request = wire.AddNotifyRuleRequest(request_id=f"r{next(_IDS)}", rule=wire.NotifyRule(**told))
    answer = await notify_as(house, name, Role.USER).AddNotifyRule(request, timeout=DEADLINE_S)
    rule: wire.NotifyRule = answer.rule
    return rule


async def listed(house: RpcHouse, name: str, role: Role, **told: Any) -> list[wire.NotifyRule]:
    request = wire.ListNotifyRulesRequest(**told)
    answer = await notify_as(house, name, role).ListNotifyRules(request, timeout=DEADLINE_S)
    return list(answer.rules)


async def submit(house: RpcHouse, name: str) -> str:
    request = job_service_pb2.SubmitJobRequest(request_id="s")
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 1
    stub = JobServiceStub(house.channel_as(name, Role.USER))
    return (await stub.SubmitJob(request, timeout=DEADLINE_S)).job.job_id


async def test_address_and_key_are_for_the_owner_and_the_notifier_alone(house: RpcHouse) -> None:
    made = await add(house)
    assert (made.address, len(made.signing_key) > 30) == (URL, True)
    secrets = {
        who: [(rule.address, rule.signing_key) for rule in await listed(house, who, role, **asked)]
        for who, role, asked in (
            ("alice", Role.USER, {}),
            ("bob", Role.USER, {}),
            ("olga", Role.OPERATOR, {"all_users": True}),
            ("root", Role.ADMIN, {"all_users": True}),
            ("nina", Role.NOTIFIER, {}),
        )
    }
    whole = [(URL, made.signing_key)]
    assert secrets == {
        "alice": whole, "bob": [], "olga": [("", "")], "root": [("", "")], "nina": whole,
    }  # fmt: skip
    (rule,) = await listed(house, "nina", Role.NOTIFIER)
    assert rule.HasField("owner_since_time")
    asked = wire.ListNotifyRulesRequest(all_users=True)
    call = notify_as(house, "bob", Role.USER).ListNotifyRules(asked, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED


async def test_the_audit_names_the_rule_and_no_secret(house: RpcHouse) -> None:
    made = await add(house)
    gone = wire.RemoveNotifyRuleRequest(request_id="g", rule_id=made.rule_id)
    await notify_as(house, "alice", Role.USER).RemoveNotifyRule(gone, timeout=DEADLINE_S)
    house.audit.close()
    lines = house.audit_path.read_text()
    assert "AddNotifyRule" in lines
    assert f'"object":"{made.rule_id}"' in lines.replace('": "', '":"')
    assert URL not in lines
    assert made.signing_key not in lines


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("target", {"target": "pigeon"}),
        ("events", {"events": []}),
        ("events", {"events": ["fialed"]}),
        ("address", {"address": "ftp://hooks.example.org/"}),
        ("address", {"address": "https://user:secret@hooks.example.org/"}),
        ("address", {"address": "https://hooks.example.org/\r\nX: y"}),
        ("address", {"address": "https://hooks.example.org/" + "x" * 2_000}),
        ("address", {"target": "mail", "address": "ada@example.org\nBcc: all@example.org"}),
        ("quiet_hours", {"quiet_hours": "22-7"}),
        ("time_zone", {"time_zone": "Europe/Atlantis"}),
        ("time_zone", {"time_zone": "../../etc/passwd"}),
    ],
)
async def test_a_rule_that_makes_no_sense_is_refused_without_its_secret(
    house: RpcHouse, field: str, wrong: dict[str, Any]
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await add(house, **wrong)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    told = str(refused.value.trailing_metadata()) + str(refused.value.details())
    assert field in told
    assert "secret" not in told


async def test_the_notifier_hears_of_all_jobs_and_does_nothing_else(house: RpcHouse) -> None:
    job_id = await submit(house, "alice")
    channel = house.channel_as("nina", Role.NOTIFIER)
    jobs = JobServiceStub(channel)
    stream = jobs.WatchEvents(job_service_pb2.WatchEventsRequest(cursor=0), timeout=DEADLINE_S)
    first: Any = await stream.read()
    stream.cancel()
    assert first.event.job_id == job_id
    named = job_service_pb2.WatchEventsRequest(job_ids=[job_id])
    assert await refusal(jobs.WatchEvents(named, timeout=DEADLINE_S)) is grpc.StatusCode.NOT_FOUND
    for call in (
        jobs.GetJob(job_service_pb2.GetJobRequest(job_id=job_id), timeout=DEADLINE_S),
        jobs.ListJobs(job_service_pb2.ListJobsRequest(user="*"), timeout=DEADLINE_S),
        jobs.ListEvents(job_service_pb2.ListEventsRequest(), timeout=DEADLINE_S),
        jobs.CancelJob(job_service_pb2.CancelJobRequest(job_id=job_id), timeout=DEADLINE_S),
        QueueServiceStub(channel).GetCluster(
            queue_service_pb2.GetClusterRequest(), timeout=DEADLINE_S
        ),
        NotifyServiceStub(channel).AddNotifyRule(
            wire.AddNotifyRuleRequest(request_id="x"), timeout=DEADLINE_S
        ),
    ):
        assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED


async def test_the_notifier_reads_output_only_where_the_owner_wants_it_told(
    house: RpcHouse,
) -> None:
    """An attempt that has not begun is refused with FAILED_PRECONDITION: the job is seen then."""
    job_id = await submit(house, "alice")
    jobs = JobServiceStub(house.channel_as("nina", Role.NOTIFIER))

    async def outcome() -> grpc.StatusCode:
        request = job_service_pb2.ReadLogsRequest(job_id=job_id)
        return await refusal(jobs.ReadLogs(request, timeout=DEADLINE_S))

    assert await outcome() is grpc.StatusCode.NOT_FOUND
    await add(house, "bob", with_output=True)
    await add(house, "alice")
    assert await outcome() is grpc.StatusCode.NOT_FOUND
    house.control.published.all_notify_rules.clear()
    await add(house, "alice", with_output=True)
    assert await outcome() is grpc.StatusCode.FAILED_PRECONDITION


async def test_estimates_are_told_of_waiting_jobs_whose_owners_want_them(house: RpcHouse) -> None:
    ids = [JobId(int(await submit(house, name))) for name in ("alice", "bob")]
    now_s = house.clock.now_s()
    for job_id in ids:
        house.control.published.start_ranges[job_id] = Range(now_s, now_s + 60.0, now_s + 90.0)
    await add(house, "alice", events=["start_moved"])
    await add(house, "bob", events=["failed"])
    stub: Any = notify_as(house, "nina", Role.NOTIFIER)
    answer = await stub.ListStartEstimates(wire.ListStartEstimatesRequest(), timeout=DEADLINE_S)
    assert [(one.job_id, one.user) for one in answer.jobs] == [(str(ids[0]), "alice")]
    assert answer.jobs[0].start_estimate.likely_time.seconds == int(now_s + 60.0)
    call = notify_as(house, "olga", Role.OPERATOR).ListStartEstimates(
        wire.ListStartEstimatesRequest(), timeout=DEADLINE_S
    )
    assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(("others", "named"), [("named", True), ("nameless", False)])
async def test_the_notifier_learns_for_whom_a_job_left_only_where_all_may(
    house: RpcHouse, others: str, named: bool
) -> None:
    job_id = await submit(house, "alice")
    house.control.published.others_shown = others
    facts = {"for_job": 9, "user": "bob", "rule": "fifo"}
    house.control.note("job_displaced", job_id=JobId(int(job_id)), data=facts)
    jobs: Any = JobServiceStub(house.channel_as("nina", Role.NOTIFIER))
    request = job_service_pb2.WatchEventsRequest(cursor=1, gathered=True)
    stream = jobs.WatchEvents(request, timeout=DEADLINE_S)
    message = await stream.read()
    stream.cancel()
    assert message.event.kind == "job_displaced"
    assert ("user" in message.event.data) is named


async def test_a_web_server_that_acts_for_a_user_is_told_no_stored_secret(house: RpcHouse) -> None:
    made = await add(house)
    portal: Any = NotifyServiceStub(house.channel_as("portal", Role.WEB))
    answer = await portal.ListNotifyRules(
        wire.ListNotifyRulesRequest(), timeout=DEADLINE_S, metadata=ActsFor("alice").metadata()
    )
    (rule,) = answer.rules
    assert (rule.rule_id, rule.address, rule.signing_key) == (made.rule_id, "", "")
