"""fifo: strict head-of-line blocking. best-effort: whoever fits goes."""

from support.builders import World, a_job


def test_nobody_passes_the_first_job_that_does_not_fit() -> None:
    world = World("fifo").submit(a_job(1, 6), a_job(2, 4), a_job(3, 1)).decide()
    assert world.running == [1]
    world.finish(1).decide()
    assert world.running == [2, 3]


def test_best_effort_lets_narrow_jobs_pass() -> None:
    world = World("best-effort").submit(a_job(1, 6), a_job(2, 4), a_job(3, 1)).decide()
    assert world.running == [1, 3]


def test_the_queue_with_the_lower_rank_goes_first() -> None:
    world = (
        World("fifo").submit(a_job(1, 8, priority_base=1), a_job(2, 8, priority_base=0)).decide()
    )
    assert world.running == [2]


def test_a_job_that_lost_its_node_keeps_its_place_in_the_line() -> None:
    world = World("fifo", nodes=1).submit(a_job(1, 8), a_job(2, 8), a_job(3, 8)).decide()
    world.lose(1).decide()
    assert world.running == [1]


def test_a_head_whose_gpus_are_being_released_is_not_passed_either() -> None:
    world = World("fifo").submit(a_job(1, 5), a_job(2, 8), a_job(3, 1)).decide()
    world.pause(1).decide()
    assert (world.running, world.leaving) == ([], [1])
    world.leave(1).decide()
    assert world.running == [2]


def test_lower_ranks_do_not_take_gpus_that_a_higher_one_waits_for() -> None:
    world = World("best-effort").submit(a_job(1, 5), a_job(2, 8), a_job(3, 1)).decide()
    assert world.running == [1, 3]
    world.finish(3).pause(1).submit(a_job(4, 1)).decide()
    assert (world.running, world.leaving) == ([], [1])
    world.leave(1).decide()
    assert world.running == [2]


def test_renewals_go_on_for_work_that_is_never_taken_away() -> None:
    world = World("fifo").submit(a_job(1, 8)).decide()
    first_end_s = world.attempt(1).lease.term_end_s
    assert (first_end_s, world.wake_at_s) == (300.0, 270.0)
    world.at(270.0)
    assert world.attempt(1).lease.term_end_s == 600.0
    assert world.running == [1]
