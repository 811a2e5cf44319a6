"""The pages of nodes: why one takes no work, what a drain would do, and whose button it is."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.nodes.node import FlagNote, Gpu, NodeFlag, NodePool
from dlq_web.door.guard import CSRF_HEADER
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.shown_page import ShownPage, shown_page
from support.web_house import WebHouse, web_house

pytestmark = pytest.mark.integration
HTML = {"accept": "text/html"}
NAME = "<script>alert(1)</script>"
HOSTILE = f"{NAME}\x1b[2J"
SET_FLAGS = "/api/dlq.v1.AdminService/SetNodeFlags"
STATIC = Path(__file__).resolve().parents[2] / "web/dlq_web/pages/static"
HEAVIEST = 150_000


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    """A job of alice on the first of three nodes, of which the second drains."""
    async with rpc_house(tmp_path) as house:
        fill(house, 3)
        close(house, "gpu0001", NodeFlag.DRAINING, HOSTILE, "master")
        stub = JobServiceStub(house.channel_as("alice", Role.USER))
        request = wire.SubmitJobRequest(request_id="r")
        request.spec.name = NAME
        request.spec.command.append("/bin/true")
        request.spec.resources.gpu_count = 1
        await stub.SubmitJob(request, timeout=DEADLINE_S)
        house.control.place(JobId(1), "gpu0000")
        yield house


def fill(house: RpcHouse, nodes: int) -> None:
    house.control.published.all_nodes.clear()
    gpus = tuple(Gpu(index=index, gpu_type="h100") for index in range(8))
    for number in range(nodes):
        node = house.control.add_node(f"gpu{number:04}")
        house.control.published.all_nodes[node.node_id] = node._replace(
            gpus=gpus, agent_version="1.2.3", last_contact_s=house.clock.now_s()
        )


def close(house: RpcHouse, name: str, flag: NodeFlag, why: str, actor: str) -> None:
    nodes, since_s = house.control.published.all_nodes, house.clock.now_s() - 3690.0
    notes = (FlagNote(flag, why, actor, since_s),)
    nodes[NodeId(name)] = nodes[NodeId(name)]._replace(flags=frozenset({flag}), notes=notes)


async def seen(web: WebHouse, path: str) -> ShownPage:
    answer = await web.browser.get(path, headers=HTML)
    assert answer.status_code == 200, answer.text
    assert "<script>alert" not in answer.text
    assert "\x1b" not in answer.text
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=", answer.text)
    return shown_page(answer.text)


@pytest.fixture
async def web(house: RpcHouse) -> AsyncIterator[WebHouse]:
    async with web_house(house, "olga", Role.OPERATOR) as web:
        await web.enter()
        yield web


async def test_a_node_says_why_it_takes_no_work_since_when_and_by_whom(
    house: RpcHouse, web: WebHouse
) -> None:
    close(house, "gpu0002", NodeFlag.CORDONED, "its fan is loud", "user:olga")
    page = await seen(web, "/nodes")
    assert page.column("Node") == ["gpu0000", "gpu0001", "gpu0002"]
    free, by_itself, by_hand = page.column("Why it takes no work")
    assert free == ""
    assert by_itself.endswith("(by itself, 1h01m ago)")
    assert by_hand == "cordoned: its fan is loud (user:olga, 1h01m ago)"
    assert page.column("GPUs")[0] == "1 busy, 7 free"
    assert "/nodes/gpu0000" in page.links


async def test_a_choice_of_nodes_has_its_own_count(house: RpcHouse, web: WebHouse) -> None:
    nodes = house.control.published.all_nodes
    nodes[NodeId("gpu0002")] = nodes[NodeId("gpu0002")]._replace(agent_version="1.1.0")
    for query, names in (
        ("show=hindered", ["gpu0001"]),
        ("show=behind", ["gpu0002"]),
        ("q=0002", ["gpu0002"]),
        ("q=drain", ["gpu0001"]),
    ):
        page = await seen(web, f"/nodes?{query}")
        assert page.column("Node") == names
        assert f"{len(names)} of 3 nodes" in page.words
    assert "No node is so" in (await seen(web, "/nodes?q=nothing")).words


async def test_nodes_that_the_master_left_open_are_named_to_operators(
    house: RpcHouse, web: WebHouse
) -> None:
    house.control.note("node_not_drained", node_id=NodeId("gpu0002"), cause="enough are closed")
    house.control.note("node_heard", node_id=NodeId("gpu0002"))
    assert (await seen(web, "/nodes")).column("Event") == ["node_not_drained"]
    async with web_house(house) as other:
        await other.enter()
        assert "Left open" not in (await seen(other, "/nodes")).words


async def test_a_node_has_a_page_with_its_gpus_its_jobs_and_its_last_day(
    house: RpcHouse, web: WebHouse
) -> None:
    house.control.note("node_heard", node_id=NodeId("gpu0000"), cause="a heartbeat")
    page = await seen(web, "/nodes/gpu0000")
    assert page.column("GPU") == [str(number) for number in range(8)]
    assert page.column("State")[0] == "busy"
    assert page.column("User") == ["alice"]
    assert page.column("Why") == ["a heartbeat"]
    assert "dlq admin node drain gpu0000" in page.words
    drains = await seen(web, "/nodes/gpu0001")
    assert drains.having("data-undrain")
    assert drains.having("data-keep"), "or a renewal takes the refusal away"
    assert (await web.browser.get("/nodes/nope", headers=HTML)).status_code == 404


async def test_another_user_s_job_on_a_node_stays_hidden(house: RpcHouse) -> None:
    async with web_house(house, "bob") as web:
        await web.enter()
        page = await seen(web, "/nodes/gpu0000")
    assert "alert(1)" not in page.words
    assert "Jobs of others hold it" in page.words
    assert "dlq admin node" not in page.words
    async with web_house(house) as web:
        await web.enter()
        assert (await seen(web, "/nodes/gpu0000")).column("User") == ["alice"]


async def test_a_drain_tells_its_price_before_it_is_done(house: RpcHouse, web: WebHouse) -> None:
    page = await seen(web, "/drain?node=gpu0000&node=gpu000[1-2]&node=nope")
    assert page.column("Job") == ["1"]
    assert "No new work starts on 3 nodes" in page.words
    assert "1 job must leave 1 GPU. Free on other nodes now: 0 GPUs" in page.words
    assert "Draining already: gpu0001" in page.words
    assert "There is no node nope" in page.words
    assert "dlq admin node drain 'gpu[0000-0002]' --reason" in page.words
    assert page.having("data-still"), "or the reason would be gone while it is written"
    assert "Free on other nodes now: 8 GPUs" in (await seen(web, "/drain?node=gpu0000")).words


async def test_many_nodes_want_their_number_typed_in(house: RpcHouse, web: WebHouse) -> None:
    fill(house, 21)
    page = await seen(web, "/drain?node=gpu[0000-0019]")
    assert not page.having("inputmode")
    page = await seen(web, "/drain?node=gpu[0000-0020]")
    assert "Type 21 to go on" in page.words
    (form,) = page.having("data-count")
    assert form["data-count"] == "21"


@pytest.mark.parametrize("query", ["?node=gpu[", "?node=gpu[0-100]"])
async def test_a_drain_of_too_much_or_of_no_list_is_refused(web: WebHouse, query: str) -> None:
    assert (await web.browser.get(f"/drain{query}", headers=HTML)).status_code == 400


async def test_a_drain_of_nothing_asks_for_nodes(web: WebHouse) -> None:
    page = await seen(web, "/drain?node=")
    assert "What would a drain do?" in page.words
    assert not page.having("data-still")


async def test_the_button_is_the_master_s_call_for_operators_alone(
    house: RpcHouse, web: WebHouse
) -> None:
    asked = {"nodeId": "gpu0000", "setFlags": ["draining"], "reason": "fan", "acceptLoss": True}
    assert (await web.browser.post(SET_FLAGS, json=asked)).status_code == 403
    page = await seen(web, "/drain?node=gpu0000")
    csrf = next(one["content"] for one in page.having("content") if one.get("name") == "csrf")
    headers = {CSRF_HEADER: csrf, "idempotency-key": "once"}
    done = await web.browser.post(SET_FLAGS, json=asked, headers=headers)
    assert done.status_code == 200
    assert NodeFlag.DRAINING in house.control.published.all_nodes[NodeId("gpu0000")].flags
    async with web_house(house) as other:
        await other.enter()
        assert (await other.browser.get("/drain?node=gpu0000", headers=HTML)).status_code == 403
        page = await seen(other, "/nodes")
        csrf = next(one["content"] for one in page.having("content") if one.get("name") == "csrf")
        refused = await other.browser.post(SET_FLAGS, json=asked, headers={CSRF_HEADER: csrf})
    assert refused.status_code == 403


async def test_a_large_cluster_goes_on_page_by_page(house: RpcHouse, web: WebHouse) -> None:
    fill(house, 1_024)
    for number in range(0, 1_024, 2):
        close(house, f"gpu{number:04}", NodeFlag.CORDONED, "looked at " * 20, "user:olga")
    answer = await web.browser.get("/nodes?show=hindered", headers=HTML)
    parts = sum((STATIC / name).stat().st_size for name in ("style.css", "live.js", "nodes.js"))
    assert len(answer.content) + parts <= HEAVIEST
    first = shown_page(answer.text)
    assert first.column("Node")[-1] == "gpu0048"
    following = next(link for link in first.links if "cursor=" in link)
    assert (await seen(web, following)).column("Node")[0] == "gpu0050"


async def test_a_server_that_is_not_lent_says_so_and_its_gpus_are_not_free(
    house: RpcHouse, web: WebHouse
) -> None:
    nodes = house.control.published.all_nodes
    for name, flags in (("gpu0000", frozenset[NodeFlag]()), ("gpu0002", {NodeFlag.LOANED})):
        server = nodes[NodeId(name)]._replace(pool=NodePool.INFERENCE, flags=frozenset(flags))
        nodes[NodeId(name)] = server
    page = await seen(web, "/nodes")
    assert page.column("Why it takes no work")[0] == "inference: not lent"
    assert page.column("Why it takes no work")[2] == "", "it is lent, so it takes work"
    assert "8 of 24 GPUs are free now" in (await seen(web, "/")).words


async def test_the_page_of_a_drain_leads_to_the_starts_without_the_nodes(web: WebHouse) -> None:
    answer = await web.browser.get("/drain?node=gpu0000&node=gpu0002", headers=HTML)
    assert 'href="/what-if?drain=gpu0000%2Cgpu0002"' in answer.text
