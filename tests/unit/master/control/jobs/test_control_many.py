"""Many submissions in one turn: each fares as if it came alone, at a fraction of the calls."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dlq_common.errors import AlreadyExists, DlqError, QuotaExceeded, TryAgain
from dlq_master.control.config import JobsConfig, MasterConfig
from dlq_master.control.stimuli import AskedArray, Caller, CancelJob, SubmitJob, SubmitMany
from dlq_master.model.ids import JobId
from support.counted_calls import counted_calls
from support.master_harness import ALICE, Master, config_of
from support.sim_agent import SimAgent

Masters = Callable[..., Master]
Answers = tuple[JobId | DlqError, ...]


def limited(**limits: Any) -> MasterConfig:
    return replace(config_of(), jobs=JobsConfig(**limits))


def many(master: Master, *asks: SubmitJob) -> Answers:
    answers: Answers = master.ask(SubmitMany(caller=ALICE, request_id="many", asks=asks))
    return answers


def mixed(master: Master) -> list[SubmitJob]:
    """Runs of jobs that are alike, and what interrupts them."""
    return [
        *(master.submission(1, name=f"a{n}", family=f"f{n % 2}") for n in range(4)),
        master.submission(1, name="held", hold=True),
        master.submission(1, array=AskedArray((3, 5), 0)),
        *(master.submission(99, name="wide") for _ in range(2)),
        master.submission(1, queue="nowhere"),
        *(master.submission(2, name=f"b{n}", nice=7) for n in range(3)),
        *(master.submission(2, begin_time_s=master.clock.now_s() + 60.0) for _ in range(2)),
    ]


def test_they_fare_as_they_do_alone(masters: Masters) -> None:
    together, apart = masters(), masters()
    for master in (together, apart):
        SimAgent(master, "gpu01").hello()  # type: ignore[arg-type]  # a node's name
    answers = many(together, *mixed(together))
    alone = apart.turn(*mixed(apart))
    for answer, one in zip(answers, alone, strict=True):
        if isinstance(one, DlqError):
            assert isinstance(answer, DlqError)
            assert (answer.reason, answer.what) == (one.reason, one.what)
        else:
            array = one.job.array
            assert answer == (array.array_id if array else one.job.job_id)
    assert [*together.loop.published.jobs()] == [*apart.loop.published.jobs()]
    assert together.store.load() == apart.store.load()
    assert together.store.events(0, 100) == apart.store.events(0, 100)


@pytest.mark.parametrize(
    ("limits", "refusal"),
    [({"queued_per_user": 5}, QuotaExceeded), ({"submit_burst": 5}, TryAgain)],
)
def test_of_too_many_the_first_have_room(
    masters: Masters, limits: dict[str, int], refusal: type[DlqError]
) -> None:
    master = masters(limited(**limits))
    answers = many(master, *(master.submission(name=f"n{n}") for n in range(8)))
    assert answers[:5] == (1, 2, 3, 4, 5)
    assert [type(answer) for answer in answers[5:]] == [refusal] * 3
    assert master.submission().request_id
    assert len([*master.loop.published.jobs()]) == 5


def test_a_repeat_is_the_same_jobs_and_new_ones_come_beside_them(masters: Masters) -> None:
    master = masters()
    asks = [master.submission(name=f"n{n}") for n in range(4)]
    assert many(master, *asks[:2]) == (1, 2)
    master.ask(CancelJob(caller=ALICE, request_id="c", job_id=JobId(1)))
    other = replace(asks[1], digest="another")
    answers = many(master, asks[0], other, *asks[2:])
    assert answers[0] == 1
    assert isinstance(answers[1], AlreadyExists)
    assert answers[2:] == (3, 4)
    assert many(master, *asks) == (1, 2, 3, 4)
    assert master.loop.published.job(JobId(1)).state == "cancelled"  # type: ignore[union-attr]


def test_another_persons_key_is_another_key(masters: Masters) -> None:
    master = masters()
    bob = Caller("bob", "user")
    ask = master.submission(request_id="same")
    assert many(master, ask) == (1,)
    assert master.turn(replace(ask, caller=bob), replace(ask, caller=ALICE))[0].job.job_id == 2


def test_jobs_like_the_first_cost_fewer_calls_than_alone(masters: Masters) -> None:
    def calls_of(submit: Callable[[Master, list[SubmitJob]], object]) -> int:
        master = masters()
        asks = [master.submission(name=f"n{n}") for n in range(100)]
        with counted_calls() as calls:
            submit(master, asks)
        return sum(count for name, count in calls.items() if "submitting" in str(name))

    together = calls_of(lambda master, asks: many(master, *asks))
    apart = calls_of(lambda master, asks: master.turn(*asks))
    assert together <= 0.5 * apart


def test_jobs_of_one_kind_share_their_values_however_they_come(masters: Masters) -> None:
    """A job that waits costs memory for what is its own alone."""
    master = masters()
    for number in range(2):
        name, family = f"train-{7}", f"f{7}"  # each is a string of its own, as from the wire
        master.ask(master.submission(1, name=name, family=family, request_id=f"r{number}"))
    one, other = (master.state.cluster.jobs[JobId(number)] for number in (1, 2))
    for field in ("name", "family", "rules", "queue"):
        assert getattr(one, field) is getattr(other, field), field
