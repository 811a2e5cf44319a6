"""Ids, requests, allocations and grace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.attempts.grace import grace_s, percentile_95, work_at_risk_s
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import Checkpoint, RunRules
from dlq_master.model.lease import Terms
from dlq_master.model.nodes.free_gpus import lowest
from dlq_master.model.nodes.node import NodeState, frozen
from dlq_master.model.nodes.node_steps import due_event
from dlq_master.model.resources import Request, Shape, indices, mask_of
from dlq_master.model.values import Alike
from support.builders import a_node, an_allocation, an_attempt


@given(st.integers(1, 10**9), st.integers(1, 10**6))
def test_an_attempt_key_reads_back_what_it_writes(job: int, number: int) -> None:
    key = AttemptKey(JobId(job), number)
    assert AttemptKey.parse(str(key)) == key


@pytest.mark.parametrize("text", ["", "17", "17.", ".2", "17.2.3", "a.b", "-1.2", "1.٣", "1 .2"])
def test_what_is_no_attempt_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an attempt key"):
        AttemptKey.parse(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"gpus": 0},
        {"gpus": -1},
        {"gpus": 8, "nodes": 3},
        {"gpus": 8, "nodes": 0},
        {"gpus": 1, "cpus_per_node": 0},
        {"gpus": 1, "memory_bytes_per_node": -5},
    ],
)
def test_a_request_that_makes_no_sense_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"GPU|positive"):
        Request(**fields)  # type: ignore[arg-type]


def test_jobs_that_declare_the_same_limits_are_of_one_shape() -> None:
    assert Request(gpus=4).shape == Shape(4, None, None)
    assert Request(gpus=4, cpus_per_node=8).shape == Request(gpus=4, cpus_per_node=8).shape
    assert Request(gpus=4, cpus_per_node=8).shape != Request(gpus=4).shape


@given(st.sets(st.integers(0, 70)))
def test_masks_and_indices_are_two_spellings_of_one_thing(members: set[int]) -> None:
    assert list(indices(mask_of(list(members)))) == sorted(members)


@given(st.integers(1, (1 << 20) - 1), st.data())
def test_the_lowest_gpus_of_a_mask(mask: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, mask.bit_count()))
    assert list(indices(lowest(mask, count))) == list(indices(mask))[:count]


def test_allocations_overlap_only_where_they_share_a_gpu() -> None:
    one = an_allocation(("n1", 0b0011), ("n2", 0b0011))
    assert one.width == 4
    assert one.node_ids == ("n1", "n2")
    assert one.overlaps(an_allocation(("n2", 0b0110)))
    assert not one.overlaps(an_allocation(("n1", 0b1100), ("n3", 0b0011)))


@pytest.mark.parametrize(
    ("saves", "expected"),
    [((), 300.0), ((10.0,), 60.0), ((100.0,), 165.0), ((1000.0,), 600.0)],
)
def test_grace_is_learned_and_clamped(saves: tuple[float, ...], expected: float) -> None:
    assert grace_s(saves, RunRules()) == expected


def test_the_spec_may_lower_the_cap_of_the_grace() -> None:
    assert grace_s((1000.0,), RunRules(grace_cap_s=120.0)) == 120.0
    assert grace_s((), RunRules(first_grace_s=900.0, grace_cap_s=400.0)) == 400.0


def test_the_95th_percentile_interpolates() -> None:
    assert percentile_95((3.0,)) == 3.0
    assert percentile_95(tuple(float(n) for n in range(21))) == 19.0


def test_work_at_risk_is_what_the_last_checkpoint_does_not_hold() -> None:
    attempt = an_attempt()
    assert work_at_risk_s(attempt, 50.0) == 0.0
    running = attempt._replace(started_time_s=10.0)
    assert work_at_risk_s(running, 50.0) == 40.0
    saved = running._replace(checkpoint=Checkpoint("/c", 1, 45.0, 1))
    assert work_at_risk_s(saved, 50.0) == 5.0


def test_silence_makes_a_node_suspect_and_then_unreachable() -> None:
    terms = Terms()
    assert due_event(NodeState.UP, 19.9, terms) is None
    assert type(due_event(NodeState.UP, 20.0, terms)).__name__ == "Missed"
    assert due_event(NodeState.SUSPECT, 24.9, terms) is None
    assert type(due_event(NodeState.SUSPECT, 25.0, terms)).__name__ == "Vanished"


@pytest.mark.parametrize(
    ("nodes", "vanished_at", "lag_s", "expected"),
    [
        (10, [100.0, 101.0], 0.0, False),  # two are too few, whatever their share
        (10, [100.0, 101.0, 102.0], 0.0, True),
        (15, [100.0, 101.0, 102.0], 0.0, False),  # 20 % is not more than 20 %
        (10, [100.0, 101.0, 161.0], 0.0, False),  # not within one window
        (10, [], 5.1, True),  # we are the slow ones
        (3, [100.0, 100.0, 100.0], 0.0, True),
    ],
)
def test_mass_loss_freezes_requeues(
    nodes: int, vanished_at: list[float], lag_s: float, expected: bool
) -> None:
    gone = [
        a_node(f"g{i}", state=NodeState.UNREACHABLE, vanished_time_s=at_s)
        for i, at_s in enumerate(vanished_at)
    ]
    there = [a_node(f"u{i}") for i in range(nodes - len(gone))]
    assert frozen([*gone, *there], 170.0, Terms(), lag_s) is expected


def test_a_freeze_has_an_end() -> None:
    gone = [
        a_node(f"g{number}", state=NodeState.UNREACHABLE, vanished_time_s=100.0 + number)
        for number in range(3)
    ]
    terms = Terms(freeze_longest_s=7_200.0)
    assert frozen(gone, 100.0 + 7_199.0, terms)
    assert not frozen(gone, 100.0 + 7_200.0, terms), "the first of them counts no more"


def test_equal_values_are_one_object_until_there_are_too_many() -> None:
    alike: Alike[tuple[int, ...]] = Alike(most=2)
    made = tuple[int, ...]  # a value of its own at each call, not a constant
    first = alike.one(made([1, 2]))
    assert alike.one(made([1, 2])) is first
    assert alike.one((3,)) == (3,)
    assert alike.one((4,)) == (4,)
    assert alike.one(made([1, 2])) is not first, "it has begun anew"
