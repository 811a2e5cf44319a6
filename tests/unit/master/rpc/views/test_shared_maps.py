"""Pages of the GPU map are made once for all that ask within five seconds."""

from __future__ import annotations

import asyncio

import pytest

from dlq.v1 import node_service_pb2 as wire
from dlq_master.rpc.views.shared_maps import KEPT_S, MOST_PAGES, MapPage, SharedMaps
from support.fake_clock import FakeClock


class Maker:
    """Makes pages, and counts them."""

    def __init__(self) -> None:
        self.made = 0
        self.fails = False

    async def page(self) -> MapPage:
        await asyncio.sleep(0)
        if self.fails:
            raise RuntimeError("no page")
        self.made += 1
        return MapPage(wire.GetGpuMapResponse(next_page_token=str(self.made)), (), ())


async def test_many_readers_at_once_share_a_page() -> None:
    maps, maker = SharedMaps(FakeClock()), Maker()
    pages = await asyncio.gather(*(maps.page("all", maker.page) for _ in range(9)))
    assert maker.made == 1
    assert len({id(page.response) for page in pages}) == 1


async def test_an_old_page_is_made_anew_and_another_key_is_another_page() -> None:
    clock, maker = FakeClock(), Maker()
    maps = SharedMaps(clock)
    first = await maps.page("all", maker.page)
    clock.advance(KEPT_S - 0.1)
    assert await maps.page("all", maker.page) is first
    assert await maps.page("other", maker.page) is not first
    clock.advance(0.2)
    assert await maps.page("all", maker.page) is not first


async def test_a_failure_is_not_kept() -> None:
    maps, maker = SharedMaps(FakeClock()), Maker()
    maker.fails = True
    with pytest.raises(RuntimeError):
        await maps.page("all", maker.page)
    maker.fails = False
    assert (await maps.page("all", maker.page)).response.next_page_token == "1"


async def test_keys_without_end_are_not_kept_for_ever() -> None:
    maps, maker = SharedMaps(FakeClock()), Maker()
    for key in range(MOST_PAGES + 1):
        await maps.page(key, maker.page)
    await maps.page(0, maker.page)
    assert maker.made == MOST_PAGES + 2
