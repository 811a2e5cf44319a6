"""Errands done in threads: answers come back on the loop, and no failure is lost."""

import asyncio
import os
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import Bytes
from dlq_common.start_causes import StartCause
from dlq_nodeagent.devices.fake import FakeDevices, parse_virtual
from dlq_nodeagent.devices.port import GIB, DeviceProcess, DeviceUsage
from dlq_nodeagent.launch.launching import Launching
from dlq_nodeagent.launch.rules import AgentJobsConfig, LaunchRules, OutputConfig
from dlq_nodeagent.model.errands import (
    Look,
    LookOrder,
    Move,
    MoveResult,
    Preparation,
    PrepareOrder,
    Purpose,
)
from dlq_nodeagent.model.launch import ContainerPlan, RankKey
from dlq_nodeagent.model.messages import ContainerRequest, GpuLook, GpuReading, Launch, ProfileFound
from dlq_nodeagent.model.port import JobFiles
from dlq_nodeagent.profiling.places import Places, Station
from dlq_nodeagent.runtimes.podman.prepare import Containers
from dlq_nodeagent.runtimes.podman.pull import NotWanted, PullEnding, Say
from dlq_nodeagent.runtimes.podman.pulls import Done, ImageWanted, Pulls, PullWish
from dlq_nodeagent.suspension.port import Moved, MoveOrder, NotOnRecord, SuspendConfig
from dlq_nodeagent.suspension.suspender import open_suspender
from dlq_nodeagent.workshop import Workshop
from dlq_profiler.records.tail import TrafficLook
from support.agent_bench import a_launch
from support.fake_checkpoints import FakeCheckpoints, FakeStandstill
from support.fake_clock import FakeClock


@dataclass
class Asker:
    """Takes the place of the core."""

    preparations: list[Preparation] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    moves: list[MoveResult] = field(default_factory=list)
    at_gpus: list[GpuLook] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    profiles: list[ProfileFound] = field(default_factory=list)
    traffic: list[TrafficLook | None] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def prepared(self, key: RankKey, preparation: Preparation) -> None:
        self.preparations.append(preparation)

    def preparing(self, key: RankKey, detail: str) -> None:
        self.details.append(detail)

    def looked(self, key: RankKey, purpose: Purpose, look: Look) -> None:
        self.looks.append(look)

    def moved(self, key: RankKey, result: MoveResult) -> None:
        self.moves.append(result)

    def gpus_seen(self, look: GpuLook) -> None:
        self.at_gpus.append(look)

    def profile_read(self, key: RankKey, found: ProfileFound) -> None:
        self.profiles.append(found)

    def traffic_seen(self, key: RankKey, seen: TrafficLook | None) -> None:
        self.traffic.append(seen)

    async def wait(self) -> None:
        await asyncio.wait_for(self.arrived.wait(), 10)
        self.arrived.clear()


@dataclass
class Bench:
    """A workshop over virtual devices that a test can occupy."""

    workshop: Workshop
    devices: FakeDevices
    asker: Asker

    async def prepare(self, launch: Launch) -> Preparation:
        self.workshop.prepare(PrepareOrder(launch=launch))
        await self.asker.wait()
        return self.asker.preparations[-1]

    async def look(self, launch: Launch, purpose: Purpose, *, settled: bool = False) -> Look:
        order = LookOrder(launch=launch, purpose=purpose, floor_mtime_ns=0, settled=settled)
        self.workshop.look(order)
        await self.asker.wait()
        return self.asker.looks[-1]


class MakeBench(Protocol):
    def __call__(self, containers: Containers | None = None) -> Bench: ...


@pytest.fixture
def make_bench(tmp_path: Path) -> MakeBench:
    def make(containers: Containers | None = None) -> Bench:
        devices = FakeDevices(parse_virtual("2xH100-80GB"), "n1")
        rules = LaunchRules(
            jobs=AgentJobsConfig(runtime="podman", allow_root=True, pids_max=100),
            output=OutputConfig(Bytes(4096), Bytes(8192), Bytes(0)),
            run_as="self",
            scripts=tmp_path,
        )
        clock = FakeClock()
        launching = Launching(
            rules=rules,
            devices=devices.devices(),
            job_files=lambda key: JobFiles("/n", "/j", "/b", "/d"),
            now_s=clock.now_s,
            containers=containers,
        )
        asker = Asker()
        workshop = Workshop(
            clock=clock,
            devices=devices,
            launching=launching,
            station=Station(
                clock=clock,
                places=Places.of(tmp_path),
                rights_of=launching.rights_of,
                devices_of=launching.devices_of,
                drops=False,
            ),
            send_log=lambda order, handle, never_ran: None,
            run_inside=lambda order, handle: None,
            send_samples=lambda order: None,
            wake=asker.arrived.set,
        )
        workshop.answers = asker
        return Bench(workshop, devices, asker)

    return make


