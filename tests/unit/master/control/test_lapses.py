"""When a job that loses its lease is told."""

from dlq_master.control.lapses import delay_s


def test_a_job_that_never_saved_is_told_at_once() -> None:
    assert delay_s(30.0, (), earlier=0, concurrent=4) == 0.0


def test_a_job_whose_saves_are_known_goes_on_until_it_is_just_in_time() -> None:
    assert delay_s(30.0, (4.0, 4.0), earlier=0, concurrent=4) == 24.0


def test_a_job_whose_save_takes_longer_than_is_left_is_told_at_once() -> None:
    assert delay_s(3.0, (4.0,), earlier=0, concurrent=4) == 0.0


def test_lapses_beyond_the_cap_follow_in_waves() -> None:
    waits = [delay_s(30.0, (4.0,), earlier=n, concurrent=2) for n in range(5)]
    assert waits == [24.0, 24.0, 30.0, 30.0, 36.0]
