"""What `dlq show` says of preemptions."""

from dlq.v1 import job_pb2
from dlq_cli.facts.job import job_facts
from dlq_cli.lists.story import job_text
from dlq_cli.output.render import OutputLook
from dlq_common.text.wire import to_duration, to_timestamp
from support.wire_jobs import EPOCH_S, a_job

LOOK = OutputLook(tty=False, color=False, now_s=EPOCH_S)
LAST = job_pb2.Preemption(
    for_job_id="17",
    user="bob",
    rule="the fewest GPUs first",
    decide_time=to_timestamp(EPOCH_S),
    lost_duration=to_duration(42.0),
    detail="preempted by job 17 (bob) by rule: the fewest GPUs first; lost 42 s of work",
)


def test_a_job_says_by_whom_by_which_rule_and_what_it_lost() -> None:
    job = a_job(3, preemption_count=2, displaced_count=1)
    job.last_preemption.CopyFrom(LAST)
    (line,) = [line for line in job_text(job, LOOK).splitlines() if line.startswith("preempted")]
    assert line.endswith(LAST.detail)
    facts = job_facts(job)
    assert (facts["displaced_count"], facts["preemption_count"]) == (1, 2)
    assert facts["last_preemption"] == {
        "for_job_id": "17",
        "user": "bob",
        "rule": "the fewest GPUs first",
        "decide_time": facts["last_preemption"]["decide_time"],
        "lost_s": 42.0,
    }


def test_what_a_stop_costs_is_told_once_it_was_measured() -> None:
    job = a_job(3, stop_cost_duration=to_duration(12.0))
    assert "a stop costs" not in job_text(job, LOOK)
    job.observed_save_count, job.observed_resume_count = 2, 1
    assert "00:00:12 without progress, by 2 saves and 1 resume" in job_text(job, LOOK)
    assert job_facts(job)["stop_cost_s"] == 12.0