async def test_a_prepared_rank_has_its_plan(make_bench: MakeBench, tmp_path: Path) -> None:
    launch = a_launch(checkpoint_directory=str(tmp_path / "c"))
    preparation = await make_bench().prepare(launch)
    assert preparation.plan is not None
    assert preparation.plan.key == launch.key


async def test_a_refused_rank_has_its_reason(make_bench: MakeBench) -> None:
    preparation = await make_bench().prepare(a_launch(gpu_indexes=(9,), checkpoint_directory=""))
    assert preparation.error == "this node has no GPU 9"
    assert preparation.exit_code is None


async def test_a_rank_is_moved_off_virtual_gpus_by_standing_still(make_bench: MakeBench) -> None:
    bench, driver = make_bench(), FakeCheckpoints()
    still = FakeStandstill(driver, frozenset({11}))
    order = Move(launch=a_launch(gpu_indexes=(0,)), out=True, still=still, held={})
    bench.workshop.move(order)
    await bench.asker.wait()
    assert bench.asker.moves[-1].refusal == "this node suspends no jobs"
    bench.workshop.suspender = open_suspender(
        SuspendConfig(memory=Bytes(GIB)), bench.devices, GIB, SteadyClock()
    )
    for out in (True, False):
        bench.workshop.move(replace(order, out=out))
        await bench.asker.wait()
        assert (bench.asker.moves[-1].refusal, still.frozen) == ("", out)
    elsewhere = a_launch(gpu_indexes=(9,))
    for out in (True, False):
        bench.workshop.move(replace(order, out=out, launch=elsewhere))
        await bench.asker.wait()
        assert "not known" in bench.asker.moves[-1].refusal, "nothing has moved"


async def test_nothing_is_started_on_a_gpu_that_something_else_holds(
    make_bench: MakeBench,
) -> None:
    bench = make_bench()
    uuid = bench.devices.devices()[1].uuid
    bench.devices.usages[uuid] = DeviceUsage(GIB, (DeviceProcess(4711, GIB),))
    refused = await bench.prepare(a_launch(gpu_indexes=(0, 1), checkpoint_directory=""))
    assert (refused.plan, refused.cause, refused.exit_code) == (None, StartCause.GPU_HELD, None)
    assert "processes: 4711" in refused.error
    other = await bench.prepare(a_launch(gpu_indexes=(0,), checkpoint_directory=""))
    assert other.plan is not None
    del bench.devices.usages[uuid]
    again = await bench.prepare(a_launch(gpu_indexes=(0, 1), checkpoint_directory=""))
    assert again.plan is not None


async def test_a_checkpoint_is_found_with_its_age(make_bench: MakeBench, tmp_path: Path) -> None:
    bench = make_bench()
    marker = tmp_path / "c" / "step-000005" / "COMMITTED"
    marker.parent.mkdir(parents=True)
    marker.write_text('{"step": 5}')
    now_s = FakeClock().now_s()
    os.utime(marker, (now_s - 7, now_s - 7))
    look = await bench.look(a_launch(checkpoint_directory=str(tmp_path / "c")), Purpose.WATCH)
    assert look.checkpoint is not None
    assert (look.checkpoint.step, look.checkpoint.age_s) == (5, 7.0)
    assert look.released is None


