"""The job, node, queue and admin services over the wire: what is asked arrives, errors say why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from dlq.v1 import admin_service_pb2 as admin
from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq.v1 import node_service_pb2 as nodes
from dlq.v1 import queue_service_pb2 as queues
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq.v1.node_service_pb2_grpc import NodeServiceStub
from dlq.v1.queue_service_pb2_grpc import QueueServiceStub
from dlq.v1.resource_pb2 import ResourceRequest
from dlq_common.errors import Unsatisfiable
from dlq_common.identity.pki import Role
from dlq_master.control import stimuli as say
from dlq_master.model.jobs.job import HoldKind
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


@pytest.fixture
def alice(house: RpcHouse) -> Any:
    return JobServiceStub(house.channel_as("alice", Role.USER))


@pytest.fixture
def root(house: RpcHouse) -> Any:
    return AdminServiceStub(house.channel_as("root", Role.ADMIN))


def a_submission(request_id: str = "r1", **spec: Any) -> wire.SubmitJobRequest:
    request = wire.SubmitJobRequest(request_id=request_id, spec=job_pb2.JobSpec(**spec))
    if not spec.get("command"):
        request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 1
    return request


async def details(call: Any) -> tuple[grpc.StatusCode, error_details_pb2.ErrorInfo]:
    """The code and the ErrorInfo with which a call is refused."""
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    status = rpc_status.from_call(caught.value)
    assert status is not None
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return caught.value.code(), info


async def test_a_submission_is_answered_with_the_job_and_why_it_waits(
    house: RpcHouse, alice: Any
) -> None:
    answer = await alice.SubmitJob(a_submission(name="train"), timeout=DEADLINE_S)
    assert (answer.job.user, answer.job.name) == ("alice", "train")
    assert [reason.code for reason in answer.reasons] == ["no_nodes"]
    stimulus = house.control.asked[0]
    assert isinstance(stimulus, say.SubmitJob)
    assert (stimulus.caller.name, stimulus.caller.person) == ("alice", "alice")
    assert job_pb2.JobSpec.FromString(stimulus.spec).name == "train"


async def test_a_job_shows_its_spec_with_defaults_and_all_attempts(
    house: RpcHouse, alice: Any
) -> None:
    submitted = await alice.SubmitJob(a_submission(), timeout=DEADLINE_S)
    house.control.place(1, "gpu01")  # type: ignore[arg-type]
    answer = await alice.GetJob(wire.GetJobRequest(job_id=submitted.job.job_id), timeout=DEADLINE_S)
    assert answer.spec.runtime == "process"
    assert [each.attempt for each in answer.attempts] == [1]
    assert answer.attempts[0].lease.HasField("hold_until_time")
    assert answer.job.attempt_state == job_pb2.ATTEMPT_STATE_RUNNING


async def test_a_malformed_spec_names_its_field_and_reaches_nobody(
    house: RpcHouse, alice: Any
) -> None:
    call = alice.SubmitJob(a_submission(name="a\nb"), timeout=DEADLINE_S)
    code, info = await details(call)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert (info.reason, info.metadata["field"]) == ("INVALID_REQUEST", "spec.name")
    assert house.control.asked == []


async def test_six_megabytes_of_environment_do_not_come_in(house: RpcHouse, alice: Any) -> None:
    huge = a_submission(environment={"A": "x" * (6 << 20)})
    code = await refusal(alice.SubmitJob(huge, timeout=DEADLINE_S))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert house.control.asked == []


async def test_too_much_environment_for_a_job_is_refused_by_name(alice: Any) -> None:
    big = a_submission(environment={f"V{i}": "x" * 1000 for i in range(400)})
    code, info = await details(alice.SubmitJob(big, timeout=DEADLINE_S))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert info.metadata["field"] == "spec.environment"


async def test_a_repeated_submission_is_one_job(house: RpcHouse, alice: Any) -> None:
    first = await alice.SubmitJob(a_submission(), timeout=DEADLINE_S)
    again = await alice.SubmitJob(a_submission(), timeout=DEADLINE_S)
    assert first.job.job_id == again.job.job_id
    assert len(house.control.published.all_jobs) == 1


async def test_a_call_without_a_deadline_is_refused(alice: Any) -> None:
    code, info = await details(alice.SubmitJob(a_submission()))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert info.reason == "INVALID_REQUEST"


async def test_the_loops_refusal_arrives_with_its_reasons(house: RpcHouse, alice: Any) -> None:
    house.control.failure = Unsatisfiable("never", reasons=("8 GPUs on one node",))
    code, info = await details(alice.SubmitJob(a_submission(), timeout=DEADLINE_S))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert info.reason == "UNSATISFIABLE"
    assert info.metadata["reason_1"] == "8 GPUs on one node"


async def test_a_fault_shows_an_incident_and_none_of_its_text(house: RpcHouse, alice: Any) -> None:
    house.control.failure = RuntimeError("secret /etc/passwd contents")
    with pytest.raises(aio.AioRpcError) as caught:
        await alice.SubmitJob(a_submission(), timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(caught.value.details())
    status = rpc_status.from_call(caught.value)
    info = error_details_pb2.ErrorInfo()
    assert status is not None
    assert status.details[0].Unpack(info)
    assert info.metadata["incident"] in str(caught.value.details())


@pytest.mark.parametrize("method", ["CancelJob", "HoldJob", "ReleaseJob", "PauseJob", "ResumeJob"])
async def test_an_edit_carries_id_version_and_caller(
    house: RpcHouse, alice: Any, method: str
) -> None:
    await alice.SubmitJob(a_submission(), timeout=DEADLINE_S)
    request = getattr(wire, f"{method}Request")(job_id="1", request_id="e", expected_version=1)
    answer = await getattr(alice, method)(request, timeout=DEADLINE_S)
    assert answer.job.version == 2
    stimulus = house.control.asked[-1]
    assert type(stimulus).__name__ == method
    assert (stimulus.caller.name, stimulus.job_id, stimulus.expected_version) == ("alice", 1, 1)


async def test_an_edit_of_a_changed_job_is_aborted(house: RpcHouse, alice: Any) -> None:
    await alice.SubmitJob(a_submission(), timeout=DEADLINE_S)
    request = wire.CancelJobRequest(job_id="1", request_id="e", expected_version=9)
    code, info = await details(alice.CancelJob(request, timeout=DEADLINE_S))
    assert (code, info.reason) == (grpc.StatusCode.ABORTED, "CONFLICT")


async def test_workers_stay_as_many_as_they_were_submitted(alice: Any) -> None:
    two = a_submission(roles=job_pb2.RolesSpec(worker_count=2))
    two.spec.resources.gpu_count = 2
    job_id = (await alice.SubmitJob(two, timeout=DEADLINE_S)).job.job_id
    update = wire.UpdateJobRequest(request_id="u", job_id=job_id)
    update.elastic.gpu_counts.extend((2, 4))
    code, _ = await details(alice.UpdateJob(update, timeout=DEADLINE_S))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_operators_hold_is_an_admin_hold(house: RpcHouse, alice: Any) -> None:
    await alice.SubmitJob(a_submission(), timeout=DEADLINE_S)
    olga = JobServiceStub(house.channel_as("olga", Role.OPERATOR))
    request = wire.HoldJobRequest(job_id="1", request_id="h", admin=True, reason="quota\x1b[0m")
    answer = await olga.HoldJob(request, timeout=DEADLINE_S)
    assert answer.job.hold_kind == job_pb2.HOLD_KIND_ADMIN
    assert house.control.asked[-1].kind is HoldKind.ADMIN
    assert house.control.asked[-1].reason.isprintable()


async def test_an_explanation_has_reasons_and_a_place_in_the_line(alice: Any) -> None:
    await alice.SubmitJob(a_submission(), timeout=DEADLINE_S)
    answer = await alice.ExplainJob(wire.ExplainJobRequest(job_id="1"), timeout=DEADLINE_S)
    assert answer.reasons[0].code == "resources"
    assert (answer.reasons[0].need, answer.reasons[0].have) == (8, 2)
    assert answer.reasons[0].detail == "needs 1 GPU, 2 are free; job 1 holds GPUs it could use"
    assert answer.jobs_ahead_count == 4


async def test_a_job_that_has_ended_waits_for_nothing(alice: Any) -> None:
    await alice.SubmitJob(a_submission(), timeout=DEADLINE_S)
    await alice.CancelJob(wire.CancelJobRequest(request_id="c", job_id="1"), timeout=DEADLINE_S)
    answer = await alice.ExplainJob(wire.ExplainJobRequest(job_id="1"), timeout=DEADLINE_S)
    assert list(answer.reasons) == []


async def submit_many(alice: Any, count: int) -> None:
    for i in range(count):
        await alice.SubmitJob(a_submission(f"r{i}", name=f"job-{i % 3}"), timeout=DEADLINE_S)


async def test_pages_hold_every_job_once_and_in_order(alice: Any) -> None:
    await submit_many(alice, 25)
    seen: list[str] = []
    token = ""
    while True:
        page = await alice.ListJobs(
            wire.ListJobsRequest(page_size=10, page_token=token), timeout=DEADLINE_S
        )
        seen += [job.job_id for job in page.jobs]
        token = page.next_page_token
        if not token:
            break
    assert seen == [str(number) for number in range(1, 26)]


async def test_a_page_that_ends_the_list_names_no_next_one(alice: Any) -> None:
    await submit_many(alice, 10)
    page = await alice.ListJobs(wire.ListJobsRequest(page_size=10), timeout=DEADLINE_S)
    assert (len(page.jobs), page.next_page_token) == (10, "")


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ({"name": "job-1"}, ["2", "5"]),
        ({"states": ["running"]}, ["3"]),
        ({"states": ["queued", "running"]}, ["1", "2", "3", "4", "5"]),
        ({"states": ["cancelled"]}, ["6"]),
        ({"job_ids": ["4", "2", "2", "99"]}, ["2", "4"]),
        ({"queue": "other"}, []),
        ({"user": "alice", "states": ["cancelled"]}, ["6"]),
    ],
)
async def test_a_list_is_filtered(
    house: RpcHouse, alice: Any, wanted: dict[str, Any], ids: list[str]
) -> None:
    await submit_many(alice, 6)
    house.control.place(3, "gpu01")  # type: ignore[arg-type]
    await alice.CancelJob(wire.CancelJobRequest(job_id="6", request_id="c"), timeout=DEADLINE_S)
    page = await alice.ListJobs(wire.ListJobsRequest(**wanted), timeout=DEADLINE_S)
    assert [job.job_id for job in page.jobs] == ids


@pytest.mark.parametrize(
    "request_",
    [{"page_size": -1}, {"page_token": "x"}, {"page_token": "1" * 40}, {"states": ["runing"]}],
)
async def test_a_list_that_makes_no_sense_is_refused(alice: Any, request_: dict[str, Any]) -> None:
    call = alice.ListJobs(wire.ListJobsRequest(**request_), timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT


async def test_pages_of_events_hold_every_event_once(house: RpcHouse, alice: Any) -> None:
    await submit_many(alice, 3)
    for number in range(2_500):
        house.control.note("tick", job_id=1 if number % 2 else None)
    olga = JobServiceStub(house.channel_as("olga", Role.OPERATOR))
    for stub, total in ((olga, 2_503), (alice, 1_253)):
        seen: list[int] = []
        token = ""
        while True:
            page = await stub.ListEvents(
                wire.ListEventsRequest(page_size=700, page_token=token), timeout=DEADLINE_S
            )
            seen += [event.sequence for event in page.events]
            token = page.next_page_token
            if not token:
                break
        assert len(seen) == len(set(seen)) == total


async def test_nodes_are_listed_in_pages_by_id(house: RpcHouse) -> None:
    stub = NodeServiceStub(house.channel_as("alice", Role.USER))
    first = await stub.ListNodes(nodes.ListNodesRequest(page_size=1), timeout=DEADLINE_S)
    assert [node.node_id for node in first.nodes] == ["gpu01"]
    second = await stub.ListNodes(
        nodes.ListNodesRequest(page_size=1, page_token=first.next_page_token), timeout=DEADLINE_S
    )
    assert ([node.node_id for node in second.nodes], second.next_page_token) == (["gpu02"], "")


@pytest.mark.parametrize(
    ("node_id", "code"),
    [("gpu99", grpc.StatusCode.NOT_FOUND), ("../x", grpc.StatusCode.INVALID_ARGUMENT)],
)
async def test_a_node_that_is_none_is_said_to_be_none(
    house: RpcHouse, node_id: str, code: grpc.StatusCode
) -> None:
    stub = NodeServiceStub(house.channel_as("alice", Role.USER))
    call = stub.GetNode(nodes.GetNodeRequest(node_id=node_id), timeout=DEADLINE_S)
    assert await refusal(call) is code


async def test_the_cluster_says_who_it_is_and_who_asks(house: RpcHouse) -> None:
    stub = QueueServiceStub(house.channel_as("olga", Role.OPERATOR))
    answer = await stub.GetCluster(queues.GetClusterRequest(), timeout=DEADLINE_S)
    assert (answer.cluster_name, answer.caller, answer.role) == ("lab", "olga", "operator")
    assert (answer.master_version, answer.epoch, answer.policy) == ("1.2.3", 3, "fifo")
    listed = await stub.ListQueues(queues.ListQueuesRequest(), timeout=DEADLINE_S)
    assert listed.queues[0].levels[0].waiting_job_count == 2
    assert not listed.queues[0].levels[0].HasField("threshold_gpu_seconds")


@pytest.mark.parametrize(
    "user",
    [
        {"name": "eve", "role": "superuser", "uid": 7, "gid": 7},
        {"name": "eve", "role": "node", "uid": 7, "gid": 7},
        {"name": "Eve", "role": "user", "uid": 7, "gid": 7},
        {"name": "eve", "role": "user", "uid": 0, "gid": 7},
        {"name": "eve", "role": "user", "uid": -1, "gid": 7},
        {"name": "eve", "role": "user", "uid": 2**32 - 1, "gid": 7},
        {"name": "eve", "role": "user", "uid": 7, "gid": 0},
        {"name": "eve", "role": "user", "uid": 7, "gid": 7, "groups": [0]},
        {"name": "eve", "role": "user", "uid": 7, "gid": 7, "groups": range(1, 100)},
    ],
)
async def test_a_user_who_would_be_root_or_nobody_is_refused(
    house: RpcHouse, root: Any, user: dict[str, Any]
) -> None:
    request = admin.SetUserRequest(request_id="u", user=admin.User(**user))
    assert await refusal(root.SetUser(request, timeout=DEADLINE_S)) is (
        grpc.StatusCode.INVALID_ARGUMENT
    )
    assert house.control.asked == []


async def test_users_are_set_listed_and_deleted(house: RpcHouse, root: Any) -> None:
    eve = admin.User(name="eve", role="user", uid=2001, gid=2001, groups=[5])
    await root.SetUser(admin.SetUserRequest(request_id="a", user=eve), timeout=DEADLINE_S)
    listed = await root.ListUsers(admin.ListUsersRequest(), timeout=DEADLINE_S)
    assert "eve" in [user.name for user in listed.users]
    await root.DeleteUser(admin.DeleteUserRequest(request_id="b", name="eve"), timeout=DEADLINE_S)
    assert house.control.published.user("eve") is None


@pytest.mark.parametrize(
    "flags",
    [
        {"set_flags": ["dranining"]},
        {"set_flags": ["quarantined"]},
        {"set_flags": ["draining"], "clear_flags": ["draining"]},
    ],
)
async def test_flags_that_are_not_peoples_are_refused(root: Any, flags: dict[str, Any]) -> None:
    request = admin.SetNodeFlagsRequest(request_id="f", node_id="gpu01", **flags)
    call = root.SetNodeFlags(request, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "labels",
    [
        {"set_labels": {"Rack": "r1"}},
        {"set_labels": {"rack": ""}},
        {"set_labels": {"rack": "a b"}},
        {"set_labels": {"rack": "x" * 64}},
        {"set_labels": {"rack&": "r1"}},
        {"set_labels": {f"k{at}": "v" for at in range(33)}},
        {"set_labels": {"rack": "r1"}, "clear_labels": ["rack"]},
    ],
)
async def test_what_is_no_label_is_refused(root: Any, labels: dict[str, Any]) -> None:
    request = admin.SetNodeLabelsRequest(request_id="l", node_id="gpu01", **labels)
    call = root.SetNodeLabels(request, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_node_is_labelled_by_operators_alone(house: RpcHouse, root: Any) -> None:
    request = admin.SetNodeLabelsRequest(
        request_id="l", node_id="gpu01", set_labels={"rack": "r1", "disk": "Fast-2.0"}
    )
    answer = await root.SetNodeLabels(request, timeout=DEADLINE_S)
    assert dict(answer.node.labels) == {"rack": "r1", "disk": "Fast-2.0"}
    alice = AdminServiceStub(house.channel_as("alice", Role.USER))
    call = alice.SetNodeLabels(request, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    "choice",
    [
        {"constraint": {"Rack": "r1"}},
        {"constraint": {"rack": "a&b"}},
        {"node_ids": ["gpu01&x=y"]},
        {"node_ids": ["GPU1"]},
        {"excluded_node_ids": [""]},
        {"node_ids": ["gpu01"], "excluded_node_ids": ["gpu01"]},
    ],
)
async def test_a_choice_of_nodes_that_cannot_be_meant_is_refused(
    house: RpcHouse, choice: dict[str, Any]
) -> None:
    alice = JobServiceStub(house.channel_as("alice", Role.USER))
    request = wire.SubmitJobRequest(request_id="c")
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 1
    request.spec.resources.MergeFrom(ResourceRequest(**choice))
    call = alice.SubmitJob(request, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_node_is_drained_fenced_and_forgotten(house: RpcHouse, root: Any) -> None:
    drained = await root.SetNodeFlags(
        admin.SetNodeFlagsRequest(request_id="f", node_id="gpu01", set_flags=["draining"]),
        timeout=DEADLINE_S,
    )
    assert list(drained.node.flags) == ["draining"]
    forget = admin.ForgetNodeRequest(request_id="g", node_id="gpu01")
    assert await refusal(root.ForgetNode(forget, timeout=DEADLINE_S)) is (
        grpc.StatusCode.FAILED_PRECONDITION
    )
    await root.FenceNode(
        admin.FenceNodeRequest(request_id="h", node_id="gpu01"), timeout=DEADLINE_S
    )
    again = admin.ForgetNodeRequest(request_id="i", node_id="gpu01")
    await root.ForgetNode(again, timeout=DEADLINE_S)
    assert house.control.published.node("gpu01") is None  # type: ignore[arg-type]


async def test_health_is_told_to_members(house: RpcHouse) -> None:
    stub = health_pb2_grpc.HealthStub(house.channel_as("alice", Role.USER))
    answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
