"""Tuned jobs: their pace by GPUs, and the rows that a trace may mark so."""

from __future__ import annotations

from random import Random

import pytest

from dlq_simulator.errors import DataError
from dlq_simulator.generate.aryl import Aryl
from dlq_simulator.generate.pollux import PolluxJobs
from dlq_simulator.traces import parse_trace
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.goodput import best, with_batch
from dlq_simulator.world.goodput_models import MODELS
from dlq_simulator.world.tuned import pace

HEAD = "job_id,submit_time_s,num_gpus,duration_s,model,tuned,batch_size\n"
CIFAR = MODELS["cifar10"]


def tuned(gpus: int = 8, batch: int | None = None, model: str = "cifar10") -> TraceJob:
    return TraceJob(
        job_id="t",
        submit_time_s=0,
        num_gpus=gpus,
        duration_s=1000,
        model=model,
        tuned=True,
        batch_size=batch,
    )


def test_without_a_batch_the_duration_is_that_of_the_best_one() -> None:
    assert pace(tuned(), 8, 8) == 1.0
    ratio = best(CIFAR, 16, 2).goodput / best(CIFAR, 8, 1).goodput
    assert pace(tuned(), 16, 8) == ratio
    assert 1.0 < ratio < 2.0


def test_a_job_with_another_batch_is_faster_on_its_own_gpus_once_it_is_tuned() -> None:
    before = with_batch(CIFAR, 8, 1, 256).goodput
    assert pace(tuned(batch=256), 8, 8) == best(CIFAR, 8, 1).goodput / before > 1.5


def test_more_nodes_than_need_be_are_slower_and_more_gpus_may_be_too() -> None:
    assert pace(tuned(), 8, 8, 2) < 1.0
    assert pace(tuned(model="ncf"), 16, 8) < 1.0


def test_a_trace_marks_tuned_jobs() -> None:
    (job,) = parse_trace("t.csv", HEAD + "a,0,4,100,bert,yes,384\n").jobs
    assert (job.tuned, job.model, job.batch_size) == (True, "bert", 384)


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ("gpt,yes,64", "column model; a tuned job is one of bert, cifar10"),
        (",yes,64", "column model; a tuned job is one of bert"),
        ("bert,yes,512", "column batch_size; bert takes 12 to 384, not 512"),
    ],
)
def test_a_tuned_job_whose_goodput_nobody_knows_is_refused(cells: str, says: str) -> None:
    with pytest.raises(DataError) as refused:
        parse_trace("t.csv", f"{HEAD}a,0,4,100,{cells}\n")
    assert says in str(refused.value)


def test_a_job_that_is_not_tuned_may_have_any_model_and_batch() -> None:
    (job,) = parse_trace("t.csv", HEAD + "a,0,4,100,gpt,no,7\n").jobs
    assert not job.tuned


def test_pollux_workloads_get_run_times_and_sizes() -> None:
    text = "name,time,application,num_replicas,batch_size\nb,7,bert,12,384\nn,8,ncf,1,32768\n"
    bert, ncf = PolluxJobs().workload(parse_trace("p.csv", text, "pollux")).jobs
    assert (bert.min_workers, bert.max_workers, ncf.min_workers, ncf.max_workers) == (1, 64, 1, 1)
    steps_s = 480 * 384 / 384  # of 12 GPUs with 12 examples, and three passes
    assert 2.0 < bert.duration_s / steps_s < 6.0
    (fixed, _) = PolluxJobs(tuned=False).workload(parse_trace("p.csv", text, "pollux")).jobs
    assert (fixed.duration_s, fixed.tuned, fixed.min_workers) == (bert.duration_s, None, None)


def test_a_workload_of_others_is_refused() -> None:
    with pytest.raises(ValueError, match="no model and batch of Pollux"):
        PolluxJobs().workload(Trace.of("t", [tuned()]))


def test_aryl_tunes_a_share_of_the_elastic_jobs_and_draws_the_rest_as_before() -> None:
    jobs = [
        TraceJob(job_id=str(at), submit_time_s=at, num_gpus=1 + at % 9, duration_s=9)
        for at in range(200)
    ]
    trace = Trace.of("t", jobs)
    plain = Aryl(elastic=20).workload(Random(1), trace).jobs
    made = Aryl(elastic=20, tuned=50).workload(Random(1), trace).jobs
    found = [job for job in made if job.tuned]
    assert len(found) == 20
    assert all(job.max_workers and job.model in MODELS and job.model != "ncf" for job in found)
    assert [job.any_gpu for job in made] == [job.any_gpu for job in plain]
