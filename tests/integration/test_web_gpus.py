"""The page of the GPU map and its data: what it says, what it weighs, and what it hides."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.nodes.gpu_health import Figures
from dlq_master.model.nodes.node import Gpu, NodeFlag
from dlq_web.pages.machines import maps
from dlq_web.pages.machines.gpu_map import GpuMap, map_of
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.shown_page import shown_page
from support.web_house import WebHouse, web_house

pytestmark = pytest.mark.integration
HTML = {"accept": "text/html"}
STATIC = Path(maps.__file__).parents[1] / "static"
HEAVIEST = 150_000


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    """A job of alice holds a GPU of each of two nodes; a third node is closed."""
    async with rpc_house(tmp_path) as house:
        fill(house, 3)
        stub = JobServiceStub(house.channel_as("alice", Role.USER))
        request = wire.SubmitJobRequest(request_id="r")
        request.spec.command.append("/bin/true")
        request.spec.resources.gpu_count = 2
        await stub.SubmitJob(request, timeout=DEADLINE_S)
        house.control.place(JobId(1), "gpu0000", "gpu0001")
        read = house.control.published
        read.all_figures[NodeId("gpu0000")] = {0: Figures(50, 87, 10)}
        read.all_figures[NodeId("gpu0001")] = {0: Figures(50, 0, 10)}
        last = NodeId("gpu0002")
        read.all_nodes[last] = read.all_nodes[last]._replace(flags=frozenset({NodeFlag.DRAINING}))
        yield house


def fill(house: RpcHouse, nodes: int) -> None:
    house.control.published.all_nodes.clear()
    gpus = tuple(Gpu(index=index, gpu_type="h100-80gb") for index in range(8))
    for number in range(nodes):
        node = house.control.add_node(f"gpu{number:04}")
        house.control.published.all_nodes[node.node_id] = node._replace(
            gpus=gpus, last_contact_s=house.clock.now_s()
        )


@pytest.fixture
async def web(house: RpcHouse) -> AsyncIterator[WebHouse]:
    async with web_house(house) as web:
        await web.enter()
        yield web


async def test_the_table_says_what_the_drawing_shows(web: WebHouse) -> None:
    page = shown_page((await web.browser.get("/gpus", headers=HTML)).text)
    assert page.column("Node") == ["gpu0000", "gpu0001", "gpu0002"]
    first, second, third = page.column("GPUs")
    assert re.match(r"0: job 1, used to 87 %, alice, term 4 min .*, hold 59 min .* left", first)
    assert second.startswith("0: job 1, idle, alice, term")
    assert first.endswith("1-7: free")
    assert third == "0-7: closed"
    for count in ("1 used:", "1 held but idle:", "14 free", "8 closed:"):
        assert count in page.words
    assert [page.column(word) for word in ("Free", "Most on one node")] == [["14"], ["7"]]
    assert "/jobs/1" in page.links


async def test_a_choice_is_kept_by_counts_table_and_data(web: WebHouse) -> None:
    answer = await web.browser.get("/gpus", params={"state": "closed"}, headers=HTML)
    shown = shown_page(answer.text)
    assert shown.column("Node") == ["gpu0002"]
    assert "0 used:" in shown.words
    source = re.search(r'data-source="([^"]+)"', answer.text)
    assert source is not None
    data = (await web.browser.get(source[1])).json()
    assert [node[0] for node in data["nodes"]] == ["gpu0002"]
    nothing = await web.browser.get("/gpus", params={"type": "<b>"}, headers=HTML)
    assert "No GPU is so" in nothing.text


async def test_the_data_is_answered_by_its_tag(web: WebHouse) -> None:
    first = await web.browser.get("/gpus/map.json")
    data = first.json()
    assert [node[6][0] for node in data["nodes"]] == ["u", "i", "c"]
    assert data["leases"] == [["1", "alice", "", "running", "", *data["leases"][0][5:7], 2]]
    again = await web.browser.get(
        "/gpus/map.json", headers={"if-none-match": first.headers["etag"]}
    )
    assert (again.status_code, again.content) == (304, b"")


async def test_a_map_is_asked_for_once_in_a_while(
    web: WebHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def counted(pages: list[object]) -> GpuMap:
        asked.append(pages)
        return map_of(pages)  # type: ignore[arg-type]  # passed on as they are

    monkeypatch.setattr(maps, "map_of", counted)
    first = (await web.browser.get("/gpus/map.json")).json()
    assert (await web.browser.get("/gpus/map.json")).json() == first
    for path in ("/gpus", "/nodes", "/use"):
        assert (await web.browser.get(path, headers=HTML)).status_code == 200
    assert len(asked) == 1, "one map for all pages"


async def test_others_see_whose_a_gpu_is_only_where_the_cluster_shows_it(house: RpcHouse) -> None:
    house.control.published.others_shown = "nameless"
    async with web_house(house, "bob") as web:
        await web.enter()
        for path in ("/gpus", "/gpus/map.json"):
            assert "alice" not in (await web.browser.get(path)).text


async def test_a_large_cluster_is_light_and_goes_on_page_by_page(house: RpcHouse) -> None:
    fill(house, 1_024)
    async with web_house(house) as web:
        await web.enter()
        answer = await web.browser.get("/gpus", headers=HTML)
        parts = sum((STATIC / name).stat().st_size for name in ("style.css", "live.js", "gpus.js"))
        assert len(answer.content) + parts <= HEAVIEST
        assert "1024 nodes, from number 1 to 50" in shown_page(answer.text).words
        following = re.search(r'rel="next" href="([^"]+)"', answer.text)
        assert following is not None
        second = await web.browser.get(following[1].replace("&amp;", "&"), headers=HTML)
        assert "from number 51 to 100" in shown_page(second.text).words
        packed = await web.browser.get("/gpus/map.json", headers={"accept-encoding": "gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert len(json.loads(packed.content)["nodes"]) == 1_024
        assert packed.json()["next"] is None


async def test_an_empty_cluster_says_what_to_do(house: RpcHouse) -> None:
    house.control.published.all_nodes.clear()
    async with web_house(house) as web:
        await web.enter()
        assert "dlq admin token create" in (await web.browser.get("/gpus", headers=HTML)).text


async def test_a_master_that_is_away_is_told_and_a_stranger_gets_nothing(
    house: RpcHouse, web: WebHouse
) -> None:
    async with web_house(house, "bob") as stranger:
        for path in ("/gpus", "/gpus/map.json"):
            assert (await stranger.browser.get(path)).status_code == 401
    await house.server.stop(0.0)
    for path in ("/gpus", "/gpus/map.json"):
        assert (await web.browser.get(path)).status_code == 503
