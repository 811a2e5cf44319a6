"""Moves of a rank with two processes: every step may be refused, and the agent may die after it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import Bytes, Seconds
from dlq_nodeagent.cgroups.port import OnlyMinors
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.port import NotStill
from dlq_nodeagent.suspension.checkpoints import NoCheckpoints, ProcessState
from dlq_nodeagent.suspension.port import (
    MoveBroken,
    MoveOrder,
    MoveRefusal,
    MoveRefused,
    NotOnRecord,
    SuspendConfig,
)
from dlq_nodeagent.suspension.suspender import HostSuspender, open_suspender
from support.fake_checkpoints import (
    GIB,
    UUIDS,
    Died,
    FakeCheckpoints,
    FakeStandstill,
    HeldDevices,
)

PIDS = (11, 12)
STEPS_OUT = 5  # two locks, two checkpoints, one freezing
CONFIG = SuspendConfig(
    memory=Bytes(8 * GIB), spare=Bytes(GIB), lock=Seconds(0.1), free=Seconds(0.0)
)
RULES = (OnlyMinors(195, frozenset({1, 255})),)


@dataclass
class Box:
    """A rank of two processes on one GPU, and its suspender."""

    driver: FakeCheckpoints = field(
        default_factory=lambda: FakeCheckpoints(states=dict.fromkeys(PIDS, ProcessState.RUNNING))
    )
    free_host: int = 64 * GIB

    def __post_init__(self) -> None:
        self.still = FakeStandstill(self.driver, frozenset((*PIDS, 13)))
        self.devices = HeldDevices(self.driver)
        self.order = MoveOrder(
            key=RankKey("7", 1, 0), uuids=UUIDS[:1], still=self.still, pids=PIDS, nbytes=2 * GIB
        )
        self.renew()

    def renew(
        self, config: SuspendConfig = CONFIG, why_not: str = "", *, opened: bool = True
    ) -> None:
        """Another agent on the same host."""
        self.suspender = HostSuspender(
            clock=SteadyClock(), config=config, devices=self.devices, why_not=why_not,
            free_below_bytes=GIB // 2, checkpoints=self.driver if opened else None,
            opens=lambda: self.driver, free_host=lambda: self.free_host,
        )  # fmt: skip

    def is_out(self) -> bool:
        return self.still.frozen and set(self.driver.states.values()) == {ProcessState.CHECKPOINTED}

    def runs(self) -> bool:
        return not self.still.frozen and set(self.driver.states.values()) == {ProcessState.RUNNING}

    def refused(self, **changes: Any) -> MoveRefused:
        with pytest.raises(MoveRefused) as caught:
            self.suspender.suspend(replace(self.order, **changes))
        assert self.runs()
        return caught.value


def test_a_rank_leaves_its_gpu_and_comes_back() -> None:
    box = Box()
    assert box.suspender.suspend(box.order).nbytes == 2 * GIB
    assert box.is_out()
    box.suspender.resume(box.order)
    assert box.runs()


@pytest.mark.parametrize("pid", PIDS)
@pytest.mark.parametrize(
    ("call", "word"), [("lock", MoveRefusal.LOCK), ("checkpoint", MoveRefusal.MOVE)]
)
def test_a_refused_step_is_undone_and_the_rank_runs_on(
    call: str, word: MoveRefusal, pid: int
) -> None:
    box = Box()
    box.driver.refuses = {(call, pid)}
    assert box.refused().word is word


def test_a_rank_that_cannot_stand_still_runs_on() -> None:
    box = Box()
    box.still.refuses = True
    assert box.refused().word is MoveRefusal.STILL


def test_gpus_that_do_not_get_free_bring_the_rank_back() -> None:
    box = Box()
    box.devices.lingers = GIB
    refused = box.refused()
    assert refused.word is MoveRefusal.NOT_FREE
    assert UUIDS[0] in refused.words


def test_a_way_back_that_is_refused_too_leaves_nothing_to_run() -> None:
    box = Box()
    box.driver.refuses = {("checkpoint", 12), ("restore", 11)}
    with pytest.raises(MoveBroken):
        box.suspender.suspend(box.order)


@pytest.mark.parametrize(("call", "pid"), [("restore", 11), ("restore", 12), ("unlock", 12)])
def test_a_rank_that_cannot_come_back_is_said_to_be_broken(call: str, pid: int) -> None:
    box = Box()
    box.suspender.suspend(box.order)
    box.driver.refuses = {(call, pid)}
    with pytest.raises(MoveBroken):
        box.suspender.resume(box.order)


@pytest.mark.parametrize("dies_after", range(1, STEPS_OUT + 1))
def test_an_agent_that_dies_on_the_way_out_is_followed_by_one_that_goes_on(
    dies_after: int,
) -> None:
    box = Box()
    box.driver.dies_after = dies_after
    with pytest.raises(Died):
        box.suspender.suspend(box.order)
    box.renew()
    box.suspender.suspend(box.order)
    assert box.is_out()
    box.suspender.resume(box.order)
    assert box.runs()


@pytest.mark.parametrize("dies_after", range(1, 5))
def test_an_agent_that_dies_on_the_way_back_is_followed_by_one_that_goes_on(
    dies_after: int,
) -> None:
    box = Box()
    box.suspender.suspend(box.order)
    box.driver.calls.clear()
    box.driver.dies_after = dies_after
    with pytest.raises(Died):
        box.suspender.resume(box.order)
    box.renew()
    box.suspender.resume(box.order)
    assert box.runs()


def test_the_host_s_budget_counts_what_others_have_there() -> None:
    box = Box()
    held = {RankKey("8", 1, 0): 7 * GIB}
    assert "of suspend.memory left" in box.refused(held=held).words
    box.suspender.suspend(replace(box.order, held={RankKey("8", 1, 0): 6 * GIB}))
    assert box.is_out()


def test_memory_that_the_host_keeps_for_others_is_not_taken() -> None:
    box = Box(free_host=2 * GIB)
    assert "of the host's memory" in box.refused().words
    box.still.limit_left = GIB
    box.free_host = 64 * GIB
    assert "of its memory limit" in box.refused().words
    assert box.refused().word is MoveRefusal.MEMORY


def test_a_gpu_with_others_on_it_is_left_alone() -> None:
    box = Box()
    box.devices.strangers = (99,)
    assert "process 99" in box.refused().words
    box.devices.strangers, box.devices.mps = (), (11,)
    assert box.refused().word is MoveRefusal.SHARED


def test_nobody_comes_back_to_a_gpu_while_another_is_on_it() -> None:
    box = Box()
    box.suspender.suspend(box.order)
    box.devices.strangers = (99,)
    with pytest.raises(MoveRefused):
        box.suspender.resume(box.order)
    assert box.is_out()


def test_a_rank_comes_back_to_another_gpu_where_the_driver_can() -> None:
    box = Box()
    box.suspender.suspend(box.order)
    elsewhere = replace(box.order, onto=UUIDS[1:], rules=RULES)
    box.driver.remaps = False
    assert box.suspender.own_only == "the driver is older than 580"
    with pytest.raises(MoveBroken):
        box.suspender.resume(elsewhere)
    assert box.is_out()
    box.driver.remaps = True
    box.devices.strangers = (99,)  # on the GPU that it left
    box.suspender.resume(elsewhere)
    assert box.runs()
    assert box.driver.onto == [(UUIDS[0], UUIDS[1])]
    assert box.still.may_open == RULES


@pytest.mark.parametrize("dies_after", range(1, 5))
def test_an_agent_that_dies_on_the_way_to_another_gpu_is_followed_by_one_that_goes_on(
    dies_after: int,
) -> None:
    box = Box()
    box.suspender.suspend(box.order)
    elsewhere = replace(box.order, onto=UUIDS[1:], rules=RULES)
    box.driver.calls.clear()
    box.driver.dies_after = dies_after
    with pytest.raises(Died):
        box.suspender.resume(elsewhere)
    box.renew()
    box.suspender.resume(elsewhere)
    assert box.runs()
    assert box.driver.onto == [(UUIDS[0], UUIDS[1])]
    assert len(box.driver.calls) == 4, "each process is restored once, and unlocked once"


def test_where_there_is_no_driver_processes_come_back_as_they_are() -> None:
    box = Box()
    box.renew(opened=False)
    box.suspender.opens, box.driver.states = None, {}
    assert box.suspender.own_only == ""
    box.suspender.suspend(replace(box.order, pids=(), nbytes=0))
    box.suspender.resume(replace(box.order, onto=UUIDS[1:], pids=()))
    assert not box.still.frozen


def test_a_node_that_suspends_none_says_why() -> None:
    box = Box()
    box.renew(why_not="the driver is older than 570")
    assert box.refused().words == "the driver is older than 570"


def test_an_agent_that_suspends_none_brings_back_what_an_earlier_one_has_suspended() -> None:
    box = Box()
    box.suspender.suspend(box.order)
    box.renew(why_not="suspend.memory is 0", opened=False)
    box.suspender.resume(box.order)
    assert box.runs()


def test_without_a_driver_nobody_is_said_to_be_back() -> None:
    def closed() -> FakeCheckpoints:
        raise NoCheckpoints("no CUDA driver")

    box = Box()
    box.suspender.suspend(box.order)
    box.renew(opened=False)
    box.suspender.opens = closed
    with pytest.raises(MoveBroken, match="no CUDA driver"):
        box.suspender.resume(box.order)


def test_a_host_whose_devices_are_not_seen_is_not_taken_for_a_virtual_one() -> None:
    box = Box()
    box.devices.devices = tuple  # type: ignore[method-assign]
    suspender = open_suspender(SuspendConfig(), box.devices, GIB, SteadyClock())
    assert suspender.opens is not None


def test_nothing_moves_before_it_is_on_record() -> None:
    box = Box()
    with pytest.raises(NotOnRecord) as found:
        box.suspender.suspend(replace(box.order, pids=(), nbytes=0))
    assert (found.value.pids, found.value.nbytes) == (PIDS, 2 * GIB)
    assert box.runs()
    assert box.driver.calls == []


def test_a_process_that_uses_cuda_only_now_is_a_refusal() -> None:
    """It is on no record, so nobody could bring it back after the agent's death."""
    box = Box()
    assert box.refused(pids=PIDS[:1]).word is MoveRefusal.LOCK


