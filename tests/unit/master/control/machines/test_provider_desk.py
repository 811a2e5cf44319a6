"""The desk of providers, when its master ends."""

from __future__ import annotations

import asyncio
import threading

from dlq_master.control.stimuli.machines import Act, ProviderTold, Verb
from dlq_master.providers.desk import ProviderDesk
from support.fake_provider import FakeProvider
from support.rented import SPOT

PATIENCE_S = 20.0


def test_a_call_that_hangs_does_not_hold_up_the_end_of_the_master() -> None:
    asked, answer, answered = threading.Event(), threading.Event(), threading.Event()

    def hang(_verb: str) -> None:
        asked.set()
        answer.wait(PATIENCE_S)
        answered.set()

    told: list[object] = []
    with_one = {"spot": FakeProvider(before=hang)}

    async def master() -> None:
        desk = ProviderDesk(
            (SPOT,), told.append, join_address="", token_of=str.join, providers=with_one
        )
        desk.ask(Act(Verb.LIST, "spot"))
        assert await asyncio.to_thread(asked.wait, PATIENCE_S)
        await desk.close()

    asyncio.run(master())
    assert not answered.is_set()
    (call,) = [thread for thread in threading.enumerate() if thread.name == "pool-list"]
    assert call.daemon, "the interpreter would wait for it"
    answer.set()
    call.join(PATIENCE_S)  # what it is told now is nobody's any more
    assert not call.is_alive()
    assert told == []


def test_what_it_is_told_comes_from_the_thread_to_the_loop() -> None:
    async def master() -> ProviderTold:
        heard = asyncio.get_running_loop().create_future()
        desk = ProviderDesk(
            (SPOT,),
            heard.set_result,
            join_address="",
            token_of=str.join,
            providers={"spot": FakeProvider()},
        )
        desk.ask(Act(Verb.LIST, "spot"))
        told: ProviderTold = await asyncio.wait_for(heard, PATIENCE_S)
        return told

    assert asyncio.run(master()) == ProviderTold(act=Act(Verb.LIST, "spot"))
