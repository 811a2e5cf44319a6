"""Path relinking: moves, two steps deep, towards the target, and never for the worse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlq_master.policy.priced.greedy import greedy as methods
from dlq_master.policy.priced.greedy.batch import ScheduleRows
from dlq_master.policy.priced.greedy.construct import construct
from dlq_master.policy.priced.greedy.greedy import PATH_RELINKING, path_relinking
from dlq_master.policy.priced.greedy.mutable import Mutable, ScheduleShape
from dlq_master.policy.priced.greedy.postprocess import give_idle
from dlq_master.policy.priced.greedy.proxy import score
from dlq_master.policy.priced.greedy.relink import relink
from dlq_master.policy.priced.rules import Proxy, Rules
from dlq_master.policy.priced.situation import Situation
from support.extent import times
from unit.master.policy.priced.drawing import chance, drawn, job, situation

WIDE = Rules(proxy=Proxy.EFFICIENCY, alpha=0.5, iterations=20)


def made(asked: Situation, rules: Rules) -> ScheduleRows:
    batch = construct(asked, rules, chance())
    give_idle(batch)
    return batch


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(2, 12),
    proxy=st.sampled_from(list(Proxy)),
    moves=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=12),
)
@settings(max_examples=times(20, 60))
def test_moves_are_kept_in_the_books_and_taken_back(
    seed: int, count: int, proxy: Proxy, moves: list[tuple[int, int]]
) -> None:
    asked = drawn(seed, count, 3)
    rules = WIDE._replace(proxy=proxy)
    batch = made(asked, rules)
    scores = score(batch, rules)
    mutable = Mutable(batch, 0, rules)
    assert mutable.score == pytest.approx(scores[0])
    done = []
    for at, row in moves:
        number = at % count
        shape = Mutable(batch, row % 20, rules).shape(number)
        node = mutable.fits(number, shape)
        if node is None:
            continue
        before = mutable.score
        gained = mutable.gain(number, node, shape)
        assert mutable.score == pytest.approx(before), "gain changed something"
        found, undo = mutable.move(number, node, shape)
        assert found == gained == pytest.approx(mutable.score - before, rel=1e-6, abs=1e-6)
        done.append(undo)
    for undo in reversed(done):
        mutable.undo(undo)
    assert mutable.score == pytest.approx(scores[0])
    assert mutable.into(batch).schedule(0) == batch.schedule(0)


# In these the moves ran out between a costly move and the one that it was made for.
@example(seed=329)
@example(seed=24383)
@example(seed=47135)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=times(15, 40))
def test_relinking_never_makes_the_schedule_worse_and_gets_no_further_than_its_moves(
    seed: int,
) -> None:
    asked = drawn(seed, 14, 3)
    batch = made(asked, WIDE)
    scores = score(batch, WIDE)
    best, *others = methods._elite(scores, 10)
    source = Mutable(batch, best, WIDE)
    before = source.score
    relink(source, [Mutable(batch, row, WIDE) for row in others], 3)
    assert source.score >= before - 1e-9 * abs(before)


def test_it_really_moves_and_improves() -> None:
    gains = 0
    for seed in range(12):
        asked = drawn(seed, 14, 3)
        batch = made(asked, WIDE)
        scores = score(batch, WIDE)
        found = path_relinking(asked, chance(), WIDE)
        best = batch.schedule(int(np.argmax(scores)))
        gains += found != best
    assert gains >= 6


def test_one_elite_schedule_leaves_nothing_to_relink() -> None:
    asked = drawn(3, 14, 3)
    one = PATH_RELINKING._replace(iterations=20, alpha=0.5, elite=1)
    assert path_relinking(asked, chance(), one) == methods.randomized(asked, chance(), one)


def halves(asked: Situation, node: list[int]) -> Mutable:
    """Everybody has 2 GPUs; -1: it waits."""
    batch = ScheduleRows.empty(asked, 1)
    for number, at in enumerate(node):
        if at >= 0:
            batch.node[0, number], batch.gpus[0, number] = at, 2
            batch.kind[0, at] = 0
            batch.used[0, at] += 2
    return Mutable(batch, 0, Rules(proxy=Proxy.COST, mu=0))


def test_a_move_that_pays_only_with_the_next_one_is_made() -> None:
    """Job 0 has to leave, at a loss, before job 1, which is dear to keep waiting, finds room."""
    cheap = job(0, 1e9, 100, 60, 50, 45)
    dear = job(1, 0, 100, 60, 50, 45, weight=50.0)
    other = job(2, 0, 100, 60, 50, 45, weight=50.0)
    asked = situation(cheap._replace(due_s=-500.0, weight=0.1), dear, other, nodes=1)
    source, target = halves(asked, [0, -1, 0]), halves(asked, [-1, 0, 0])
    assert source.gain(0, -1, None) < 0
    assert source.fits(1, ScheduleShape(0, 2, 4)) is None
    assert relink(source, [target], 5) == 2
    assert source.node == [-1, 0, 0]


def test_nodes_that_are_only_numbered_otherwise_are_no_move() -> None:
    asked = situation(*(job(n, 90, 100, 60, 50, 45) for n in range(3)))
    source, target = halves(asked, [0, 0, 1]), halves(asked, [1, 1, 0])
    assert relink(source, [target], 5) == 0
