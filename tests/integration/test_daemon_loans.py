"""The daemon and the simulator decide the same while servers are lent and asked back by a load: who
starts where, who leaves which server, who is shrunk, at the same instants."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlq_common.daemon.config import Seconds
from dlq_master.control.config import LoansConfig
from dlq_master.policy.reclaim.controller import Lender, Lending, follow
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import NodeGroup
from dlq_simulator.world.loans import LoanStep
from dlq_simulator.world.world import sizes_of
from support.extent import spread
from support.lending_daemon import LendingDaemon
from support.replays import a_config, compare, simulated
from support.stepped_daemon import VirtualJob

pytestmark = pytest.mark.integration

OWN, SERVERS = 3, 5  # of one GPU each, as in test_daemon_replays.py
HEADROOM, SETTLE_S, LOOK_S = 0.05, 1000.0, 600.0
# Of the inference side, from look to look: nights, and days that waver.
LOADS = (
    0.9,
    0.1,
    0.1,
    0.1,
    0.1,
    0.5,
    0.5,
    0.1,
    0.0,
    0.0,
    0.0,
    0.7,
    0.3,
    0.2,
    0.2,
    0.2,
    0.9,
) * 2 + (0.0,) * 3
FREE = {"save_s": "0", "resume_s": "0"}
CHOICES = [
    ("aryl", {}),
    ("dlq", {"cooldown_s": "300"}),
    ("dlq", {"cooldown_s": "300", "reclaim": "aryl"}),
]


def looks() -> list[tuple[float, float]]:
    return [(number * LOOK_S + 0.71, busy) for number, busy in enumerate(LOADS)]


def lent() -> list[LoanStep]:
    """What the controller of simulations makes of the load."""
    lender, lending, found = Lender(SERVERS, HEADROOM, SETTLE_S), Lending(), [LoanStep(0.0, 0)]
    for at_s, busy in looks():
        lending = follow(lending, lender, at_s, busy)
        if lending.lent != found[-1].servers:
            found.append(LoanStep(at_s, lending.lent))
    return found


def rows(jobs: int = 24) -> list[TraceJob]:
    """Half of them may run on as many GPUs as there are; the others take up to three."""
    found = []
    for number in range(jobs):
        stretched = number % 4 < 3
        gpus = 1 + number % (2 if stretched else 3)
        found.append(
            TraceJob(
                job_id=f"job-{number:02d}",
                submit_time_s=number * 613.3,
                num_gpus=gpus,
                duration_s=900.0 + 1294.0 * (number % 5) + number * 0.37,
                min_workers=gpus if stretched else None,
                max_workers=6 if stretched else None,
            )
        )
    return found


@pytest.mark.parametrize(("policy", "settings"), spread(CHOICES, 1))
async def test_the_daemon_lends_and_takes_back_as_the_simulator_does(
    policy: str, settings: dict[str, str], tmp_path: Path
) -> None:
    (chosen,) = read_settings([policy], [f"{key}={it}" for key, it in (settings | FREE).items()])
    servers = NodeGroup(name="server", count=SERVERS, gpus=1, lent=tuple(lent()))
    own = NodeGroup(name="own", count=OWN, gpus=1)
    expected = simulated(Trace.of("lent", rows()), chosen, own, servers)
    jobs = [
        VirtualJob(
            row.job_id, float(row.submit_time_s), row.num_gpus, float(row.duration_s), sizes=sizes_of(row),  # noqa: E501
        )
        for row in rows()
    ]  # fmt: skip
    follows = LoansConfig(
        load="a trace", headroom=HEADROOM, settle=Seconds(SETTLE_S), every=Seconds(LOOK_S)
    )
    names = [*own.each_node(), *servers.each_node()]
    async with LendingDaemon(
        tmp_path,
        a_config(policy, settings, chosen, follows),
        dict.fromkeys(names, 1),
        save_s=0.0,
        resume_s=0.0,
        servers=list(servers.each_node()),
        loads=looks(),
    ) as daemon:
        found = await daemon.replay(jobs)
        told = daemon.store.events(0, 100_000)
    hit = [event.data["action"] for event in told if event.kind == "job_reclaimed"]
    assert sum(event.kind == "server_returned" for event in told) >= 8, "or nothing was tried"
    assert "shrink" in hit
    assert hit.count("preempt") >= 4
    compare(found, expected)
