"""When a job that loses its lease is told."""

from dlq_master.control.attempts.stops import delay_s, waves_of


def test_a_job_that_never_saved_is_told_at_once() -> None:
    assert delay_s(30.0, (), wave=0, waves=1) == 0.0


def test_a_job_whose_saves_are_known_goes_on_until_it_is_just_in_time() -> None:
    assert delay_s(30.0, (4.0, 4.0), wave=0, waves=1) == 24.0


def test_a_job_whose_save_takes_longer_than_is_left_is_told_at_once() -> None:
    assert delay_s(3.0, (4.0,), wave=0, waves=1) == 0.0


def test_waves_end_at_the_boundary() -> None:
    assert [delay_s(30.0, (4.0,), wave=n, waves=3) for n in range(3)] == [12.0, 18.0, 24.0]


def test_waves_that_do_not_fit_before_the_boundary_go_beyond_it() -> None:
    assert [delay_s(10.0, (4.0,), wave=n, waves=3) for n in range(3)] == [0.0, 6.0, 12.0]


def test_those_that_save_already_count() -> None:
    assert waves_of(lapsing=3, saving=0, concurrent=2) == 2
    assert waves_of(lapsing=1, saving=4, concurrent=2) == 3
    assert waves_of(lapsing=1, saving=0, concurrent=0) == 1
