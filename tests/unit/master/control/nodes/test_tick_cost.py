"""What a tick of a quiet cluster makes the master do, in calls of functions: it does not grow with
the nodes, nor with the jobs that run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dlq_common.daemon.config import Seconds
from dlq_master.control.config import JobsConfig, MasterConfig, NodesConfig, SchedulerConfig
from dlq_master.control.loop.inbox import Envelope
from dlq_master.control.stimuli import Tick
from dlq_master.model.ids import NodeId
from support.counted_calls import counted_calls
from support.master_harness import Master
from support.sim_agent import SimAgent

FEW, MANY = 10, 100
CONFIG = MasterConfig(
    scheduler=SchedulerConfig("fifo", {}),
    nodes=NodesConfig(start_grace=Seconds(0.0)),
    jobs=JobsConfig(queued_per_user=100_000, submit_burst=100_000),
)


def tick_calls(master: Master, nodes: int) -> int:
    """All calls of a tick with so many nodes that run one job each, with a time limit."""
    for number in range(nodes):
        agent = SimAgent(master, NodeId(f"gpu{number:03d}"), gpus=1)
        agent.hello()
        master.submit(1, time_limit_s=7200.0, run_estimate_s=3600.0)
        agent.obey()
    master.clock.advance(1.0)
    master.tick()  # all that is new has been looked at
    master.clock.advance(1.0)
    tasks = asyncio.new_event_loop()
    with counted_calls() as calls:
        tasks.run_until_complete(master.loop.turn([Envelope(Tick("leases"), None)]))
    tasks.close()
    assert len(master.state.cluster.attempts) == nodes
    return sum(calls.values())


def test_a_tick_costs_the_same_however_many_nodes_and_jobs_there_are(
    masters: Callable[..., Master],
) -> None:
    few, many = tick_calls(masters(CONFIG), FEW), tick_calls(masters(CONFIG), MANY)
    # Trials look at 500 attempts at most in one tick, with one call for each here.
    assert many - few <= MANY - FEW
