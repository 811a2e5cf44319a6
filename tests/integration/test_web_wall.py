"""The wall: a map without names, for those with a token that opens nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_master.model.ids import JobId
from dlq_master.model.nodes.node import Gpu
from dlq_web.door.wall import WALL_FILE, WallToken
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.shared_web_house import shared_web_house
from support.web_house import COOKIE, WebHouse, web_house

pytestmark = pytest.mark.integration
DATA = "/wall/map.json"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        nodes = house.control.published.all_nodes
        for node_id, node in list(nodes.items()):
            nodes[node_id] = node._replace(gpus=(Gpu(index=0, gpu_type="h100"),))
        request = wire.SubmitJobRequest(request_id="r")
        request.spec.name = "secret-name"
        request.spec.command.append("/bin/true")
        request.spec.resources.gpu_count = 1
        stub = JobServiceStub(house.channel_as("alice", Role.USER))
        await stub.SubmitJob(request, timeout=DEADLINE_S)
        house.control.place(JobId(1), "gpu01")
        yield house


@pytest.fixture
async def web(house: RpcHouse, tmp_path: Path) -> AsyncIterator[WebHouse]:
    async with web_house(house, "olga", Role.OPERATOR, tmp_path) as web:
        yield web


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def test_the_map_of_a_wall_has_no_name_in_it(web: WebHouse, tmp_path: Path) -> None:
    answer = await web.browser.get(DATA, headers=bearer(WallToken(tmp_path).made()))
    assert answer.status_code == 200
    for name in ("gpu0", "alice", "olga", "secret", "lab"):
        assert name not in answer.text
    data = answer.json()
    assert [node[6] for node in data["nodes"]] == ["h", "f"]
    assert [lease[:3] for lease in data["leases"]] == [["0", "", ""]]
    again = bearer(WallToken(tmp_path).made()) | {"if-none-match": answer.headers["etag"]}
    assert (await web.browser.get(DATA, headers=again)).status_code == 304


async def test_the_page_of_a_wall_is_nobody_s(web: WebHouse) -> None:
    answer = await web.browser.get("/wall")
    assert answer.status_code == 200
    for name in ("olga", "operator", "csrf", "Sign out", "gpu0"):
        assert name not in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/gpus", "/gpus/map.json", "/v1/nodes", "/openapi.json"])
async def test_its_token_opens_nothing_else(web: WebHouse, tmp_path: Path, path: str) -> None:
    token = WallToken(tmp_path).made()
    assert (await web.browser.get(path, headers=bearer(token))).status_code == 401
    web.browser.cookies.set(COOKIE, token, domain="127.0.0.1")
    assert (await web.browser.get(path)).status_code == 401
    post = "/api/dlq.v1.NodeService/ListNodes"
    assert (await web.browser.post(post, json={}, headers=bearer(token))).status_code == 401


@pytest.mark.parametrize("told", ["", "wrong", "\u00e9".encode().decode("latin-1")])
async def test_a_wrong_token_opens_nothing(web: WebHouse, tmp_path: Path, told: str) -> None:
    WallToken(tmp_path).made()
    headers = {b"authorization": f"Bearer {told}".encode("latin-1")}
    assert (await web.browser.get(DATA, headers=headers)).status_code == 401
    assert (await web.browser.get(DATA)).status_code == 401
    assert (await web.browser.get(DATA, headers=web.program())).status_code == 401


async def test_a_token_that_is_revoked_is_refused_at_once(web: WebHouse, tmp_path: Path) -> None:
    token = WallToken(tmp_path).made()
    assert WallToken(tmp_path).made() == token, "a restarted server opens the same wall"
    assert (await web.browser.get(DATA, headers=bearer(token))).status_code == 200
    WallToken(tmp_path).revoke()
    assert (await web.browser.get(DATA, headers=bearer(token))).status_code == 401
    assert WallToken(tmp_path).made() != token
    assert (await web.browser.get(DATA, headers=bearer(token))).status_code == 401


async def test_without_a_token_there_is_no_wall(house: RpcHouse) -> None:
    async with web_house(house) as web:
        assert (await web.browser.get(DATA, headers=bearer(""))).status_code == 401
    assert WallToken(None).opens("") is False


def test_nobody_else_of_the_host_reads_the_token(tmp_path: Path) -> None:
    WallToken(tmp_path).made()
    assert (tmp_path / WALL_FILE).stat().st_mode & 0o077 == 0


async def test_a_master_that_is_away_is_told(
    house: RpcHouse, web: WebHouse, tmp_path: Path
) -> None:
    await house.server.stop(0.0)
    answer = await web.browser.get(DATA, headers=bearer(WallToken(tmp_path).made()))
    assert answer.status_code == 503


async def test_a_server_for_all_has_a_wall_as_the_named_user(
    house: RpcHouse, tmp_path: Path
) -> None:
    headers = bearer(WallToken(tmp_path).made())
    async with shared_web_house(house, tmp_path, wall_user="bob") as web:
        screen = web.browser()
        answer = await screen.get(DATA, headers=headers)
        assert answer.status_code == 200
        assert len(answer.json()["nodes"]) == 2
        assert (await screen.get("/wall")).status_code == 200
        for path in ("/gpus", "/v1/nodes", "/account"):
            assert (await screen.get(path, headers=headers)).status_code == 401
        del house.control.published.all_users["bob"]
    async with shared_web_house(house, tmp_path, wall_user="bob") as web:
        assert (await web.browser().get(DATA, headers=headers)).status_code in (401, 403)
    async with shared_web_house(house, tmp_path) as web:
        assert (await web.browser().get(DATA, headers=headers)).status_code == 401
