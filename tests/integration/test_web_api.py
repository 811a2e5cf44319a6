"""The HTTP API in front of a master's real door: the same words, the same rights, no other way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_web.api.bridge import KEY_HEADER, PROTO
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.web_house import WebHouse, web_house

pytestmark = pytest.mark.integration
API = "/api/dlq.v1.JobService"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        for name in ("alice", "bob"):
            stub = JobServiceStub(house.channel_as(name, Role.USER))
            request = wire.SubmitJobRequest(request_id="r")
            request.spec.command.append("/bin/true")
            request.spec.resources.gpu_count = 1
            await stub.SubmitJob(request, timeout=DEADLINE_S)
        yield house


@pytest.fixture
async def web(house: RpcHouse) -> AsyncIterator[WebHouse]:
    async with web_house(house) as web:
        yield web


async def told(web: WebHouse, path: str, **more: Any) -> Any:
    answer = await web.browser.get(path, headers=web.program(), **more)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_read_has_the_document_of_the_command_line(web: WebHouse) -> None:
    jobs = await told(web, "/v1/jobs")
    assert jobs["schema"] == "dlq.v1"
    assert [(job["job_id"], job["user"], job["state"]) for job in jobs["jobs"]] == [
        ("1", "alice", "queued")
    ]
    why = await told(web, "/v1/jobs/1/why")
    assert {"reasons", "waits", "jobs_ahead_count"} <= why["job"].keys()


@pytest.mark.parametrize(
    "path",
    ["/v1/nodes", "/v1/nodes/gpu01", "/v1/gpus", "/v1/queues", "/v1/cluster", "/v1/teams",
     "/v1/usage", "/v1/jobs/1", "/v1/jobs/1/events"],
)  # fmt: skip
async def test_every_read_answers(web: WebHouse, path: str) -> None:
    assert (await told(web, path))["schema"] == "dlq.v1"


async def test_pages_follow_one_another(web: WebHouse) -> None:
    first = await told(web, "/v1/nodes", params={"limit": 1})
    second = await told(web, "/v1/nodes", params={"limit": 1, "cursor": first["next_cursor"]})
    names = [page["nodes"][0]["node_id"] for page in (first, second)]
    assert names == ["gpu01", "gpu02"]
    assert second["next_cursor"] is None


async def test_chosen_fields_alone_are_told(web: WebHouse) -> None:
    jobs = await told(web, "/v1/jobs", params={"fields": "job_id,state"})
    assert jobs["jobs"] == [{"job_id": "1", "state": "queued"}]
    one = await told(web, "/v1/jobs/1", params={"fields": "name"})
    assert one["job"].keys() == {"name"}


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("/v1/jobs?sate=running", 400, "sate"),
        ("/v1/jobs?state=runing", 400, "state"),
        ("/v1/jobs?limit=0", 400, "limit"),
        ("/v1/jobs?limit=9999999999999999999999", 400, "limit"),
        ("/v1/jobs?since=soon", 400, "since"),
        ("/v1/jobs?fields=colour", 400, "fields"),
        ("/v1/jobs?limit=1&limit=2", 400, "limit"),
        ("/v1/jobs?wait=61", 400, "wait"),
        ("/v1/jobs/99", 404, ""),
        ("/v1/jobs/2", 404, ""),  # bob's
        ("/v1/nodes/gpu09", 404, ""),
        ("/v1/loans", 403, ""),  # for operators
        ("/v1/nothing", 404, ""),
        ("/v1/jobs/1/logs?color=red", 400, "color"),
        ("/v1/events?after=x", 400, "after"),
    ],
)
async def test_a_refusal_names_what_is_wrong(
    web: WebHouse, path: str, status: int, field: str
) -> None:
    answer = await web.browser.get(path, headers=web.program())
    said = answer.json()
    assert (answer.status_code, said.get("field", "")) == (status, field)
    assert said["message"]
    assert said["reason"].isupper()


async def test_what_has_not_changed_is_not_told_again(web: WebHouse) -> None:
    first = await web.browser.get("/v1/queues", headers=web.program())
    again = {"if-none-match": first.headers["etag"], **web.program()}
    second = await web.browser.get("/v1/queues", headers=again)
    assert (second.status_code, second.content) == (304, b"")


async def test_a_read_that_waits_is_answered_by_a_change(house: RpcHouse, web: WebHouse) -> None:
    first = await web.browser.get("/v1/jobs/1/events", headers=web.program())
    again = {"if-none-match": first.headers["etag"], **web.program()}
    waiting = asyncio.ensure_future(
        web.browser.get("/v1/jobs/1/events", params={"wait": 30}, headers=again)
    )
    async with asyncio.timeout(DEADLINE_S):
        while not waiting.done():
            house.control.note("job_named", job_id=1)
            await asyncio.sleep(0.1)
    answer = await waiting
    assert answer.status_code == 200
    assert "job_named" in answer.text


async def test_the_bridge_speaks_json_and_protobuf(web: WebHouse) -> None:
    asked = wire.GetJobRequest(job_id="1")
    headers = web.program()
    as_json = await web.browser.post(f"{API}/GetJob", json={"jobId": "1"}, headers=headers)
    raw: Any = {"content": asked.SerializeToString(), "headers": headers | {"content-type": PROTO}}
    as_proto = await web.browser.post(f"{API}/GetJob", **raw)
    assert as_json.json()["job"]["jobId"] == "1"
    assert wire.GetJobResponse.FromString(as_proto.content).job.job_id == "1"


async def test_a_change_repeated_with_its_key_happens_once(house: RpcHouse, web: WebHouse) -> None:
    spec = {"spec": {"command": ["/bin/true"], "resources": {"gpuCount": 1}}}
    headers = web.program() | {KEY_HEADER: "mine"}
    one = await web.browser.post(f"{API}/SubmitJob", json=spec, headers=headers)
    two = await web.browser.post(f"{API}/SubmitJob", json=spec, headers=headers)
    assert one.json()["job"]["jobId"] == two.json()["job"]["jobId"]
    assert one.headers[KEY_HEADER] == "mine"
    other = await web.browser.post(f"{API}/SubmitJob", json=spec, headers=web.program())
    assert other.json()["job"]["jobId"] != one.json()["job"]["jobId"]
    assert other.headers[KEY_HEADER]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (f"{API}/GetJob", '{"jobId": "99"}', 404, "not_found"),
        (f"{API}/GetJob", '{"job": "1"}', 400, "invalid_argument"),
        (f"{API}/GetJob", "[", 400, "invalid_argument"),
        (f"{API}/GetJob", '{"jobId": ' + "[" * 5000, 400, "invalid_argument"),
        (f"{API}/GetJob", b"\xff\xfe", 400, "invalid_argument"),
        (f"{API}/WatchEvents", "{}", 400, "invalid_argument"),
        (f"{API}/Nothing", "{}", 404, "not_found"),
        ("/api/dlq.v1.AgentService/AnnounceLeave", "{}", 404, "not_found"),
        ("/api/dlq.v1.IdentityService/RenewCertificate", "{}", 404, "not_found"),
        ("/api/dlq.v1.AdminService/ListUsers", "{}", 403, "permission_denied"),
    ],
)
async def test_the_bridge_refuses_in_the_form_of_connect(
    web: WebHouse, path: str, body: str | bytes, status: int, code: str
) -> None:
    headers = web.program() | {"content-type": "application/json"}
    answer = await web.browser.post(path, content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["details"][0]["type"] == "google.rpc.ErrorInfo"


async def test_another_form_is_refused_with_the_forms_there_are(web: WebHouse) -> None:
    headers = web.program() | {"content-type": "text/xml"}
    answer = await web.browser.post(f"{API}/GetJob", content="<a/>", headers=headers)
    assert (answer.status_code, answer.headers["accept-post"]) == (
        415,
        "application/json, application/proto",
    )


async def test_a_body_without_end_is_refused(web: WebHouse) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65_536

    headers = web.program() | {"content-type": "application/json"}
    answer = await web.browser.post(f"{API}/GetJob", content=endless(), headers=headers)
    assert answer.status_code == 400
    assert "bytes" in answer.json()["message"]


async def test_the_health_of_both_is_open_to_everybody(house: RpcHouse, web: WebHouse) -> None:
    assert (await web.browser.get("/livez")).text == "ok\n"
    assert (await web.browser.get("/readyz")).status_code == 200


async def test_a_removed_user_is_refused_at_once(house: RpcHouse, web: WebHouse) -> None:
    headers = web.program()
    assert (await web.browser.get("/v1/jobs", headers=headers)).status_code == 200
    del house.control.published.all_users["alice"]
    assert (await web.browser.get("/v1/jobs", headers=headers)).status_code == 401
