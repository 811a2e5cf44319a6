"""Loans in words: servers, and the effects of a reclaim."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import loan_service_pb2 as wire
from dlq_cli.output.render import Cell, OutputLook, clean_line, table, when
from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.units import format_span
from dlq_common.text.wire import from_duration, from_timestamp

SERVERS = [Cell("SERVER"), Cell("STATE"), Cell("GPUS"), Cell("ATTEMPTS"), Cell("WAITS FOR")]
PLANNED_JOBS = [
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
    return table(SERVERS, [server_row(one) for one in servers], look)


def server_row(one: wire.LoanServer) -> list[str]:
    """A server in the columns SERVERS."""
    return [
        one.node_id,
        one.state,
        str(one.gpu_count),
        ",".join(one.attempts) or "-",
        clean_line(one.detail) or "-",
    ]


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
        plural = "s" if told.lent_count != 1 else ""
        lines.append(f"lends    {told.lent_count} server{plural} by that")
    if told.fault:
        lines.append(f"fault    {clean_line(told.fault)}")
    return "\n".join(lines) + "\n"


def plan_text(plan: wire.ReclaimPlan, look: OutputLook) -> str:
    """Servers, jobs hit, work lost, deadlines touched; under a token if it has not been done."""
    text = "".join(f"{name:<11}{words}\n" for name, words in plan_pairs(plan))
    if plan.jobs:
        text += table(PLANNED_JOBS, [planned_job_row(job, look) for job in plan.jobs], look)
    if refused := refused_words(plan):
        text += f"{refused}\n"
    elif plan.token:
        text += f"to do exactly this: {command_of(plan)}\n"
    return text


def plan_pairs(plan: wire.ReclaimPlan) -> list[tuple[str, str]]:
    """The effects of a plan, each with its name."""
    hit = [job for job in plan.jobs if job.action == "preempt"]
    shrunk = sum(job.action == "shrink" for job in plan.jobs)
    gpu_minutes = sum(from_duration(job.lost_duration) * job.gpu_count for job in plan.jobs) / 60
    touched = sum(job.HasField("deadline_time") for job in plan.jobs)
    proof = "no choice preempts fewer" if plan.proven else "not proven to be the fewest"
    return [
        ("servers", compress_hostlist(plan.node_ids) or "none"),
        ("preempted", f"{len(hit)} jobs ({proof}), {shrunk} go on with fewer GPUs"),
        ("lost", f"about {gpu_minutes:.0f} GPU-minutes"),
        ("deadlines", f"{touched} touched"),
        ("empty", _by_when(plan)),
    ]


def refused_words(plan: wire.ReclaimPlan) -> str:
    """Why the master would refuse to carry this plan out; empty: it would not."""
    if plan.token and plan.too_long and not _forced(plan):
        return "as asked it would be refused: ask for a later time, or --force"
    return ""


def command_of(plan: wire.ReclaimPlan) -> str:
    """The command that carries out exactly this plan."""
    return f"dlq admin reclaim --token {plan.token}"


def _forced(plan: wire.ReclaimPlan) -> bool:
    return any(job.killed for job in plan.jobs)


def _by_when(plan: wire.ReclaimPlan) -> str:
    span = format_span(round(from_duration(plan.promised_duration)))
    words = f"within {span}, and the check that their GPUs are free"
    if not plan.too_long:
        return words
    why = "a server is silent" if _forced(plan) else "--force would end jobs"
    return f"{words}; that is later than asked for ({why})"


def planned_job_row(job: wire.ReclaimedJob, look: OutputLook) -> list[str]:
    """A job that a reclaim hits, in the columns PLANNED_JOBS."""
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
