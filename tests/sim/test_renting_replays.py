"""The master and the simulator rent the same: same machines, same starts and ends, at the same
instants.

The master is real, but for sockets and disks; its agents and its provider are fakes. Nobody is
stopped for others, so that nothing but renting decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from dlq_common.daemon.config import Seconds
from dlq_master.control.pool_config import PoolConfig, RentingConfig
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import AttemptKey, JobId
from dlq_simulator.replay.engine import Replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup, RentingSpec
from support.lent_servers import Server
from support.rented import HOUR_S, SPOT, RentedHost, Site

POOL = replace(SPOT, boot=Seconds(60.0), minimum_billing=Seconds(600.0))
# (submit, GPUs, run time, due from the submit, cost of an hour late): the first two fill the own
# node.
ROWS = [
    (0, 2, 3000, 9000, 1.0),
    (0, 2, 4000, 9000, 1.0),
    (20, 4, 500, 900, 300.0),  # a machine is worth it
    (40, 2, 300, 9000, 100.0),  # in time on the own node, later
    (60, 2, 400, 800, 100.0),  # shares a machine with the next
    (60, 2, 450, 900, 100.0),
    (200, 4, 200, 300, 200.0),  # there is no third machine: it waits for one of them
    (900, 1, 100, 120, 90.0),  # goes to what is paid
    (1500, 4, 600, 700, 200.0),  # all have gone by now: another one
    (1600, 4, 100, 100, 0.5),  # late for less than a machine costs
]


@dataclass
class Driven:
    """A master, with agents that run each job as long as it takes."""

    site: Site
    zero_s: float = 0.0
    submitted: dict[JobId, tuple[int, int, int, int, float]] = field(default_factory=dict)
    ends: dict[AttemptKey, tuple[Server, int]] = field(default_factory=dict)
    seen: dict[int, tuple[float, float, str]] = field(default_factory=dict)

    @property
    def agents(self) -> list[Server]:
        assert self.site.own is not None
        return [self.site.own, *self.site.hosts.values()]

    def run(self) -> dict[int, tuple[float, float, str]]:
        """By row: when it began and ended, and where: `own`, or a pool."""
        self.zero_s = self.site.master.clock.now_s()
        rows = list(enumerate(ROWS))
        while len(self.seen) < len(ROWS):
            now_s = round(self.site.master.clock.now_s() - self.zero_s)
            assert now_s < 20_000, "it comes to an end"
            for agent in self.agents:
                if agent.node_id in self.site.master.state.cluster.nodes:
                    agent.heartbeat()
            self._finish(now_s)
            while rows and rows[0][1][0] <= now_s:
                number, (_, gpus, lasts, due, weight) = rows.pop(0)
                job_id = self.site.submit(
                    gpus, due_s=due, weight=weight, lasts_s=lasts, request_id=f"r{number}"
                )
                self.submitted[job_id] = ROWS[number]
            self._boot()
            for look in range(4):  # a machine that is given back is asked, empty, stopped and gone
                self.site.tick(0.0)
                self._begin(now_s)
                leaving = [
                    one
                    for one in self.site.machines().values()
                    if one.state in ("draining", "stopping")
                ]
                if (
                    look and not leaving
                ):  # who has come is up with the first, and used with the second
                    break
            self.site.master.clock.advance(self._next_s(now_s) - now_s)
        return self.seen

    def _next_s(self, now_s: int) -> int:
        """When something happens: who submits, ends, has booted, or has been paid for."""
        machines = [round(one.asked_s - self.zero_s) for one in self.site.machines().values()]
        later = [asked_s + more for asked_s in machines for more in (60, 595)]
        later += [submit for submit, *_ in ROWS] + [end_s for _, end_s in self.ends.values()]
        return min((at_s for at_s in later if at_s > now_s), default=now_s + 1)

    def _boot(self) -> None:
        now_s = self.site.master.clock.now_s()
        for machine in list(self.site.machines().values()):
            due = machine.state == "starting" and now_s >= machine.asked_s + POOL.boot
            if due and machine.node_id not in self.site.hosts:
                host = RentedHost(
                    self.site.master,
                    machine.node_id,
                    pool_name=machine.pool,
                    instance_id=machine.instance_id,
                )
                host.hello()
                self.site.hosts[machine.node_id] = host

    def _begin(self, now_s: int) -> None:
        for agent in self.agents:
            if agent.node_id not in self.site.master.state.cluster.nodes:
                continue
            agent.answer()
            for key in self.site.master.state.cluster.attempts_on(agent.node_id):
                if key not in self.ends:
                    agent.start(key)
                    agent.report()
                    attempt = self.site.master.attempt(key.job_id)
                    assert attempt.state is AttemptState.RUNNING
                    self.ends[key] = (agent, now_s + self.submitted[key.job_id][2])

    def _finish(self, now_s: int) -> None:
        for key, (agent, end_s) in list(self.ends.items()):
            number = list(self.submitted).index(key.job_id)
            if end_s <= now_s and number not in self.seen:
                lasts = self.submitted[key.job_id][2]
                where = "own" if agent is self.site.own else "spot"
                self.seen[number] = (end_s - lasts, end_s, where)
                agent.exit(key, 0)
                agent.report()


def replayed(policy: str) -> Replay:
    """The same in the simulator."""
    group = NodeGroup(name="own01", count=1, gpus=4, gpu_type="H100")
    spot = NodeGroup(
        name="spot",
        count=0,
        gpus=POOL.gpus,
        gpu_type="H100",
        price_per_hour=POOL.price_per_hour,
        boot_s=60,
        minimum_billing_s=600,
        at_most=POOL.most,
    )
    spec = ClusterSpec(
        name="c", groups=(group,), catalogue=(spot,), renting=RentingSpec(policy=policy)
    )
    (chosen,) = read_settings(["srtf"], ["know=known", "min_run=100000"])
    jobs = [
        TraceJob(job_id=f"j{number}", submit_time_s=submit, num_gpus=gpus, duration_s=lasts, due_s=due, weight=weight / HOUR_S)  # noqa: E501
        for number, (submit, gpus, lasts, due, weight) in enumerate(ROWS)
    ]  # fmt: skip
    run = Replay(Trace.of("t", jobs), spec, chosen)
    run.run()
    return run


@pytest.mark.parametrize("policy", ["dlq", "gpuaas-greedy"])
def test_the_master_rents_what_the_simulator_rents(policy: str) -> None:
    expected = replayed(policy)
    pool: PoolConfig = POOL
    site = Site(pool, own=4, policy="srtf", renting=RentingConfig(policy=policy), min_run="100000")
    driven = Driven(site)
    found = driven.run()
    assert expected.beside is not None
    held = expected.beside.machines.held_gpu_s
    wanted = {
        number - 1: (one.start_s, one.finish_s, "spot" if number in held else "own")
        for number, one in expected.outcomes.items()
    }
    assert dict(sorted(found.items())) == dict(sorted(wanted.items()))
    assert {where for _, _, where in found.values()} == {"own", "spot"}
    theirs = [
        (
            one.asked_s - driven.zero_s,
            (one.up_s or 0.0) - driven.zero_s,
            (one.end_s or 0.0) - driven.zero_s,
        )
        for one in site.machines().values()
        if not one.open
    ]
    ours = [
        (one.asked_s, one.up_s, one.end_s)
        for one in expected.beside.machines.every.values()
        if not one.open
    ]
    assert len(theirs) == len(ours) >= 3
    for (asked, up, gone), (asked_s, up_s, end_s) in zip(sorted(theirs), sorted(ours), strict=True):
        assert (round(asked), round(up)) == (asked_s, up_s)
        assert end_s is not None
        assert gone == end_s
