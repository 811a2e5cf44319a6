"""Servers that are lent by the load of the inference side, as people and sources let them."""

import asyncio
import threading
from collections.abc import AsyncIterable
from typing import Any

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import IllegalTransition
from dlq_master.control.config import LoansConfig, MasterConfig
from dlq_master.control.loans.load_sources import LoadUnknown
from dlq_master.control.loans.loan_auto import Follower
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import Stimulus
from dlq_master.control.stimuli.loans import SwitchLoans
from dlq_master.model.event import JournalEvent
from dlq_master.model.nodes.node import NodeState
from support.fake_clock import SeededIds
from support.lent_servers import asked, flags, server
from support.master_harness import ROOT, Master
from support.running import running


class Watched:
    """A follower of a load that the test says; 10 servers, no head-room, patience of 100 s."""

    def __init__(self, master: Master, within_s: float = 0.0) -> None:
        self.master = master
        self.busy = 1.0
        self.fault = ""
        self.agents = {name: server(master, name) for name in (f"i{n}" for n in range(10))}
        config = LoansConfig(
            load="told", headroom=0.0, settle=Seconds(100.0), within=Seconds(within_s)
        )
        self.follower = Follower(
            config, _Asking(master), master.state.loans, master.clock, SeededIds(1), self._read
        )

    def _read(self, _source: str) -> float:
        if self.fault:
            raise LoadUnknown(self.fault)
        return self.busy

    def look(self, busy: float, seconds: float = 0.0) -> list[str]:
        """Who is lent after this load has lasted for so long."""
        self.busy = busy
        for _ in range(int(seconds // 10) or 1):
            self.master.tick(10.0 if seconds else 0.0)
            for agent in self.agents.values():
                agent.heartbeat()
            asyncio.run(self.follower.look())
            for agent in self.agents.values():
                agent.answer()
        return [name for name in self.agents if "loaned" in flags(self.master, name)]


class _Asking:
    """The loop's door for the follower, turn by turn."""

    def __init__(self, master: Master) -> None:
        self._master = master

    @property
    def published(self) -> Published:
        return self._master.loop.published

    def tell(self, stimulus: Stimulus) -> None: ...

    def watch(self, after: int) -> AsyncIterable[JournalEvent]:
        raise NotImplementedError

    async def ask(self, stimulus: Stimulus) -> Any:
        return await asyncio.to_thread(self._master.ask, stimulus)


def test_servers_are_lent_after_patience_and_asked_back_at_once(master: Master) -> None:
    watched = Watched(master)
    assert watched.look(0.7, 90.0) == [], "nobody has watched for long enough"
    assert watched.look(0.7, 30.0) == ["i0", "i1", "i2"]
    assert watched.look(0.5, 50.0) == ["i0", "i1", "i2"], "it may come back"
    assert watched.look(0.9) == ["i0"]
    told = master.loop.published.followed_load()
    assert told is not None
    assert (told.busy, told.lent, told.fault) == (0.9, 1, "")


def test_what_people_take_back_is_not_lent_again_before_patience(master: Master) -> None:
    watched = Watched(master)
    assert watched.look(0.7, 120.0) == ["i0", "i1", "i2"]
    master.ask(asked("i1"))
    for agent in watched.agents.values():
        agent.answer()
    assert flags(master, "i1") == set()
    assert watched.look(0.7, 90.0) == ["i0", "i2"]
    assert watched.look(0.7, 30.0) == ["i0", "i1", "i2"]


def test_servers_of_which_nothing_was_told_for_long_have_not_been_idle(master: Master) -> None:
    watched = Watched(master)
    watched.look(0.9, 120.0)
    watched.fault = "gone"
    watched.look(0.0, 150.0)
    watched.fault = ""
    assert watched.look(0.7, 10.0) == ["i0"], "who is lent stays so"
    assert watched.look(0.7, 110.0) == ["i0", "i1", "i2"]


def test_who_must_leave_in_time_is_ended_then(master: Master) -> None:
    watched = Watched(master, within_s=20.0)
    watched.look(0.9, 120.0)
    key = running(master, watched.agents["i0"])
    watched.look(1.0)
    assert master.attempt(key.job_id).grace_s == 20.0
    assert flags(master, "i0") == {"loaned", "reclaimed"}


def test_a_source_that_tells_nothing_changes_nothing(master: Master) -> None:
    watched = Watched(master)
    before = watched.look(0.7, 120.0)
    watched.fault = "it does not answer"
    assert watched.look(1.0, 50.0) == before
    told = master.loop.published.followed_load()
    assert told is not None
    assert (told.fault, told.busy) == ("it does not answer", 0.7)


def test_a_source_that_hangs_is_told_and_not_asked_again_until_it_has_answered(
    master: Master,
) -> None:
    watched = Watched(master)
    before = watched.look(0.7, 120.0)
    asked: list[str] = []
    answer = threading.Event()

    def hangs(source: str) -> float:
        asked.append(source)
        answer.wait()
        return 1.0

    door, loans = _Asking(master), master.state.loans
    config = LoansConfig(load="told", headroom=0.0)
    follower = Follower(config, door, loans, master.clock, SeededIds(2), hangs, patience_s=0.0)

    async def looks() -> list[str]:
        try:
            for _ in range(3):
                await follower.look()
            told = loans.followed
            assert told is not None
            assert told.fault == "told: it has not answered yet"
            return [name for name in watched.agents if flags(master, name) == {"loaned"}]
        finally:
            answer.set()
            while loans.followed is None or loans.followed.fault:
                await follower.look()

    assert asyncio.run(looks()) == before
    assert asked == ["told"]
    assert all("reclaimed" in flags(master, name) for name in before), "what it says at last counts"


def test_servers_that_do_not_answer_are_not_counted_on(master: Master) -> None:
    watched = Watched(master)
    for name in ("i0", "i1"):
        watched.agents.pop(name).cut()
    master.tick(1.0)
    watched.look(0.75, 120.0)
    assert master.node("i0").state is not NodeState.UP
    assert watched.look(0.75) == ["i2", "i3"], "a quarter of the eight that answer"


def test_who_switches_it_off_lends_and_reclaims_until_it_is_on_again(master: Master) -> None:
    with pytest.raises(IllegalTransition, match="no load is followed"):
        master.ask(SwitchLoans(caller=ROOT, request_id="s0", on=False))
    master.close()
    master = Master(MasterConfig(loans=LoansConfig(load="told")))
    watched = Watched(master)
    before = watched.look(0.7, 120.0)
    for request_id in ("s1", "s1", "s2"):
        master.ask(SwitchLoans(caller=ROOT, request_id=request_id, on=False))
    assert [word for word in master.words() if word.startswith("loans_auto")] == ["loans_auto_off"]
    assert watched.look(1.0, 50.0) == before, "what is lent stays lent"
    master.restart()
    off = master.loop.published.loans_off()
    assert off is not None
    assert off.by == "user:root"
    watched = Watched(master)
    assert watched.look(1.0, 50.0) == before
    master.ask(SwitchLoans(caller=ROOT, request_id="s3", on=True))
    assert watched.look(1.0) == []
    master.restart()
    assert master.loop.published.loans_off() is None
    master.close()
