"""Goodput: the formulas of Pollux by hand, and that the six models tell what was recorded."""

from __future__ import annotations

import pytest

from dlq_simulator.world.goodput import (
    TrainedModel,
    best,
    efficiency,
    step_s,
    training_s,
    with_batch,
)
from dlq_simulator.world.goodput_models import MODELS

PLAIN = TrainedModel("plain", 0.1, 0.01, 0.4, 0.02, 0.2, 0.01, 1.0, 90.0, 10, 160, (5, 20), 1000)
# Steps of the whole training by batch, as the authors recorded them: a middle one, and the largest.
RECORDED = {
    "bert": ((96, 1885), (384, 480)),
    "cifar10": ((512, 10615), (4096, 2011)),
    "deepspeech2": ((160, 4041), (640, 1423)),
    "imagenet": ((1600, 78453), (12800, 14461)),
    "ncf": ((4096, 12172), (32768, 1548)),
    "yolov3": ((64, 14577), (512, 3143)),
}


def test_a_step_computes_and_synchronises_over_its_worst_link() -> None:
    assert step_s(PLAIN, 1, 1, 10, 0) == pytest.approx(0.2)
    assert step_s(PLAIN, 4, 1, 10, 0) == pytest.approx(0.2 + 0.2 + 2 * 0.01)
    assert step_s(PLAIN, 4, 2, 10, 0) == pytest.approx(0.2 + 0.4 + 2 * 0.02)
    assert step_s(PLAIN, 4, 2, 10, 3) == pytest.approx(4 * 0.2 + 0.4 + 2 * 0.02)


def test_computing_and_synchronising_overlap() -> None:
    half = PLAIN._replace(overlap=2.0)
    assert step_s(half, 2, 1, 10, 0) == pytest.approx((0.2**2 + 0.2**2) ** 0.5)
    assert step_s(PLAIN._replace(overlap=100.0), 2, 1, 40, 0) == pytest.approx(0.5, rel=1e-3)


def test_an_example_of_a_larger_batch_is_worth_less() -> None:
    assert efficiency(PLAIN, 10) == 1.0
    assert efficiency(PLAIN, 110) == pytest.approx(0.5)


def test_a_batch_is_shared_among_gpus_and_passes() -> None:
    two = with_batch(PLAIN, 2, 1, 60)  # 30 each, of which a GPU takes 20 at once
    assert (two.batch, two.passes) == (60, 1)
    assert two.goodput == pytest.approx(60 / (2 * 0.25 + 0.2) * 100 / 150)


def test_no_gpu_has_fewer_examples_than_the_least_and_gpus_beyond_do_nothing() -> None:
    assert with_batch(PLAIN, 8, 1, 10).batch == 40
    assert PLAIN.most_gpus == 32
    assert with_batch(PLAIN, 64, 8, 160) == with_batch(PLAIN, 32, 8, 160)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("gpus", [1, 2, 4, 8, 32])
def test_the_best_batch_is_no_worse_than_any_power_of_two(name: str, gpus: int) -> None:
    model, nodes = MODELS[name], -(-gpus // 4)
    least, most = max(model.batch, gpus * model.local[0]), model.most_batch
    tried = [least * 2**n for n in range(20) if least * 2**n <= most]
    others = [with_batch(model, gpus, nodes, batch).goodput for batch in tried]
    assert best(model, gpus, nodes).goodput >= 0.99 * max(others)


@pytest.mark.parametrize("name", MODELS)
def test_a_training_needs_the_recorded_steps(name: str) -> None:
    model, (middle, largest) = MODELS[name], RECORDED[name]
    for (batch, steps), off in ((middle, 0.04), (largest, 0.005)):
        examples = model.steps * model.batch / efficiency(model, batch)
        assert examples / batch == pytest.approx(steps, rel=off)


def test_a_training_takes_its_examples_over_its_goodput() -> None:
    assert training_s(PLAIN, 1, 1, 10) == pytest.approx(1000 * 0.2)
