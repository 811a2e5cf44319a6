"""A job at work on agents of the tests."""

from __future__ import annotations

from typing import Any

from dlq_master.model.ids import AttemptKey
from support.master_harness import Master
from support.sim_agent import SimAgent


def running(master: Master, *agents: SimAgent, gpus: int = 4, **more: Any) -> AttemptKey:
    """It runs on these agents, on so many GPUs of each."""
    job_id = master.submit(
        gpus * len(agents), nodes=len(agents) if len(agents) > 1 else None, **more
    ).job_id
    key = AttemptKey(job_id, 1)
    for agent in agents:
        agent.obey()
        agent.start(key)
        agent.report()
    assert master.attempt(job_id).state == "running"
    return key
