"""A key as one number: the order of the numbers is that of (promoted first, key, sequence)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.ids import JobId
from dlq_master.model.order.keys import PROMOTED_BASE, WAITING_BASE, position
from dlq_master.model.order.waiting import Sorted
from support.builders import a_job

NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 5e-324, float("inf"), float("-inf"), 3, -7]),
    st.floats(allow_nan=False),
    st.integers(-(2**53), 2**53),
)
KEYS = st.integers(0, 3).flatmap(
    lambda length: st.lists(st.tuples(*[NUMBERS] * length), min_size=2, max_size=2)
)
SEQUENCES = st.lists(
    st.one_of(st.integers(PROMOTED_BASE, -1), st.integers(1, 2 * WAITING_BASE)),
    min_size=2,
    max_size=2,
    unique=True,
)


@given(KEYS, SEQUENCES)
def test_positions_are_in_the_order_of_keys_then_sequences(
    keys: list[tuple[float, ...]], sequences: list[int]
) -> None:
    def place(at: int) -> tuple[int, tuple[float, ...], int]:
        return min(sequences[at], 0), keys[at] if sequences[at] > 0 else (), sequences[at]

    numbers = [position(a_job(1, 1, sequence=sequences[at]), keys[at]) for at in (0, 1)]
    assert (numbers[0] < numbers[1]) == (place(0) < place(1))


@given(st.lists(st.tuples(st.integers(1, 9), st.one_of(st.none(), st.integers(-3, 3)))))
def test_a_sorted_line_is_a_dict_in_the_order_of_positions(
    acts: list[tuple[int, int | None]],
) -> None:
    line, plain = Sorted({}), dict[JobId, int]()
    for number, at in acts:
        job_id = JobId(number)
        if at is None:
            assert (job_id in line) == (job_id in plain)
            line.pop(job_id, None)
            plain.pop(job_id, None)
        else:
            line[job_id] = plain[job_id] = at
        assert list(line.items()) == sorted(plain.items(), key=lambda item: item[::-1])
        assert len(line) == len(plain)
        assert bool(line) == bool(plain)
