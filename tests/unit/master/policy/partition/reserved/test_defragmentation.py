"""Who goes elsewhere when a slot begins, so that everybody whose slot it is finds room. Nodes have
8 GPUs.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band, Segment
from dlq_master.model.jobs.reward import strict
from dlq_master.policy.partition.reserved.defragmentation import movers
from dlq_master.policy.partition.reserved.slot_holders import SlotHolder
from dlq_master.policy.place.packing.joint import round_up
from support.builders import H100, World, a_job, a_node, a_waiting_job, an_attempt


def a_world(*held: tuple[int, ...]) -> World:
    """One node for each tuple, on which seated jobs run that are so wide, one beside the other."""
    world = World("chronus-paper", [a_node(f"n{at + 1:02}") for at in range(len(held))])
    world.cluster.slot = 0
    number = 0
    for at, widths in enumerate(held):
        begin = 0
        for gpus in widths:
            number += 1
            fields = {
                "steps": strict(1e6), "promised": 0, "verdict": "holes", "band": Band.SLO,
                "slots": (Segment(0, 9),), "duration_estimate_s": 9000.0,
            }  # fmt: skip
            mask = ((1 << gpus) - 1) << begin
            begin += gpus
            attempt = an_attempt(number, slots=((f"n{at + 1:02}", mask),))
            job = a_waiting_job(number, gpus, **fields)
            world.cluster.put_job(job._replace(queued_since_s=None, live_attempt=1, attempts=1))
            world.cluster.put_attempt(attempt)
    world.cluster.capacity.ready()
    return world


def seats(*widths: int) -> list[SlotHolder]:
    """Who waits for its seat; their numbers begin with 100."""
    jobs = [a_job(100 + at, gpus) for at, gpus in enumerate(sorted(widths, reverse=True))]
    return [
        SlotHolder(job.job_id, job.request.shape, job.request.shape, leaving=False) for job in jobs
    ]


def moved(
    world: World, waiting: list[SlotHolder], fixed: frozenset[int] = frozenset()
) -> list[int]:
    keys = list(world.cluster.attempts)
    found = movers(world.cluster, H100, waiting, keys, lambda job_id: job_id not in fixed)
    return sorted(key.job_id for key in found)


def test_where_there_is_room_nobody_moves() -> None:
    assert moved(a_world((4,), (4,), ()), seats(8, 4, 4)) == []


def test_two_halves_make_a_whole() -> None:
    assert moved(a_world((4,), (4,)), seats(8)) in ([1], [2])


def test_the_fewest_gpus_move() -> None:
    assert moved(a_world((4,), (2,), (4,)), seats(8)) == [2]


def test_who_may_not_pause_stays() -> None:
    assert moved(a_world((4,), (2,), (4,)), seats(8), fixed=frozenset({2})) in ([1], [3])


def test_who_moves_wants_a_block_itself() -> None:
    # Of 6 free GPUs in blocks of 2 none is a block of 4: a job of 2 goes to another of these.
    assert moved(a_world((2, 4), (2, 4), (2, 4)), seats(4)) in ([1], [3], [5])


def test_whole_nodes_are_held_by_nobody_else() -> None:
    assert moved(a_world((1,), (1,), (1,), ()), seats(16)) in ([1], [2], [3])


def test_nobody_moves_where_nodes_are_not_powers_of_two() -> None:
    world = World("chronus-paper", [a_node("n1", 6), a_node("n2", 6)])
    world.cluster.capacity.ready()
    assert moved(world, seats(4, 4, 4)) == []


NODES = st.lists(
    st.lists(st.sampled_from([1, 1, 2, 3, 4, 5]), max_size=4)
    .map(tuple)
    .filter(lambda widths: sum(widths) <= 8),
    min_size=1,
    max_size=6,
)  # fmt: skip


@given(
    held=NODES, wanted=st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16]), min_size=1, max_size=8)
)
def test_whoever_fits_by_the_numbers_fits_after_the_moves(
    held: list[tuple[int, ...]], wanted: list[int]
) -> None:
    """Rounded widths of all within the GPUs of all nodes: placed the widest first, everybody has
    room.
    """
    rounded = [round_up(gpus) for gpus in (*wanted, *(g for node in held for g in node))]
    if sum(rounded) > 8 * len(held):
        return
    world = a_world(*held)
    gone = {JobId(job_id) for job_id in moved(world, seats(*wanted))}
    left = [8] * len(held)
    homeless = list(wanted)
    number = 0
    for at, widths in enumerate(held):
        for gpus in widths:
            number += 1
            if number in gone:
                homeless.append(gpus)
            else:
                left[at] -= gpus
    for gpus in sorted(homeless, reverse=True):
        while gpus >= 8:
            left.remove(8)
            gpus -= 8
        if gpus:
            at = min((at for at, free in enumerate(left) if free >= gpus), key=left.__getitem__)
            left[at] -= gpus
