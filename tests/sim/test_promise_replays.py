"""Whole replays with exact run times, places and costs: no promise is ever broken."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.view import View
from dlq_master.policy.promise.verdicts import reading
from dlq_master.policy.promise.verdicts.proof import at_risk
from dlq_simulator.errors import UsageError
from dlq_simulator.generate.chronus import MIXES, Chronus
from dlq_simulator.replay.engine import replay
from dlq_simulator.results.report import Result
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, read_cluster
from support.extent import some, spread
from support.validate import validate

SEEDS = some(range(20), 2)
_WIDTHS = (1, 1, 1, 2, 2, 3, 4, 4, 8, 12, 16)


def workload(seed: int, jobs: int = 70, hours: float = 5.0) -> Trace:
    """Twice what six nodes can do in these hours: five minutes to five hours, mix2."""
    draw = Random(seed)
    rows = [
        TraceJob(
            job_id=str(number),
            submit_time_s=draw.randrange(int(hours * 3600)),
            num_gpus=draw.choice(_WIDTHS),
            duration_s=round(300 * 60 ** draw.random()),
            user=draw.choice(["ada", "bob"]),
        )
        for number in range(jobs)
    ]
    return Chronus(mix=MIXES["mix2"]).workload(draw, Trace.of("drawn", rows))


def stretched(seed: int) -> Trace:
    """The same, half of the jobs elastic: up to two or four times what they are promised."""
    draw = Random(seed)
    rows = []
    for row in workload(seed).jobs:
        times = draw.choice([1, 1, 2, 4])
        whole = row.num_gpus if row.num_gpus % 8 == 0 else 1
        workers = row.num_gpus // whole
        rows.append(
            replace(row, gpus_per_worker=whole, min_workers=workers, max_workers=workers * times)
        )
    return Trace.of("stretched", rows)


def looked_at(policy: str, seed: int, *words: str) -> Result:
    """Every turn of half as much: twice what six nodes can do, for half as long."""
    (chosen,) = read_settings([policy], words, seed)

    def look(cluster: Cluster, *_: object) -> None:
        validate(cluster)

    return replay(workload(seed, jobs=35, hours=2.5), read_cluster("6x8"), chosen, watch=look)


# Without an answer by then a promise is kept all the same: by the cached solution.
SHORT = {"chronus-paper": ("solver_s=0.3",)}


@pytest.mark.parametrize("policy", spread(["chronus", "chronus-paper", "dlq"], 2))
@pytest.mark.parametrize("seed", spread(SEEDS, 1))
def test_every_promise_is_kept(policy: str, seed: int) -> None:
    (chosen,) = read_settings([policy], SHORT.get(policy, ()), seed)
    found = replay(workload(seed), read_cluster("6x8"), chosen).metrics
    assert (found.jobs, found.refused, found.promises_missed) == (70, 0, 0)
    assert found.guaranteed is not None
    assert found.guaranteed >= 15


HASTY = ("cooldown_s=off", "min_run=0", "margin=0", "save_s=30", "resume_s=60")


@pytest.mark.parametrize(
    ("seed", "words"),
    spread(
        [
            (0, ()),
            (1, ("slots=early",)),
            (2, ("scaling=0.5",)),  # more GPUs bring nothing
            (23, ("select=all", "be_floor=0")),
            (4, ("guarantee=fitting", "be_floor=0", "scaling=0.8")),
        ],
        2,
    ),
)
def test_every_promise_is_kept_where_jobs_grow(seed: int, words: tuple[str, ...]) -> None:
    (chosen,) = read_settings(["dlq"], (*HASTY, *words), seed)
    found = replay(stretched(seed), read_cluster("6x8"), chosen).metrics
    assert (found.jobs, found.promises_missed) == (70, 0)
    assert found.guaranteed
    assert found.guaranteed >= 30
    assert found.resizes >= 5


@pytest.mark.parametrize("policy", spread(["chronus-paper", "dlq"], 1))
def test_nobody_hears_of_a_risk_where_there_is_none(policy: str) -> None:
    (chosen,) = read_settings([policy], SHORT.get(policy, ()), 6)
    rules, looks = chosen.policy.promises, [0]
    assert rules is not None

    def look(cluster: Cluster, _decided: object, now_s: float) -> None:
        assert not at_risk(View(cluster, now_s), rules)
        looks[0] += len(cluster.promised)

    replay(workload(6), read_cluster("6x8"), chosen, watch=look)
    assert looks[0] > 1000


@pytest.mark.long("sim/test_promise_types.py::test_every_promise_is_kept_on_whichever_type")
@pytest.mark.parametrize("policy", ["chronus", "dlq"])
@pytest.mark.parametrize("speed", [0.6, 1.7])
def test_every_promise_is_kept_on_gpus_of_another_speed(policy: str, speed: float) -> None:
    """A job says how long it takes on the GPUs that it is promised."""
    (chosen,) = read_settings([policy], (), 3)
    (group,) = read_cluster("6x8").groups
    found = replay(
        workload(3), ClusterSpec(name="6x8", groups=(replace(group, speed=speed),)), chosen
    )
    assert found.metrics.promises_missed == 0
    assert found.metrics.guaranteed
    assert found.metrics.guaranteed >= 10


@pytest.mark.parametrize(
    ("policy", "words"),
    spread(
        [
            ("chronus", ("be_floor=0", "guarantee=fitting")),
            ("chronus", ("place=consolidate",)),
        ],
        1,
    ),
)
def test_the_state_is_sound_after_every_turn(policy: str, words: tuple[str, ...]) -> None:
    assert looked_at(policy, 100, *words).metrics.promises_missed == 0


def test_the_state_is_sound_where_best_effort_work_is_placed_anew() -> None:
    found = looked_at("chronus-paper", 100, *SHORT["chronus-paper"]).metrics
    assert (found.jobs, found.promises_missed) == (35, 0)


def test_the_program_of_the_paper_keeps_promises_too() -> None:
    """Few enough jobs that it is solved to its end: what it decides does not depend on the
    clock.
    """
    (chosen,) = read_settings(["chronus-paper"], [])
    found = replay(workload(5, jobs=12), read_cluster("2x8"), chosen).metrics
    assert (found.jobs, found.promises_missed) == (12, 0)
    assert found.guaranteed


@pytest.mark.parametrize("spot", spread(["srsf", "sf", "fifo", "las"], 2))
def test_any_order_of_the_others_keeps_promises(spot: str) -> None:
    found = looked_at("chronus", 101, f"spot={spot}").metrics
    assert (found.jobs, found.promises_missed) == (35, 0)
    assert found.guaranteed


def rows(*told: tuple[int, int, int, int | None]) -> Trace:
    """(submit, GPUs, run time, deadline)."""
    jobs = [
        TraceJob(
            job_id=str(at),
            submit_time_s=submit,
            num_gpus=gpus,
            duration_s=run,
            kind="be" if due is None else "strict",
            deadline_s=due,
        )
        for at, (submit, gpus, run, due) in enumerate(told)
    ]
    return Trace.of("told", jobs)


# Each once broke a promise, or left GPUs idle for hours.
STORIES = {
    "who ends at the boundary leaves its GPUs to those whose slot it is": (
        "chronus", "4x1", ("be_floor=0", "guarantee=fitting"),
        rows(
            (2300, 1, 20000, 22531), (2600, 2, 2400, 5125), (4634, 1, 20000, 52327),
            (4934, 1, 100, 799), (4934, 2, 5000, 5513), (4934, 4, 30, 681),
        ),
    ),
    "room that is rounded up is made, too": (
        "chronus-paper", "3x8", ("place=halving",),
        rows((0, 17, 50, None), (0, 6, 50, None), (0, 1, 20000, None), (100, 17, 3000, 9000)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_no_story_breaks_a_promise(story: str) -> None:
    policy, cluster, words, trace = STORIES[story]
    (chosen,) = read_settings([policy], words)
    found = replay(trace, read_cluster(cluster), chosen).metrics
    assert found.guaranteed
    assert found.promises_missed == 0


def test_room_is_made_on_whole_nodes_whatever_the_policy() -> None:
    told = rows((0, 17, 50, None), (0, 6, 50, None), (0, 1, 20000, None), (100, 17, 3000, None))
    (chosen,) = read_settings(["srtf"], ["place=halving"])
    wide = replay(told, read_cluster("3x8"), chosen).outcomes[3]
    assert wide.start_s <= 300


def test_a_job_of_no_run_time_is_profiled_all_the_same() -> None:
    (chosen,) = read_settings(["chronus"], ["know=profiled"])
    found = replay(rows((0, 17, 0, 1000)), read_cluster("3x8"), chosen).metrics
    assert found.jobs == 1


@pytest.mark.parametrize("policy", ["dlq", "chronus", "chronus-paper"])
@pytest.mark.parametrize("far_s", [10**9, 10**15, 2**53])
def test_a_far_deadline_is_promised_at_the_end_of_what_plans_look_at(
    policy: str, far_s: int
) -> None:
    (chosen,) = read_settings([policy], [])
    plain = [(10, 4, 3600, 7200), (20, 2, 500, None)]
    told = rows((0, 1, 3600, far_s), *plain)
    found = replay(told, read_cluster("2x8"), chosen)
    assert (found.metrics.guaranteed, found.metrics.promises_missed) == (2, 0)
    alone = replay(rows(*plain), read_cluster("2x8"), chosen)
    assert [one.finish_s for one in found.outcomes[1:]] == [one.finish_s for one in alone.outcomes]


@pytest.mark.parametrize("policy", ["dlq", "chronus", "chronus-paper"])
def test_work_beyond_what_plans_look_at_is_not_promised(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FARTHEST", 50)  # slots
    (chosen,) = read_settings([policy], ["slo_term_s=300"])
    told = rows((0, 1, 60 * 300, 10**6), (0, 1, 40 * 300, 10**6))
    found = replay(told, read_cluster("2x8"), chosen).metrics
    assert (found.jobs, found.guaranteed, found.promises_missed) == (2, 1, 0)


@pytest.mark.parametrize(
    ("policy", "words", "slot_s"),
    [
        ("chronus", [], 300),
        ("chronus-paper", [], 1200),
        ("chronus", ["term_s=200"], 200),
        ("chronus", ["slo_term_s=900"], 900),
    ],
)
def test_how_long_an_slo_lease_is(policy: str, words: list[str], slot_s: float) -> None:
    (chosen,) = read_settings([policy], words)
    assert chosen.terms.slo_term_s == slot_s


@pytest.mark.parametrize("word", ["slo_term_s=0", "slo_term_s=450"])
def test_an_slo_lease_is_a_whole_number_of_terms(word: str) -> None:
    with pytest.raises(UsageError, match="whole number of terms"):
        read_settings(["chronus"], [word])


def test_a_team_never_has_more_promised_than_its_quota() -> None:
    """The sum over jobs that are not done, as they were asked for."""
    (chosen,) = read_settings(["chronus"], ["slo_quota=ada:8,*:16", "guarantee=fitting"], 0)
    most: dict[str, int] = {}

    def look(cluster: Cluster, *_: object) -> None:
        for user in ("ada", "bob"):
            jobs = [cluster.jobs[job_id] for job_id in cluster.promised]
            gpus = sum(job.request.gpus for job in jobs if job.user == user)
            most[user] = max(most.get(user, 0), gpus)

    replay(workload(3, jobs=35, hours=2.5), read_cluster("6x8"), chosen, watch=look)
    assert most["ada"] <= 8
    assert most["bob"] <= 16
    assert min(most.values()) > 0
