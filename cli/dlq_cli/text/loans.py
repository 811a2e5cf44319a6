"""Loans in words: servers, and the effects of a reclaim."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import loan_service_pb2 as wire
from dlq_cli.output.render import Cell, OutputLook, clean_line, table, when
from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.units import format_span
from dlq_common.text.wire import from_duration, from_timestamp

_SERVERS = [Cell("SERVER"), Cell("STATE"), Cell("GPUS"), Cell("ATTEMPTS"), Cell("WAITS FOR")]
_JOBS = [
    Cell("JOB"),
    Cell("USER"),
    Cell("WHAT"),
    Cell("GPUS"),
    Cell("SAVES IN"),
    Cell("LOSES"),
    Cell("DEADLINE"),
]


def servers_text(servers: Sequence[wire.LoanServer], look: OutputLook) -> str:
    """One line for each server."""
    rows = [
        [
            one.node_id,
            one.state,
            str(one.gpu_count),
            ",".join(one.attempts) or "-",
            clean_line(one.detail) or "-",
        ]
        for one in servers
    ]
    return table(_SERVERS, rows, look)


def controller_text(told: wire.LoanController | None, look: OutputLook) -> str:
    """The controller that lends servers, and its criterion."""
    if told is None:
        return "off: no load is followed ([loans] load in master.toml)\n"
    if told.HasField("off_time"):
        at = when(from_timestamp(told.off_time), look)
        return f"off: switched off by {clean_line(told.off_by)}, {at}; on again: dlq admin loan auto on\n"  # noqa: E501
    lines = [f"follows  {clean_line(told.source)}"]
    if told.HasField("busy_share"):
        at = when(from_timestamp(told.load_time), look)
        lines.append(f"load     {told.busy_share:.0%} of the servers are in use, {at}")
        lines.append(f"lends    {told.lent_count} servers by that")
    if told.fault:
        lines.append(f"fault    {clean_line(told.fault)}")
    return "\n".join(lines) + "\n"


def plan_text(plan: wire.ReclaimPlan, look: OutputLook) -> str:
    """Servers, jobs hit, work lost, deadlines touched; under a token if it has not been done."""
    names = compress_hostlist(plan.node_ids) or "none"
    hit = [job for job in plan.jobs if job.action == "preempt"]
    shrunk = sum(job.action == "shrink" for job in plan.jobs)
    gpu_minutes = sum(from_duration(job.lost_duration) * job.gpu_count for job in plan.jobs) / 60
    touched = sum(job.HasField("deadline_time") for job in plan.jobs)
    proof = "no choice preempts fewer" if plan.proven else "not proven to be the fewest"
    lines = [
        f"servers    {names}",
        f"preempted  {len(hit)} jobs ({proof}), {shrunk} go on with fewer GPUs",
        f"lost       about {gpu_minutes:.0f} GPU-minutes",
        f"deadlines  {touched} touched",
        f"empty      {_by_when(plan)}",
    ]
    text = "\n".join(lines) + "\n"
    if plan.jobs:
        text += table(_JOBS, [_job_row(job, look) for job in plan.jobs], look)
    if plan.token and plan.too_long and not _forced(plan):
        text += "as asked it would be refused: ask for a later time, or --force\n"
    elif plan.token:
        text += f"to do exactly this: dlq admin reclaim --token {plan.token}\n"
    return text


def _forced(plan: wire.ReclaimPlan) -> bool:
    return any(job.killed for job in plan.jobs)


def _by_when(plan: wire.ReclaimPlan) -> str:
    span = format_span(round(from_duration(plan.promised_duration)))
    words = f"within {span}, and the check that their GPUs are free"
    if not plan.too_long:
        return words
    why = "a server is silent" if _forced(plan) else "--force would end jobs"
    return f"{words}; that is later than asked for ({why})"


def _job_row(job: wire.ReclaimedJob, look: OutputLook) -> list[str]:
    what = f"shrink to {job.kept_gpu_count}" if job.action == "shrink" else job.action
    return [
        job.job_id,
        job.user,
        f"{what}, killed" if job.killed else what,
        str(job.gpu_count),
        format_span(round(from_duration(job.grace_duration))),
        format_span(round(from_duration(job.lost_duration))),
        when(from_timestamp(job.deadline_time), look) if job.HasField("deadline_time") else "-",
    ]