@pytest.mark.parametrize("back", [False, True])
def test_a_process_of_which_the_driver_says_nothing_for_long_cannot_be_moved(back: bool) -> None:
    box = Box()
    if back:
        box.suspender.suspend(box.order)
    box.driver.silent[12] = 10**9
    with pytest.raises(MoveBroken, match="says nothing of process 12"):
        (box.suspender.resume if back else box.suspender.suspend)(box.order)


def test_a_process_that_has_ended_meanwhile_is_not_back() -> None:
    box = Box()
    box.suspender.suspend(box.order)
    del box.driver.states[12]
    box.still.known -= {12}
    with pytest.raises(MoveBroken, match="process 12 has ended"):
        box.suspender.resume(box.order)


@pytest.mark.parametrize("dies_after", range(1, STEPS_OUT + 1))
@pytest.mark.parametrize("pid", PIDS)
@pytest.mark.parametrize("refused", [False, True])
def test_an_agent_that_follows_waits_for_a_driver_that_says_nothing_at_first(
    pid: int, dies_after: int, refused: bool
) -> None:
    box = Box()
    box.driver.dies_after = dies_after
    with pytest.raises(Died):
        box.suspender.suspend(box.order)
    box.renew()
    box.driver.silent[pid] = 2
    if refused:
        box.free_host = 0
        box.refused()
        return
    box.suspender.suspend(box.order)
    assert box.is_out()


