"""Every instant on a page is one that the browser shows in its reader's zone."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dlq_common.identity.pki import Role
from dlq_master.model.ids import JobId
from support.rpc_house import rpc_house
from support.v1_calls import furnish
from support.web_house import WebHouse, web_house
from support.web_pages import page_paths

pytestmark = pytest.mark.integration
HTML = {"accept": "text/html"}
PAGES = page_paths(node="gpu01")


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[WebHouse]:
    async with rpc_house(tmp_path) as house:
        furnish(house)
        if JobId(1) in house.control.published.all_jobs:
            house.control.place(JobId(1), "gpu01")
        async with web_house(house, "olga", Role.OPERATOR) as web:
            await web.enter()
            yield web


@pytest.mark.parametrize("path", PAGES)
async def test_an_instant_of_a_page_is_one_for_the_browser(web: WebHouse, path: str) -> None:
    text = (await web.browser.get(path, headers=HTML)).text
    bare = re.sub(r"<time [^>]*>[^<]*</time>|<pre.*?</pre>", "", text, flags=re.DOTALL)
    assert re.findall(r".{40}\d{4}-\d\d-\d\d \d\d:\d\d.{20}", bare) == []
