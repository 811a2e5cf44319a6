"""Run times learned from history: features, forward selection, error on what was not seen."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dlq_master.policy.priced.performance import Feature, PastRun, features, fit
from unit.master.policy.priced.drawing import chance


def history(seed: int, count: int, noise: float = 0.0) -> list[PastRun]:
    """t = (iterations x batch) / (GFLOPS x GPUs) x 5, and 20 us for each iteration to talk."""
    draw = random.Random(seed)
    runs = []
    for _ in range(count):
        numbers = {
            "iterations": draw.uniform(1e3, 1e5),
            "batch": float(draw.choice([16, 32, 64, 128])),
            "gpus": float(draw.choice([1, 2, 4, 8])),
            "gflops": float(draw.choice([2910, 4825])),
            "disk_s": draw.uniform(20, 200),
        }
        work = numbers["iterations"] / numbers["gpus"]
        time_s = 40.0 + 0.03 * work + 0.002 * numbers["iterations"]
        runs.append(PastRun(numbers, time_s * float(np.exp(draw.gauss(0, noise)))))
    return runs


def in_words(feature: Feature) -> str:
    return " * ".join(name if power > 0 else f"1/{name}" for name, power in feature.factors)


def test_the_extended_set_has_numbers_inverses_and_products() -> None:
    found = [in_words(feature) for feature in features(["a", "b"])]
    assert found[:4] == ["a", "1/a", "b", "1/b"]
    assert "a * 1/b" in found
    assert "1/a * 1/a" in found
    assert "a * 1/a" not in found
    assert len(found) == len(set(found)) == 4 + 8


def test_a_law_within_the_set_is_found_and_foretells_what_was_not_seen() -> None:
    model = fit(history(1, 120), chance())
    assert in_words(model.features[0]) in ("gpus * 1/iterations", "1/gpus * iterations")
    assert model.error < 0.01
    for run in history(2, 40):
        assert model.time_s(run.numbers) == pytest.approx(run.time_s, rel=0.02)


def test_the_error_told_is_the_error_on_unseen_runs() -> None:
    model = fit(history(1, 200, noise=0.1), chance())
    unseen = history(3, 300, noise=0.1)
    real = np.mean([abs(model.time_s(run.numbers) - run.time_s) / run.time_s for run in unseen])
    assert model.error == pytest.approx(0.08, abs=0.02)
    assert real == pytest.approx(model.error, abs=0.015)


def test_noise_adds_no_crowd_of_features() -> None:
    assert len(fit(history(1, 200, noise=0.1), chance()).features) <= 4


def test_the_same_seed_deals_the_same_folds() -> None:
    runs = history(1, 60, noise=0.2)
    assert fit(runs, chance(4)) == fit(runs, chance(4))


def test_no_estimate_is_negative() -> None:
    model = fit(history(1, 60), chance())
    tiny = dict.fromkeys(history(1, 1)[0].numbers, 1e-09) | {"gpus": 1e9}
    assert model.time_s(tiny) >= model.least_s / 2


@pytest.mark.parametrize("count", [0, 4])
def test_few_runs_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="too few"):
        fit(history(1, count), chance())


def test_numbers_that_cannot_be_inverted_are_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        fit([PastRun({"gpus": 0.0}, 1.0)] * 6, chance())


def test_a_feature_wants_its_numbers() -> None:
    with pytest.raises(KeyError):
        Feature((("gpus", 1),)).of({})
