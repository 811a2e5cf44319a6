"""A job as `scontrol show job` has it: the values of dlq_compat.job_page by their names."""

from __future__ import annotations

from dlq_cli.lists.slurm_states import queue_state
from dlq_cli.slurm import job_words as words
from dlq_cli.slurm.jobs.seen import SeenJob, stdin_of, written_stderr, written_stdout
from dlq_common.text.hostlist import compress_hostlist
from dlq_compat.job_page import NULL, UNKNOWN, clock, size


def facts_of(job: SeenJob, *, details: bool = False) -> dict[str, str]:
    """The known facts of a job; with `details` its GPUs on each node."""
    return {**_identity(job), **_times(job), **_places(job, details=details), **_files(job)}


def _identity(job: SeenJob) -> dict[str, str]:
    wire, task = job.job, job.job.array_task
    throttle = str(task.concurrent_count) if task.concurrent_count else ""
    return {
        "JobId": job.raw_id,
        "ArrayJobId": task.array_id if job.in_array else "",
        "ArrayTaskId": job.task_text,
        "ArrayTaskThrottle": throttle,
        "HetJobId": job.het_id,
        "HetJobOffset": "" if job.het_offset is None else str(job.het_offset),
        "HetJobIdSet": job.het_set,
        "JobName": wire.name,
        "UserId": f"{wire.user}({job.uid})",
        "GroupId": f"{job.group}({job.gid})",
        "Priority": str(job.priority),
        "Nice": str(wire.nice),
        "Account": job.account,
        "QOS": job.qos,
        "JobState": queue_state(wire),
        "Reason": words.reason(wire),
        "Dependency": words.dependency(wire),
        "Requeue": str(int(not job.spec.no_requeue)),
        "Restarts": str(job.restarts),
        "BatchFlag": str(int(job.is_batch)),
        "ExitCode": f"{wire.exit_code}:{wire.exit_signal}",
    }


def _times(job: SeenJob) -> dict[str, str]:
    started = job.code != "PD"
    waits_unplanned = not started and not job.job.HasField("start_estimate")
    start = 0.0 if waits_unplanned and not job.job.HasField("begin_time") else job.start_s
    end = 0.0 if not started else job.end_s
    shown = {
        "SubmitTime": job.submit_s,
        "EligibleTime": job.eligible_s,
        "AccrueTime": job.eligible_s,
        "StartTime": start,
        "EndTime": end,
        "LastSchedEval": job.start_s if started else job.submit_s,
    }
    texts = {name: words.instant_s(at_s, UNKNOWN) for name, at_s in shown.items()}
    if started:
        texts |= {"PreemptEligibleTime": texts["StartTime"], "PreemptTime": "None"}
    return {**texts, "RunTime": clock(job.run_s), "TimeLimit": clock(job.limit_s)}


def _places(job: SeenJob, *, details: bool) -> dict[str, str]:
    wire = job.job
    nodes = str(job.node_count)
    if job.code == "PD" and job.node_count > 1:
        nodes = f"{nodes}-{nodes}"
    facts = {
        "Partition": wire.queue,
        "AllocNode:Sid": f"{job.spec.origin.host or NULL}:{job.spec.origin.session_number}",
        "ReqNodeList": compress_hostlist(wire.resources.node_ids),
        "ExcNodeList": compress_hostlist(wire.resources.excluded_node_ids),
        "NodeList": compress_hostlist(job.nodes),
        "BatchHost": next(iter(job.nodes), ""),
        "NumNodes": nodes,
        "NumCPUs": str(job.cpus),
        "NumTasks": str(job.tasks),
        "CPUs/Task": str(job.cpus_per_task),
        "TRES": job.tres,
        "NtasksPerN:B:S:C": f"{job.tasks_per_node}:0:*:*",
        "MinCPUsNode": str(job.cpus_per_task),
        "MinMemoryNode": size(job.memory_mib) if job.memory_mib else "0",
        "Features": "&".join(f"{key}={text}" for key, text in wire.resources.constraint.items()),
        "TresPerJob": job.gres_per_job,
        "TresPerNode": job.gres_per_node,
    }
    if details:
        facts["DerivedExitCode"] = "0:0"
        facts["JOB_GRES"] = _given(job)
    return facts


def _given(job: SeenJob) -> str:
    """`gpu:2` and a line for each node."""
    if not job.detail.attempts or not job.gpus:
        return ""
    slots = job.detail.attempts[-1].lease.allocation.slots
    kind = ":".join(["gpu", *job.job.gpu_type.split(" ")[:1]]).rstrip(":")
    lines = [f"{kind}:{job.gpus}"]
    lines += [
        f"  Nodes={slot.node_id} CPU_IDs= Mem={job.memory_mib} "
        f"GRES={kind}:{len(slot.gpu_indexes)}(IDX:{_ranges(slot.gpu_indexes)})"
        for slot in slots
    ]
    return "\n   ".join(lines)


def _ranges(indexes: object) -> str:
    from dlq_common.text.arrays import format_indexes

    return format_indexes(sorted(indexes))  # type: ignore[call-overload]


def _files(job: SeenJob) -> dict[str, str]:
    return {
        "Comment": job.comment,
        "Command": job.command,
        "WorkDir": job.directory,
        "StdErr": written_stderr(job),
        "StdIn": stdin_of(job),
        "StdOut": written_stdout(job),
    }