async def test_a_rank_that_has_ended_need_not_wait_for_its_marker_to_settle(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    bench = make_bench()
    now_s = FakeClock().now_s()
    (tmp_path / "a.ckpt").write_text("")
    os.utime(tmp_path / "a.ckpt", (now_s - 1, now_s - 1))
    launch = a_launch(checkpoint_directory=str(tmp_path), checkpoint_marker="*.ckpt", settle_s=60.0)
    assert (await bench.look(launch, Purpose.WATCH)).checkpoint is None
    assert (await bench.look(launch, Purpose.FINAL, settled=True)).checkpoint is not None


async def test_the_last_checkpoint_waits_for_no_driver(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    bench = make_bench()
    bench.devices.broken[bench.devices.devices()[0].uuid] = "gpu_is_lost"
    (tmp_path / "a.ckpt").write_text("")
    launch = a_launch(checkpoint_directory=str(tmp_path), checkpoint_marker="*.ckpt", settle_s=60.0)
    look = await bench.look(launch, Purpose.FINAL, settled=True)
    assert look.checkpoint is not None
    assert look.released is None


async def test_free_gpus_are_said_to_be_free(make_bench: MakeBench) -> None:
    look = await make_bench().look(a_launch(checkpoint_directory=""), Purpose.RELEASE)
    assert (look.released, look.held_by) == (True, "")


@pytest.mark.parametrize("gpus", [(), (0, 1)])
async def test_the_last_look_at_files_says_that_gpus_without_a_driver_are_free(
    make_bench: MakeBench, gpus: tuple[int, ...]
) -> None:
    bench = make_bench()
    launch = a_launch(checkpoint_directory="", gpu_indexes=gpus)
    assert (await bench.look(launch, Purpose.FINAL, settled=True)).released is True
    assert (await bench.look(launch, Purpose.WATCH)).released is None


async def test_the_last_look_at_files_is_silent_about_a_gpu_in_use(make_bench: MakeBench) -> None:
    bench = make_bench()
    uuid = bench.devices.devices()[0].uuid
    bench.devices.usages[uuid] = DeviceUsage(9, (DeviceProcess(4242, 9),))
    launch = a_launch(checkpoint_directory="")
    assert (await bench.look(launch, Purpose.FINAL, settled=True)).released is None
    assert (await bench.look(launch, Purpose.RELEASE)).released is False


async def test_the_last_look_at_files_asks_no_driver(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.workshop._launching = replace(
        bench.workshop._launching,
        devices=[replace(it, virtual=False) for it in bench.devices.devices()],
    )
    launch = a_launch(checkpoint_directory="")
    assert (await bench.look(launch, Purpose.FINAL, settled=True)).released is None


@dataclass
class HangingRegistry:
    """Containers on a node that has no image but `here`, and a registry that never answers."""

    pulls: Pulls

    def plan(self, launch: Launch, *rest: object) -> ContainerPlan:
        assert launch.container is not None
        if launch.container.image != "localhost/here:1":
            raise ImageWanted(PullWish(launch.container.image, launch.user))
        return ContainerPlan(image="feed")

    def fetch(self, key: RankKey, wish: PullWish, say: Say, done: Done) -> None:
        self.pulls.want(key, wish, say, done)

    def abandon(self, key: RankKey) -> None:
        self.pulls.unwant(key)

    def forget(self, key: RankKey) -> None:
        """Nothing was made."""


async def test_pulls_that_hang_keep_nothing_else_waiting_and_end_with_their_ranks(
    make_bench: MakeBench,
) -> None:
    ended: list[str] = []

    def fetch(wish: PullWish, say: Say, ending: PullEnding) -> None:
        while not ending.over:
            ending.wait(10)
        ended.append(wish.image)
        raise NotWanted("ended")

    pulls = Pulls(fetch=fetch)
    bench = make_bench(HangingRegistry(pulls))
    keys = []
    for number in range(40):
        image = ContainerRequest(image=f"hangs.example/{number}:1")
        launch = replace(
            a_launch(job=number + 100, checkpoint_directory=""), container=image, user="mallory"
        )
        bench.workshop.prepare(PrepareOrder(launch=launch))
        keys.append(launch.key)
    while len(bench.asker.details) < 40:
        await bench.asker.wait()
    process = await bench.prepare(a_launch(checkpoint_directory=""))
    assert process.plan is not None
    here = replace(
        a_launch(checkpoint_directory=""), container=ContainerRequest(image="localhost/here:1")
    )
    assert (await bench.prepare(here)).plan is not None
    assert (await bench.look(a_launch(checkpoint_directory=""), Purpose.RELEASE)).released
    before = len(bench.asker.preparations)
    for key in keys:
        bench.workshop.abandon(key)
    while len(bench.asker.preparations) < before + 40:
        await bench.asker.wait()
    assert all("nobody waits" in it.error for it in bench.asker.preparations[before:])
    pulls.close()
    bench.workshop.close()


async def test_a_rank_whose_image_has_come_is_ordered_again(make_bench: MakeBench) -> None:
    bench = make_bench(HangingRegistry(Pulls(fetch=lambda wish, say, ending: None)))
    launch = replace(
        a_launch(checkpoint_directory=""), container=ContainerRequest(image="reg.example/a:1")
    )
    bench.workshop.prepare(PrepareOrder(launch=launch))
    while not bench.asker.preparations:
        await bench.asker.wait()
    assert bench.asker.preparations == [Preparation(again=True)]


async def test_a_rank_that_went_while_podman_was_asked_pulls_nothing(make_bench: MakeBench) -> None:
    pulled: list[PullWish] = []
    bench = make_bench(HangingRegistry(Pulls(fetch=lambda wish, say, ending: pulled.append(wish))))
    launch = replace(
        a_launch(checkpoint_directory=""), container=ContainerRequest(image="reg.example/a:1")
    )
    bench.workshop.prepare(PrepareOrder(launch=launch))
    bench.workshop.abandon(launch.key)
    await bench.asker.wait()
    assert "nobody waits" in bench.asker.preparations[-1].error
    assert pulled == []


async def test_a_gpu_with_a_process_is_named_with_it(make_bench: MakeBench) -> None:
    bench = make_bench()
    uuid = bench.devices.devices()[0].uuid
    bench.devices.usages[uuid] = DeviceUsage(9, (DeviceProcess(4242, 9),))
    look = await bench.look(a_launch(checkpoint_directory=""), Purpose.RELEASE)
    assert look.released is False
    assert uuid in look.held_by
    assert "4242" in look.held_by


async def test_memory_that_nobody_holds_keeps_a_gpu_too(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.devices.usages[bench.devices.devices()[0].uuid] = DeviceUsage(600 * 2**20, ())
    assert (await bench.look(a_launch(checkpoint_directory=""), Purpose.RELEASE)).released is False


async def test_gpus_that_others_have_by_now_are_not_asked_about(make_bench: MakeBench) -> None:
    bench = make_bench()
    launch = a_launch(checkpoint_directory="", gpu_indexes=(0, 1))
    bench.devices.usages[bench.devices.devices()[0].uuid] = DeviceUsage(2**40, ())
    for given_out in (frozenset({0}), frozenset({1})):
        order = LookOrder(
            launch=launch, purpose=Purpose.RELEASE, floor_mtime_ns=0, given_out=given_out
        )
        bench.workshop.look(order)
        await bench.asker.wait()
    assert [look.released for look in bench.asker.looks] == [True, False]


@dataclass
class NotingSuspender:
    """Keeps the orders. A rank goes on record before it leaves."""

    own_only: str = ""
    why_not: str = ""
    orders: list[MoveOrder] = field(default_factory=list)

    def suspend(self, order: MoveOrder) -> Moved:
        self.orders.append(order)
        if not order.pids:
            raise NotOnRecord((11,), 5)
        return Moved(order.nbytes, 0.1)

    def resume(self, order: MoveOrder) -> Moved:
        self.orders.append(order)
        return Moved(0, 0.1)


async def moved(bench: Bench, launch: Launch, **changes: Any) -> MoveResult:
    still = FakeStandstill(FakeCheckpoints(), frozenset({11}))
    move = Move(launch=launch, still=still, held={}, **changes)
    bench.workshop.move(move)
    await bench.asker.wait()
    return bench.asker.moves[-1]


async def test_a_move_names_the_gpus_that_a_rank_left_and_those_that_it_gets(
    make_bench: MakeBench,
) -> None:
    bench = make_bench()
    bench.workshop.suspender = suspender = NotingSuspender()
    first, second = (device.uuid for device in bench.devices.devices())
    launch = a_launch(gpu_indexes=(0,))
    assert await moved(bench, launch, out=True) == MoveResult(found=(11,), nbytes=5)
    out = await moved(bench, launch, out=True, pids=(11,), nbytes=5)
    assert (out.nbytes, out.own_only) == (5, "")
    await moved(bench, launch, out=False, pids=(11,))
    await moved(bench, replace(launch, gpu_indexes=(1,)), out=False, pids=(11,), came_from=(0,))
    told = [(order.uuids, order.onto) for order in suspender.orders]
    assert told == [((first,), ())] * 3 + [((first,), (second,))]


@pytest.mark.parametrize("why", ["driver", "container", "slurm", "open"])
async def test_who_may_not_come_back_to_other_gpus(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """`open`: a program that it starts later could open the GPUs that it left."""
    bench = make_bench()
    bench.workshop.suspender = NotingSuspender(own_only="old" if why == "driver" else "")
    launch = a_launch(
        gpu_indexes=(0,),
        container=ContainerRequest(image="a") if why == "container" else None,
        compat="slurm" if why == "slurm" else "",
    )
    if why == "open":
        real = replace(bench.devices.devices()[0], virtual=False)
        monkeypatch.setattr(Launching, "devices_of", lambda self, launch: (real,))
    words = {
        "driver": "old",
        "container": "it is a container",
        "slurm": "it may start steps of Slurm's",
        "open": "jobs of its node are not kept from the GPUs of others",
    }
    assert (await moved(bench, launch, out=True, pids=(11,))).own_only == words[why]


async def test_only_the_gpus_of_the_rank_are_asked_about(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.devices.usages[bench.devices.devices()[1].uuid] = DeviceUsage(2**40, ())
    assert (await bench.look(a_launch(checkpoint_directory=""), Purpose.RELEASE)).released


async def test_a_gpu_that_does_not_answer_is_not_free(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.devices.broken[bench.devices.devices()[0].uuid] = "gpu_is_lost"
    look = await bench.look(a_launch(checkpoint_directory=""), Purpose.RELEASE)
    assert look.released is False
    assert "gpu_is_lost" in look.held_by


async def test_a_look_at_gpus_takes_a_thread_only_for_a_driver_that_may_hang(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []

    def noted(self: FakeDevices, uuid: str) -> DeviceUsage:
        threads.append(threading.current_thread() is not threading.main_thread())
        return DeviceUsage(0, ())

    monkeypatch.setattr(FakeDevices, "usage", noted)
    launch = a_launch(checkpoint_directory="", gpu_indexes=(0,))
    assert (await make_bench().look(launch, Purpose.RELEASE)).released
    real = replace(FakeDevices(parse_virtual("1xH100-80GB"), "n1").devices()[0], virtual=False)
    monkeypatch.setattr(Launching, "devices_of", lambda self, launch: (real,))
    assert (await make_bench().look(launch, Purpose.RELEASE)).released
    assert threads == [False, True]


async def test_an_errand_that_breaks_is_answered_all_the_same(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench()

    def broken(uuid: str) -> DeviceUsage:
        raise RuntimeError("the driver has gone mad")

    monkeypatch.setattr(FakeDevices, "usage", lambda self, uuid: broken(uuid))
    look = await bench.look(a_launch(checkpoint_directory=""), Purpose.RELEASE)
    assert look.released is False
    assert "gone mad" in look.held_by


async def test_what_is_on_the_gpus_the_devices_say(make_bench: MakeBench) -> None:
    """One is in use, and one does not answer: it is not told to be empty."""
    bench = make_bench()
    first, second, *rest = bench.devices.devices()
    bench.devices.usages[first.uuid] = DeviceUsage(8 * GIB, (DeviceProcess(4711, 8 * GIB),))
    bench.devices.broken[second.uuid] = "gpu_is_lost"
    bench.workshop.look_at_gpus(7)
    bench.workshop.look_at_gpus(8)  # while the first is under way nobody else goes
    await bench.asker.wait()
    empty = [GpuReading(device.index, 0, 0) for device in rest]
    assert bench.asker.at_gpus == [GpuLook(7, (GpuReading(0, 8 * GIB, 1), *empty))]
    bench.workshop.look_at_gpus(9)
    await bench.asker.wait()
    assert bench.asker.at_gpus[-1].number == 9


async def test_a_look_at_a_jobs_files_that_fails_keeps_no_gpu(
    make_bench: MakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise LookupError("unknown encoding: utf-32-be")

    monkeypatch.setattr("dlq_nodeagent.workshop.newest_checkpoint", fails)
    bench = make_bench()
    (tmp_path / "c").mkdir()
    launch = a_launch(checkpoint_directory=str(tmp_path / "c"))
    assert await bench.look(launch, Purpose.FINAL, settled=True) == Look()


async def test_a_look_at_traffic_is_answered_also_where_nothing_is_recorded(
    make_bench: MakeBench,
) -> None:
    bench = make_bench()
    bench.workshop.look_at_traffic(a_launch(), 0.0)
    await bench.asker.wait()
    assert bench.asker.traffic == [None]


async def test_a_closed_one_gives_no_answers(make_bench: MakeBench) -> None:
    bench = make_bench()
    asked = asyncio.create_task(bench.look(a_launch(), Purpose.RELEASE))
    await asyncio.sleep(0)  # the look is made at once, and its answer comes with the next turn
    bench.workshop.close()
    done, _ = await asyncio.wait([asked], timeout=0.05)
    asked.cancel()
    assert (done, bench.asker.looks) == (set(), [])
