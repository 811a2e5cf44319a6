"""The Gittins index against its definition, and against the worked examples of Tiresias."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.policy.order.gittins_index import ServiceDistribution

# Tiresias, appendix C: 4, 8 or 12 GPU-seconds with the same chance.
APPENDIX_C = ServiceDistribution([4, 8, 12])
INDEX_BY_ATTAINED = (
    1 / 8,
    1 / 7,
    1 / 6,
    1 / 3,
    1 / 6,
    1 / 5,
    1 / 4,
    1 / 2,
    1 / 4,
    1 / 3,
    1 / 2,
    1.0,
)

services = st.lists(st.integers(1, 60), min_size=1, max_size=12)


def by_definition(samples: list[int], attained: float, quantum: float) -> float:
    """P(S - a <= quantum | S > a) / E[min(S - a, quantum) | S > a], straight from the paper."""
    left = [sample - attained for sample in samples if sample > attained]
    ends = sum(1 for rest in left if rest <= quantum)
    return ends / sum(min(rest, quantum) for rest in left) if left else 0.0


@pytest.mark.parametrize(("attained", "index"), list(enumerate(INDEX_BY_ATTAINED)))
def test_appendix_c_of_tiresias_gives_these_indices(attained: int, index: float) -> None:
    assert APPENDIX_C.sup_index(attained) == pytest.approx(index)


def test_a_job_beyond_all_history_comes_last() -> None:
    assert APPENDIX_C.sup_index(12) == APPENDIX_C.fixed_index(12, 4) == 0.0


def test_without_history_every_job_is_the_same() -> None:
    nothing = ServiceDistribution([])
    assert nothing.sup_index(0) == nothing.fixed_index(7, 3) == 0.0
    assert nothing.quantile(0.5) == inf


@given(services, st.integers(0, 240))
def test_the_best_quantum_is_the_best_of_all_quanta(samples: list[int], quarters: int) -> None:
    attained = quarters / 4
    best = max(
        (by_definition(samples, attained, s - attained) for s in samples if s > attained),
        default=0.0,
    )
    assert ServiceDistribution(samples).sup_index(attained) == pytest.approx(best)


@given(services, st.integers(0, 240), st.integers(1, 240))
def test_a_fixed_quantum_is_the_ratio_of_the_paper(
    samples: list[int], quarters: int, quantum: int
) -> None:
    attained = quarters / 4
    index = ServiceDistribution(samples).fixed_index(attained, quantum / 4)
    assert index == pytest.approx(by_definition(samples, attained, quantum / 4))


@given(services, st.integers(1, 100))
def test_a_quantile_is_the_first_service_that_so_many_stay_within(
    samples: list[int], percent: int
) -> None:
    within = ServiceDistribution(samples).quantile(percent / 100)
    assert 100 * sum(s <= within for s in samples) >= percent * len(samples)
    assert 100 * sum(s < within for s in samples) < percent * len(samples)


def test_a_long_history_is_kept_in_parts_that_keep_its_mean_and_its_order() -> None:
    long = [1 + (n * 7919) % 10007 for n in range(10007)]
    whole, parts = (
        ServiceDistribution(long, resolution=20000),
        ServiceDistribution(long, resolution=500),
    )
    assert (len(whole), len(parts)) == (10007, 500)
    for attained in range(0, 9000, 100):
        assert parts.fixed_index(attained, 2000) == pytest.approx(
            whole.fixed_index(attained, 2000), rel=0.05
        )


@pytest.mark.parametrize("service", [0, -1, nan, inf])
def test_a_service_that_nobody_can_have_had_is_refused(service: float) -> None:
    with pytest.raises(ValueError, match="want a positive number"):
        ServiceDistribution([3, service, 5])
