"""A page weighs little, on a full cluster too: its text, its styles and its scripts together."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dlq_common.identity.pki import Role
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import Gpu
from support.rpc_house import rpc_house
from support.stored_values import a_job, a_node
from support.v1_calls import furnish
from support.web_house import WebHouse, web_house
from support.web_pages import page_paths

pytestmark = pytest.mark.integration
HTML = {"accept": "text/html"}
MOST_BYTES = 150_000
PAGES = page_paths(node="gpu01")
JOBS, NODES = 1_200, 1_024


@pytest.fixture(params=["usual", "full"])
async def web(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[WebHouse]:
    async with rpc_house(tmp_path) as house:
        furnish(house)
        read, now_s = house.control.published, house.clock.now_s()
        for number in range(10, JOBS) if request.param == "full" else ():
            job = a_job(number, user="olga", name="train " * 4, submit_time_s=now_s - 60.0)
            read.all_jobs[job.job_id] = job
        for number in range(2, NODES) if request.param == "full" else ():
            gpus = tuple(Gpu(index=index, gpu_type="H100-80GB") for index in range(8))
            name = f"gpu{number:04}"
            read.all_nodes[NodeId(name)] = a_node(name, gpus=gpus)
        async with web_house(house, "olga", Role.OPERATOR) as web:
            await web.enter()
            yield web


async def weight(web: WebHouse, path: str) -> dict[str, int]:
    """The bytes of a page and of each part that it names, and of the parts that those name."""
    sizes, left = dict[str, int](), [path]
    while left:
        at = left.pop()
        answer = await web.browser.get(at, headers=HTML)
        sizes[at] = len(answer.content)
        assert answer.status_code < 500, (at, answer.text[:500])
        named = re.findall(r"""(?:src|href)="(/static/[^"]+)\"""", answer.text)
        named += [
            f"/static/{name}"
            for name in re.findall(
                r"""(?:from|import) ?\(?'\.?/(?:static/)?([^']+)'""", answer.text
            )
            if at.startswith("/static/")
        ]
        left += [name for name in named if name not in sizes and name not in left]
    return sizes


async def test_every_page_weighs_little(web: WebHouse) -> None:
    weights = {path: await weight(web, path) for path in PAGES}
    assert all("/static/style.css" in sizes for sizes in weights.values())
    heavy = {path: sizes for path, sizes in weights.items() if sum(sizes.values()) > MOST_BYTES}
    assert heavy == {}
