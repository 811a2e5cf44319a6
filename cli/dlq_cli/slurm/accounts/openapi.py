"""A job in the JSON of sacct (openapi dbv0.0.38)."""

from __future__ import annotations

from collections.abc import Sequence

from dlq_cli.lists.slurm_states import account_state
from dlq_cli.slurm import job_words as words
from dlq_cli.slurm.accounts.texts import constraint
from dlq_cli.slurm.jobs.measures import cpu_of, derived_exit
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_cli.slurm.jobs.steps import SeenStep
from dlq_common.text.hostlist import compress_hostlist

_NO_TIME = {"seconds": 0, "microseconds": 0}
NOTHING_FOUND = {
    "description": "Nothing found",
    "error_number": 9003,
    "error": "Nothing found with query",
    "source": "slurmdb_jobs_get",
}
"""Slurm's error of a page without jobs; the exit code stays 0."""


def account_object(job: SeenJob, steps: Sequence[SeenStep]) -> dict[str, object]:
    """All keys, in Slurm's order."""
    wire, task = job.job, job.job.array_task
    in_array = job.in_array
    state = account_state(wire)
    return {
        "account": job.account,
        "comment": {"administrator": None, "job": job.comment or None, "system": None},
        "allocation_nodes": len(job.nodes),
        "array": {
            "job_id": int(task.array_id) if in_array else 0,
            "limits": {"max": {"running": {"tasks": task.concurrent_count}}},
            "task": job.task_text if in_array and not job.task_text.isdecimal() else None,
            "task_id": task.index if in_array and job.task_text.isdecimal() else None,
        },
        "association": {
            "account": job.account,
            "cluster": job.cluster,
            "partition": None,
            "user": wire.user,
        },
        "cluster": job.cluster,
        "constraints": constraint(job),
        "container": job.spec.container.image or None,
        "derived_exit_code": exit_object(derived_exit(steps) if job.ended else 0, 0),
        "time": {
            "elapsed": int(job.run_s),
            "eligible": int(job.eligible_s),
            "end": int(job.end_s) if job.ended else 0,
            "start": int(job.began_s) if job.began_s or not job.ended else None,
            "submission": int(job.submit_s),
            "suspended": 0,
            "system": _NO_TIME,
            "limit": job.limit_minutes,
            "total": _seconds(cpu_of(steps)),
            "user": _seconds(cpu_of(steps)),
        },
        "exit_code": exit_object(wire.exit_code, wire.exit_signal),
        "flags": [],
        "group": job.group,
        "het": {"job_id": int(job.het_id or 0), "job_offset": job.het_offset},
        "job_id": int(job.raw_id or 0),
        "name": wire.name,
        "mcs": {"label": ""},
        "nodes": compress_hostlist(job.nodes) or "None assigned",
        "partition": wire.queue,
        "priority": job.priority,
        "qos": job.qos,
        "required": {"CPUs": job.cpus, "memory": job.memory_mib},
        "kill_request_user": job.canceller or None,
        "reservation": {"id": 0, "name": 0},
        "state": {"current": state, "reason": words.reason(wire)},
        "steps": [_step_object(step) for step in steps],
        "tres": {
            "allocated": _tres(job, asked=False) if job.nodes else [],
            "requested": _tres(job, asked=True),
        },
        "user": wire.user,
        "wckey": {"wckey": "", "flags": []},
        "working_directory": job.directory,
    }


def exit_object(code: int, signal: int) -> dict[str, object]:
    """`SUCCESS`, `ERROR`, or `SIGNALED` with the signal."""
    if signal:
        return {
            "status": "SIGNALED",
            "return_code": None,
            "signal": {"signal_id": signal, "name": _signal_name(signal)},
        }
    return {"status": "ERROR" if code else "SUCCESS", "return_code": code}


def _signal_name(number: int) -> str:
    from dlq_common.text.signals import signal_name

    try:
        return signal_name(str(number))
    except ValueError:
        return str(number)


def _seconds(seconds: float | None) -> dict[str, int]:
    whole = int(seconds or 0)
    return {"seconds": whole, "microseconds": int(((seconds or 0.0) - whole) * 1e6)}


def _count(kind: str, name: str | None, number: int, count: int | None) -> dict[str, object]:
    return {"type": kind, "name": name, "id": number, "count": count}


def _tres(job: SeenJob, *, asked: bool) -> list[dict[str, object]]:
    memory = job.memory_mib * job.node_count
    found = [_count("cpu", None, 1, job.cpus)]
    found += [_count("mem", None, 2, memory)] if memory else []
    found += [] if asked else [_count("energy", None, 3, None)]
    found += [_count("node", None, 4, job.node_count), _count("billing", None, 5, job.cpus)]
    return found + ([_count("gres", "gpu", 1001, job.gpus)] if job.gpus else [])


def _step_object(step: SeenStep) -> dict[str, object]:
    nothing: dict[str, object] = {"max": [], "min": [], "average": [], "total": []}
    given = [
        _count("cpu", None, 1, step.cpus),
        _count("mem", None, 2, step.job.memory_mib),
        _count("node", None, 4, step.node_count),
    ]
    given += [_count("gres", "gpu", 1001, step.gpus)] if step.gpus else []
    return {
        "nodes": {
            "list": list(step.nodes),
            "count": step.node_count,
            "range": compress_hostlist(step.nodes),
        },
        "tres": {"requested": nothing, "consumed": nothing, "allocated": given},
        "time": {
            "elapsed": int(step.run_s),
            "end": int(step.end_s),
            "start": int(step.start_s),
            "suspended": 0,
            "system": _NO_TIME,
            "total": _seconds(step.cpu_s),
            "user": _seconds(step.cpu_s),
        },
        "exit_code": exit_object(step.exit_code, step.exit_signal),
        "tasks": {"count": step.tasks},
        "pid": None,
        "CPU": {"requested_frequency": {"min": 0, "max": 0}, "governor": []},
        "kill_request_user": None,
        "state": step.state,
        "statistics": {"CPU": {"actual_frequency": 0}, "energy": {"consumed": 0}},
        "step": {
            "job_id": int(step.job.raw_id or 0),
            "het": {"component": None},
            "id": step.step_id,
            "name": step.name,
        },
        "task": {"distribution": "Unknown"},
    }
