"""The Gittins index against its definition, and against the worked examples of Tiresias."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.policy.order.gittins import ServiceDistribution

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


LONG = sorted(lognormvariate(8, 2) for lognormvariate in [Random(5).lognormvariate] * 6000)
ATTAINED = [
    *(LONG[at] * share for at in range(0, 6000, 301) for share in (1.0, 1 - 1e-12, 1 + 1e-9)),
    *(Random(6).uniform(0, LONG[5500]) for _ in range(20)),
    0.0,
    LONG[-2],
    (LONG[-2] + LONG[-1]) / 2,
]


def exactly(samples: list[float], attained: float) -> Iterator[tuple[float, float]]:
    """Every later sample as the end of a quantum, and the index of that: sums of integers, so that
    the one rounding is that of the division."""
    scale = 1 << 120
    had = _scaled(attained, scale)
    left = [_scaled(sample, scale) - had for sample in samples if sample > attained]
    ended, spent, since = 0, 0, 0
    for rest in left:  # they are sorted
        spent += (rest - since) * (len(left) - ended)
        ended, since = ended + 1, rest
        yield rest / scale, ended * scale / spent


def _scaled(value: float, scale: int) -> int:
    numerator, denominator = value.as_integer_ratio()
    assert scale % denominator == 0
    return numerator * (scale // denominator)


def test_the_samples_are_more_than_any_table_of_means_would_hold() -> None:
    assert len(ServiceDistribution(LONG)) == len(LONG) == 6000


def test_the_best_quantum_of_a_long_history_is_exact() -> None:
    known = ServiceDistribution(LONG)
    for attained in ATTAINED:
        best = max(index for _, index in exactly(LONG, attained))
        assert known.sup_index(attained) == pytest.approx(best, rel=1e-9, abs=0)


def test_a_fixed_quantum_of_a_long_history_is_exact() -> None:
    known = ServiceDistribution(LONG)
    for attained in ATTAINED[::7]:
        for quantum, _ in list(exactly(LONG, attained))[::1153]:
            # Beside the sample, for the sum of the two may be rounded to either side of it.
            longer = quantum * (1 + 1e-7) + attained * 1e-13
            assert known.fixed_index(attained, longer) == pytest.approx(
                by_integers(LONG, attained, longer), rel=1e-9, abs=0
            )


def by_integers(samples: list[float], attained: float, quantum: float) -> float:
    """`by_definition`, with one rounding."""
    scale = 1 << 120
    had, most = _scaled(attained, scale), int(quantum * scale)
    left = [_scaled(sample, scale) - had for sample in samples if sample > attained]
    return sum(rest <= most for rest in left) * scale / sum(min(rest, most) for rest in left)


def test_a_job_that_all_but_ended_with_the_longest_is_told_apart_from_the_last_digits() -> None:
    """A difference of two sums over the whole history has no digit left here."""
    known = ServiceDistribution([*range(1, 5000), 1e9])
    assert known.sup_index(1e9 - 2.0**-20) == 2.0**20
    assert known.fixed_index(1e9 - 2.0**-20, 1.0) == 2.0**20


@pytest.mark.parametrize("service", [0, -1, nan, inf])
def test_a_service_that_nobody_can_have_had_is_refused(service: float) -> None:
    with pytest.raises(ValueError, match="want a positive number"):
        ServiceDistribution([3, service, 5])
