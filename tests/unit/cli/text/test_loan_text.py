"""What a reclaim means, as people read it."""

from google.protobuf.duration_pb2 import Duration

from dlq.v1 import loan_service_pb2 as wire
from dlq_cli.output.render import OutputLook
from dlq_cli.text.loans import plan_text


def job(action: str, *, gpus: int, lost_s: int, killed: bool = False) -> wire.ReclaimedJob:
    return wire.ReclaimedJob(
        job_id="7",
        user="ada",
        action=action,
        gpu_count=gpus,
        lost_duration=Duration(seconds=lost_s),
        killed=killed,
    )


def plan(*jobs: wire.ReclaimedJob, too_long: bool = False) -> str:
    told = wire.ReclaimPlan(
        node_ids=["inf01"],
        jobs=jobs,
        promised_duration=Duration(seconds=300),
        too_long=too_long,
        token="3f2a",
    )
    return plan_text(told, OutputLook(tty=False, color=False, now_s=0.0))


def test_the_sum_of_what_is_lost_is_of_all_jobs_that_are_named() -> None:
    hit = job("preempt", gpus=4, lost_s=60), job("shrink", gpus=6, lost_s=90, killed=True)
    assert "lost       about 13 GPU-minutes\n" in plan(*hit)


def test_nobody_is_told_to_force_what_is_forced() -> None:
    kept = job("preempt", gpus=4, lost_s=60)
    assert "(--force would end jobs)" in plan(kept, too_long=True)
    forced = job("preempt", gpus=4, lost_s=60, killed=True)
    assert "later than asked for (a server is silent)" in plan(forced, too_long=True)


def test_a_token_is_offered_only_for_what_would_be_done() -> None:
    hit = job("preempt", gpus=4, lost_s=60)
    assert "--token 3f2a" in plan(hit)
    assert "--token" not in plan(hit, too_long=True)
