"""The states of a rented machine, edge by edge."""

from __future__ import annotations

import pytest

from dlq_master.model.machines.rented import EDGES, OPEN, MachineState, moved
from dlq_master.model.transitions import IllegalStep
from support.stored_values import a_machine

PAIRS = [(state, target) for state in MachineState for target in MachineState]


@pytest.mark.parametrize(("state", "target"), PAIRS)
def test_a_machine_goes_where_the_table_says_and_nowhere_else(
    state: MachineState, target: MachineState
) -> None:
    machine = a_machine(state=state, tries=2, retry_s=7.0)
    if (state, target) not in EDGES:
        with pytest.raises(IllegalStep):
            moved(machine, target, 130.0)
        return
    after = moved(machine, target, 130.0, "no host")
    assert (after.state, after.since_s, after.fault) == (target, 130.0, "no host")
    assert (after.tries, after.retry_s) == (0, 0.0), "what is to be done now was not tried yet"
    assert after.up_s == (130.0 if target is MachineState.UP else None)
    assert after.end_s == (None if target in OPEN else 130.0), "it is paid until it is gone"


def test_every_machine_can_come_to_an_end_and_none_comes_back() -> None:
    assert {state for state, _ in EDGES} == OPEN
    for state in OPEN:
        reached = {state}
        for _ in MachineState:
            reached |= {target for source, target in EDGES if source in reached}
        assert reached >= {MachineState.AWAY, MachineState.FAILED}


def test_who_causes_an_edge_is_said() -> None:
    assert all(EDGES.values())
