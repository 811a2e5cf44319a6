"""Whole replays with exact run times, places and costs: no promise is ever broken."""

from __future__ import annotations

from random import Random

import pytest

from dlq_master.model.cluster import Cluster
from dlq_master.policy.check import check_full
from dlq_simulator.clusters import read_cluster
from dlq_simulator.engine import replay
from dlq_simulator.generate.chronus import MIXES, Chronus
from dlq_simulator.report import Result
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob

SEEDS = range(20)
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


def replayed(policy: str, seed: int, *words: str, sound: bool = False) -> Result:
    (chosen,) = read_settings([policy], words, seed)

    def look(cluster: Cluster, *_: object) -> None:
        check_full(cluster)

    watch = look if sound else None
    return replay(workload(seed), read_cluster("6x8"), chosen, watch=watch)


@pytest.mark.parametrize("policy", ["chronus", "chronus-paper"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_is_kept(policy: str, seed: int) -> None:
    found = replayed(policy, seed).metrics
    assert (found.jobs, found.refused, found.promises_missed) == (70, 0, 0)
    assert found.guaranteed is not None
    assert found.guaranteed >= 15


@pytest.mark.parametrize("words", [("be_floor=0", "guarantee=fitting"), ("place=consolidate",)])
def test_the_state_is_sound_after_every_turn(words: tuple[str, ...]) -> None:
    assert replayed("chronus", 100, *words, sound=True).metrics.promises_missed == 0


def test_a_team_never_has_more_promised_than_its_quota() -> None:
    """The sum over jobs that are not done, as they were asked for."""
    (chosen,) = read_settings(["chronus"], ["slo_quota=ada:8,*:16", "guarantee=fitting"], 0)
    most: dict[str, int] = {}

    def look(cluster: Cluster, *_: object) -> None:
        for user in ("ada", "bob"):
            jobs = [cluster.jobs[job_id] for job_id in cluster.promised]
            gpus = sum(job.request.gpus for job in jobs if job.user == user)
            most[user] = max(most.get(user, 0), gpus)

    replay(workload(3), read_cluster("6x8"), chosen, watch=look)
    assert most["ada"] <= 8
    assert most["bob"] <= 16
    assert min(most.values()) > 0
