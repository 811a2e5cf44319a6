"""What is kept of rented machines tells the same as a walk over all that ever were."""

from __future__ import annotations

from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.control.machines.state import FIRST_REST_S, LONGEST_REST_S, MachinesState
from dlq_master.model.ids import NodeId
from dlq_master.model.machines.fleet import DAY_S, MOST_TOLD, Fleet
from dlq_master.model.machines.rented import Machine, MachineState, moved
from support.extent import times

UP, DRAINING, STOPPING = MachineState.UP, MachineState.DRAINING, MachineState.STOPPING
STEPS = {MachineState.STARTING: (UP, STOPPING), UP: (DRAINING, STOPPING), DRAINING: (STOPPING,)}


def ended(number: int, at_s: float, *, failed: bool = False, pool: str = "spot") -> Machine:
    """One that was there for an hour, at 2 an hour."""
    name = f"{pool}-{number}"
    made = Machine(name, pool, NodeId(name), 2.0, at_s - 3600.0, failed=failed)
    target = MachineState.FAILED if failed else MachineState.AWAY
    return moved(moved(made, STOPPING, at_s), target, at_s)


def plain_rest_s(machines: list[Machine], pool: str) -> float:
    """Until when a pool rests, of all that ever were."""

    def over_s(one: Machine) -> float:
        return one.since_s if one.end_s is None else one.end_s

    over = [one for one in machines if one.pool == pool and (not one.open or one.failed)]
    over.sort(key=over_s, reverse=True)
    failures = len(list(takewhile(lambda one: one.failed, over)))
    if not failures:
        return 0.0
    return over_s(over[0]) + min(FIRST_REST_S * 2.0 ** (failures - 1), LONGEST_REST_S)


@settings(max_examples=times(60, 1500))
@given(data=st.data())
def test_what_is_kept_says_what_all_say(data: st.DataObject) -> None:
    fleet, every, now_s = Fleet(most_ended=3), dict[str, Machine](), 0.0
    for number in range(data.draw(st.integers(1, 25))):
        now_s += data.draw(st.sampled_from([1.0, 100.0, 9000.0, DAY_S]))
        here = [one for one in every.values() if one.open]
        one = data.draw(st.sampled_from([None, *here]))
        if one is None:
            pool, host = data.draw(st.sampled_from(["a", "b"])), data.draw(st.integers(0, 2))
            taken = {one.node_id for one in here}
            node_id = NodeId(f"h{host}" if f"h{host}" not in taken else f"m{number}")
            one = Machine(f"{pool}-{number}", pool, node_id, 1.0, now_s, 600.0, since_s=now_s)
        elif one.state is STOPPING:
            one = moved(one, MachineState.FAILED if one.failed else MachineState.AWAY, now_s)
        else:
            failed = one.failed or data.draw(st.booleans())
            target = data.draw(st.sampled_from(STEPS[one.state]))
            one = moved(one._replace(failed=failed), target, now_s)
        every[one.request_id] = one
        fleet.put(one)
        _same(fleet, list(every.values()), now_s)
    _same(Fleet(every.values(), most_ended=3), list(every.values()), now_s)


def _same(fleet: Fleet, every: list[Machine], now_s: float) -> None:
    here = [one for one in every if one.open]
    assert sorted(fleet.open()) == sorted(here)
    for node_id in {one.node_id for one in every}:
        assert fleet.of_node(node_id) == next((it for it in here if it.node_id == node_id), None)
    day = [one for one in every if one.end_s is None or one.end_s > now_s - DAY_S]
    assert fleet.day_cost(now_s) == pytest.approx(sum(one.cost(now_s) for one in day))
    gone = sorted((one for one in every if not one.open), key=lambda one: one.end_s or 0.0)
    assert {*gone[-3:], *here} <= {*fleet.values()}
    for pool in ("a", "b"):
        assert MachinesState(fleet).rests_until_s(pool) == plain_rest_s(every, pool)
        ends = [one.end_s for one in gone if one.pool == pool and one.end_s is not None]
        assert fleet.last_end_s(pool) == max(ends, default=-float("inf"))


def test_of_those_that_are_over_the_last_are_kept_and_all_of_a_day() -> None:
    fleet = Fleet((ended(n, n * DAY_S / 4) for n in range(40)), most_ended=2)
    assert len(fleet) == 4
    assert "spot-35" not in fleet
    assert fleet.last_of_node(NodeId("spot-35")) is None
    assert fleet.day_cost(39 * DAY_S / 4) == 8.0, "the one that ended a day ago is of that no more"
    assert len(Fleet((ended(n, n * DAY_S) for n in range(40)), most_ended=2)) == 2


def test_a_pool_that_has_failed_for_weeks_rests_for_an_hour() -> None:
    fleet = Fleet(ended(n, n * 3600.0, failed=True) for n in range(2000))
    assert fleet.failures("spot")[0] == MOST_TOLD
    assert MachinesState(fleet).rests_until_s("spot") == 1999 * 3600.0 + LONGEST_REST_S


def test_a_host_is_the_machine_that_was_rented_last() -> None:
    host = NodeId("gpu07")
    fleet = Fleet([ended(1, 5000.0)._replace(node_id=host)])
    assert (fleet.of_node(host), fleet.last_of_node(host)) == (None, fleet["spot-1"])
    fleet.put(Machine("spot-2", "spot", host, 1.0, 6000.0))
    assert fleet.of_node(host) == fleet["spot-2"]
