"""The audit as operators read it: by the master, over `/v1`, and on the page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlq.v1 import admin_service_pb2 as wire
from dlq.v1 import job_service_pb2
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_common.text.wire import to_timestamp
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house
from support.shown_page import shown_page
from support.web_house import web_house

pytestmark = pytest.mark.integration
HTML, JSON = {"accept": "text/html"}, {"accept": "application/json"}
NAME = "<b>x</b>"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    """Alice has submitted a job, and was denied a user's removal by an odd name."""
    async with rpc_house(tmp_path) as house:
        alice = house.channel_as("alice", Role.USER)
        request = job_service_pb2.SubmitJobRequest(request_id="r")
        request.spec.command.append("/bin/true")
        request.spec.resources.gpu_count = 1
        await JobServiceStub(alice).SubmitJob(request, timeout=DEADLINE_S)
        removal = wire.DeleteUserRequest(request_id="d", name=NAME)
        denied = AdminServiceStub(alice).DeleteUser(removal, timeout=DEADLINE_S)
        assert await refusal(denied) is grpc.StatusCode.PERMISSION_DENIED
        await house.audit.recorded(None, "settled", "", "OK")  # all before it is in the file
        yield house


async def lines(house: RpcHouse, **asked: Any) -> list[tuple[str, str, str, str]]:
    stub: Any = AdminServiceStub(house.channel_as("olga", Role.OPERATOR))
    found = await stub.ListAuditLines(wire.ListAuditLinesRequest(**asked), timeout=DEADLINE_S)
    return [
        (one.user, one.method.rpartition("/")[2], one.object, one.decision) for one in found.lines
    ]


SUBMITTED = ("alice", "SubmitJob", "1", "OK")
DENIED = ("alice", "DeleteUser", NAME, "PERMISSION_DENIED")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"user": "alice"}, [DENIED, SUBMITTED]),
        ({"method": "submitjob"}, [SUBMITTED]),
        ({"object": "1"}, [SUBMITTED]),
        ({"object": NAME}, [DENIED]),
        ({"decision": "permission_denied"}, [DENIED]),
        ({"text": "alice ok"}, [SUBMITTED]),
        ({"user": "alice", "page_size": 1}, [DENIED]),
        ({"user": "nobody"}, []),
    ],
)
async def test_operators_find_lines_by_all_that_they_tell(
    house: RpcHouse, asked: dict[str, Any], told: list[tuple[str, str, str, str]]
) -> None:
    assert await lines(house, **asked) == told


async def test_lines_of_another_time_are_left_out(house: RpcHouse) -> None:
    now_s = house.clock.now_s()
    assert await lines(house, user="alice", from_time=to_timestamp(now_s + 60.0)) == []
    assert await lines(house, user="alice", until_time=to_timestamp(now_s - 60.0)) == []
    assert len(await lines(house, user="alice", from_time=to_timestamp(now_s - 60.0))) == 2


@pytest.mark.parametrize("role", [Role.USER, Role.INFERENCE, Role.NOTIFIER, Role.ADMIN])
async def test_the_audit_is_for_operators_and_admins(house: RpcHouse, role: Role) -> None:
    house.control.add_user("someone", role.value, 1030)
    stub: Any = AdminServiceStub(house.channel_as("someone", role))
    if role is Role.ADMIN:
        found = await stub.ListAuditLines(wire.ListAuditLinesRequest(), timeout=DEADLINE_S)
        assert found.lines
        return
    call = stub.ListAuditLines(wire.ListAuditLinesRequest(), timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    "asked",
    [{"page_size": -1}, {"page_token": "../etc"}, {"text": "a\0"}, {"text": "x" * 300}],
)
async def test_what_nobody_understands_is_refused(house: RpcHouse, asked: dict[str, Any]) -> None:
    stub: Any = AdminServiceStub(house.channel_as("olga", Role.OPERATOR))
    call = stub.ListAuditLines(wire.ListAuditLinesRequest(**asked), timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT


async def test_programs_read_it_over_v1(house: RpcHouse) -> None:
    async with web_house(house, "olga", Role.OPERATOR) as web:
        await web.enter()
        answer = await web.browser.get("/v1/audit?user=alice&method=Submit", headers=JSON)
        (line,) = answer.json()["lines"]
        assert (line["user"], line["object"], line["decision"]) == ("alice", "1", "OK")
        assert answer.json()["next_cursor"] is None
        for query in ("from=yesterday", "until=2026-12-01T08:00", "from=9999999"):
            refused = await web.browser.get(f"/v1/audit?{query}", headers=JSON)
            assert refused.status_code == 400, query
            assert refused.json()["field"] == query.partition("=")[0]
        since = await web.browser.get("/v1/audit?from=1970-01-01T00:00Z&limit=1", headers=JSON)
        assert since.json()["next_cursor"]


async def test_the_page_shows_lines_and_leads_to_older_ones(
    house: RpcHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq_web.pages.audit.LINES", 1)
    async with web_house(house, "olga", Role.OPERATOR) as web:
        await web.enter()
        answer = await web.browser.get("/audit?user=alice", headers=HTML)
        assert answer.status_code == 200
        assert NAME not in answer.text
        assert "&lt;b&gt;x&lt;/b&gt;" in answer.text
        assert "SubmitJob" not in shown_page(answer.text).words
        older = answer.text.partition('rel="next" href="')[2].partition('"')[0]
        second = await web.browser.get(older.replace("&amp;", "&"), headers=HTML)
        assert "SubmitJob" in second.text
        nothing = await web.browser.get("/audit?q=nonsense", headers=HTML)
        assert "No line of these days fits" in nothing.text
        assert "/audit" in (await web.browser.get("/use", headers=HTML)).text


async def test_a_user_is_told_that_the_page_is_for_operators(house: RpcHouse) -> None:
    async with web_house(house) as web:
        await web.enter()
        answer = await web.browser.get("/audit", headers=HTML)
        assert answer.status_code == 403
        assert "PERMISSION_DENIED" in answer.text
