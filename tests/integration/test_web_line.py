"""The line of `dlq web` to a master's real door: its certificate is renewed under open streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq_client.line.identity import Identity, certified
from dlq_common.errors import Unauthenticated
from dlq_common.identity.pki import Role
from dlq_web.line import calls
from dlq_web.line.calls import MasterLine
from dlq_web.line.methods import named
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house

pytestmark = pytest.mark.integration
LIST, WATCH = named("JobService", "ListJobs"), named("JobService", "WatchEvents")


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RpcHouse]:
    monkeypatch.setattr(calls, "RENEWAL_LOOK_S", 0.05)
    async with rpc_house(tmp_path) as house:
        yield house


def old_identity(house: RpcHouse) -> Identity:
    """An operator's, three quarters of whose life are over."""
    now_s, address = house.clock.now_s(), f"127.0.0.1:{house.server.api_port}"
    ca = house.authority.certificate_pem()
    fresh = certified(*house.certificate("olga", Role.OPERATOR), ca, address)
    issued_s = now_s - (fresh.expires_s - fresh.issued_s) * 3 / 4
    return certified(*house.certificate("olga", Role.OPERATOR, now_s=issued_s), ca, address)


async def renewed(line: MasterLine, old: Identity) -> None:
    for _ in range(int(DEADLINE_S / 0.02)):
        if line.identity is not old:
            return
        await asyncio.sleep(0.02)
    pytest.fail("it is not renewed")


async def test_an_open_stream_and_the_next_call_outlive_the_renewal(house: RpcHouse) -> None:
    old = old_identity(house)
    line = MasterLine(old, house.clock)
    async with aclosing(line.stream(WATCH, wire.WatchEventsRequest(cursor=-1))) as events:
        coming = asyncio.ensure_future(anext(events))
        keeping = asyncio.create_task(line.keep_renewed())
        await renewed(line, old)
        assert line.identity.expires_s > old.expires_s
        await line.call(LIST, wire.ListJobsRequest())
        async with asyncio.timeout(DEADLINE_S):
            while not coming.done():
                house.control.note("node_noted", node_id="gpu01")
                await asyncio.wait([coming], timeout=0.1)
        assert coming.result().cursor > 0
        keeping.cancel()
        await asyncio.wait([keeping])
    await line.close()


async def test_a_refused_renewal_is_tried_again(house: RpcHouse) -> None:
    old = old_identity(house)
    line = MasterLine(old, house.clock)
    olga = house.control.published.all_users.pop("olga")
    keeping = asyncio.create_task(line.keep_renewed())
    await asyncio.sleep(0.5)
    assert line.identity is old
    with pytest.raises(Unauthenticated):
        await line.call(LIST, wire.ListJobsRequest())
    house.control.published.all_users["olga"] = olga
    await renewed(line, old)
    keeping.cancel()
    await asyncio.wait([keeping])
    await line.close()


async def test_a_line_follows_an_identity_that_somebody_else_renews(house: RpcHouse) -> None:
    old, ca = old_identity(house), house.authority.certificate_pem()
    present = [old]
    line = MasterLine(old, house.clock, None, lambda: present[-1])
    async with aclosing(line.stream(WATCH, wire.WatchEventsRequest(cursor=-1))) as events:
        coming = asyncio.ensure_future(anext(events))
        await line.call(LIST, wire.ListJobsRequest())
        present.append(certified(*house.certificate("olga", Role.OPERATOR), ca, old.address))
        await line.call(LIST, wire.ListJobsRequest())
        assert line.identity is present[-1]
        async with asyncio.timeout(DEADLINE_S):
            while not coming.done():
                house.control.note("node_noted", node_id="gpu01")
                await asyncio.wait([coming], timeout=0.1)
        assert coming.result().cursor > 0, "on the former line"
    await line.close()
