"""A large cluster's runs are looked at in turn: a tick has a bound, and nobody is left out."""

from __future__ import annotations

from collections.abc import Callable

from dlq_master.control.stimuli import Tick
from dlq_master.control.trials.trials import AT_ONCE
from dlq_master.model.ids import NodeId
from support.counted_calls import counted_calls
from support.master_harness import Master
from support.sim_agent import SimAgent

RUNS = AT_ONCE + 24


def test_the_runs_of_a_large_cluster_are_looked_at_in_turn(
    masters: Callable[..., Master],
) -> None:
    master = masters()
    SimAgent(master, NodeId("gpu00"), gpus=RUNS).hello()
    master.turn(*(master.submission() for _ in range(RUNS)))
    assert len(master.state.cluster.attempts) == RUNS

    places = []
    for _ in range(2):
        with counted_calls() as calls:
            master.turn(Tick("leases"))
        assert calls["control/trials/trials.py:_watch"] == AT_ONCE
        places.append(master.state.trials.next_look)
    assert places == [AT_ONCE, 2 * AT_ONCE], "the second look begins where the first one ended"