@pytest.mark.parametrize("dies_after", range(1, STEPS_OUT + 1))
@pytest.mark.parametrize("why", ["", "memory", "no driver"])
def test_an_agent_that_follows_gives_up_a_process_of_which_it_hears_nothing(
    why: str, dies_after: int
) -> None:
    def closed() -> FakeCheckpoints:
        raise NoCheckpoints("no CUDA driver")

    box = Box()
    box.driver.dies_after = dies_after
    with pytest.raises(Died):
        box.suspender.suspend(box.order)
    box.renew(opened=why != "no driver")
    box.suspender.opens = closed
    box.free_host = 0 if why == "memory" else box.free_host
    box.driver.silent[12] = 10**9
    with pytest.raises(MoveBroken):
        box.suspender.suspend(box.order)


def test_bytes_that_an_earlier_agent_has_moved_are_counted() -> None:
    box = Box()
    box.driver.dies_after = STEPS_OUT
    with pytest.raises(Died):
        box.suspender.suspend(box.order)
    box.renew()
    assert box.suspender.suspend(box.order).nbytes == 2 * GIB


@pytest.mark.parametrize("dies_after", range(1, STEPS_OUT + 1))
@pytest.mark.parametrize("why", ["memory", "shared", "off", "unknown"])
def test_a_refusal_after_the_agent_s_death_undoes_what_it_had_done(
    why: str, dies_after: int
) -> None:
    box = Box()
    box.driver.dies_after = dies_after
    with pytest.raises(Died):
        box.suspender.suspend(box.order)
    box.renew(why_not="suspend.memory is 0" if why == "off" else "")
    if why == "memory":
        box.free_host = 0
    box.devices.strangers = (99,) if why == "shared" else ()
    box.refused(uuids=() if why == "unknown" else UUIDS[:1])


def test_a_refused_rank_that_stays_frozen_is_said_to_be_broken() -> None:
    box = Box()
    box.devices.lingers = GIB

    def stuck() -> None:
        raise NotStill("the kernel has not done it")

    box.still.thaw = stuck  # type: ignore[method-assign]
    with pytest.raises(MoveBroken):
        box.suspender.suspend(box.order)
