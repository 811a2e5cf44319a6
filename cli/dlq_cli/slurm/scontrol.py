"""`scontrol`, in the parts that ask the master: show, change, hold and requeue jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import click

from dlq.v1 import job_pb2
from dlq_cli.app import App
from dlq_cli.commands.jobs.update import wishes
from dlq_cli.lists.slurm_states import queue_state
from dlq_cli.slurm import job_words as words
from dlq_cli.slurm.scancel import each
from dlq_cli.slurm.words import ended, known_jobs
from dlq_client.jobs import Edited, Jobs
from dlq_client.queues import Queues
from dlq_common.errors import InvalidRequest, Unavailable
from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.wire import to_timestamp
from dlq_compat.job_page import UNKNOWN, clock, page, tres

_FLAGS = frozenset({"-o", "--oneliner", "-d", "--details", "-dd", "-Q", "--quiet", "-a", "--all"})
_USE = (
    "show job [JOB], show config, update job JOB KEY=VALUE, hold, uhold, release, requeue, "
    "requeuehold, suspend, resume JOB, ping"
)


def main(app: App, given: Sequence[str]) -> None:
    """One verb and its arguments."""
    one_line = bool({"-o", "--oneliner"} & set(given))
    verb, *rest = [word for word in _without_clusters(app, given) if word not in _FLAGS] or [""]
    verb = verb.lower()
    verbs = _verbs(Jobs)
    if verb == "ping" and not rest:
        _ping(app)
    elif verb == "show" and rest and rest[0].lower() in ("job", "jobs", "jobid"):
        _show_jobs(app, rest[1:], one_line=one_line)
    elif verb == "show" and rest and rest[0].lower() == "config":
        _config(app)
    elif verb == "update" and rest:
        _update(app, rest)
    elif verb in verbs and rest:
        jobs = Jobs(app.connection())
        ended(each("scontrol", _ids(rest), lambda target: verbs[verb](jobs, target), quiet=False))
    else:
        raise InvalidRequest(
            f"scontrol: dlq has nothing like {' '.join(given)[:60]!r}", hint=f"use: {_USE}"
        )


def _verbs(kind: type[Jobs]) -> Mapping[str, Callable[[Jobs, str], Edited]]:
    return {
        # As in Slurm it asks no question; it prints the lost work.
        "requeue": lambda jobs, target: jobs.requeue_each(target, accept_loss=True),
        "requeuehold": lambda jobs, target: jobs.requeue_each(target, hold=True, accept_loss=True),
        "hold": kind.hold_each,
        "uhold": kind.hold_each,
        "release": kind.release_each,
        "suspend": lambda jobs, target: jobs.pause_each(target, accept_loss=True),
        "resume": kind.resume_each,
    }


def _without_clusters(app: App, given: Sequence[str]) -> list[str]:
    """-M in all its forms, which may only name this cluster."""
    left, kept = list(given), []
    while left:
        word = left.pop(0)
        head, equals, value = word.partition("=")
        if head not in ("-M", "--clusters", "--cluster"):
            kept.append(word)
            continue
        name = value if equals else left.pop(0) if left else ""
        own = app.connection().identity.cluster
        if name.lower() not in ("all", own.lower()):
            raise InvalidRequest(f"scontrol: No cluster {name[:40]!r} known", hint=f"this is {own}")
    return kept


def _ids(rest: Sequence[str]) -> list[str]:
    """`17,18`, `JobId=17`, `jobid 17`."""
    found = []
    for word in rest:
        name, equals, value = word.partition("=")
        if not equals and name.lower() in ("job", "jobid"):
            continue
        found += [part for part in (value if equals else name).split(",") if part]
    return found


def _update(app: App, rest: Sequence[str]) -> None:
    """`update job 17 TimeLimit=60`, `update JobId=17 TimeLimit=60`: the changes of `dlq update`."""
    target, changes = "", []
    for word in rest:
        name, equals, value = word.partition("=")
        if equals and name.lower() not in ("job", "jobid"):
            endless = name.lower() == "arraytaskthrottle" and value == "0"
            changes.append(f"{name}={'all' if endless else value}")
        elif equals or name.lower() not in ("job", "jobid"):
            target = value if equals else name
    if not target:
        raise InvalidRequest("scontrol: update: which job?", hint="update JobId=17 TimeLimit=60")
    request = wishes(changes, app.clock.now_s())
    jobs = Jobs(app.connection())
    ended(each("scontrol", _ids([target]), lambda one: jobs.update_each(one, request), quiet=False))


def _ping(app: App) -> None:
    connection = app.connection()
    host = connection.identity.address.rpartition(":")[0]
    try:
        Queues(connection).cluster()
    except Unavailable:
        click.echo(f"Slurmctld(primary) at {host} is DOWN")
        ended(1)
    else:
        click.echo(f"Slurmctld(primary) at {host} is UP")


def _config(app: App) -> None:
    """The lines that programs look for; lines without a counterpart in dlq are left out."""
    identity = app.connection().identity
    facts = {
        "ClusterName": identity.cluster,
        "MinJobAge": "300 sec",
        "SlurmctldHost[0]": identity.address.rpartition(":")[0],
    }
    for name, value in facts.items():
        click.echo(f"{name:<23} = {value}")


def _show_jobs(app: App, rest: Sequence[str], *, one_line: bool) -> None:
    jobs = Jobs(app.connection())
    ids = _ids(rest)
    found = known_jobs(jobs, ids) if ids else jobs.list(ended_within_s=300).jobs
    if ids and not found:
        raise InvalidRequest("slurm_load_jobs error: Invalid job id specified")
    for job in found:
        spec = jobs.get(job.job_id).spec if ids else job_pb2.JobSpec()
        click.echo(page(facts_of(job, spec, app.clock.now_s()), one_line=one_line))
        if not one_line:
            click.echo()


def facts_of(job: job_pb2.Job, spec: job_pb2.JobSpec, now_s: float) -> dict[str, str]:
    """The known facts of a job, by the names of `scontrol show job`. One that runs ends at its
    limit.
    """
    nodes, cpus, memory = words.node_count(job), words.cpus(job), words.memory_mib(job)
    tasks = nodes * spec.tasks_per_node if spec.tasks_per_node else 0
    task = job.array_task
    start = job.start_time if job.HasField("start_time") else job.begin_time
    limit_s = words.limit_s(job)
    end = job.end_time
    if limit_s is not None and queue_state(job) == "RUNNING":
        end = to_timestamp(now_s + max(0.0, limit_s - words.run_s(job)))
    return {
        "JobId": job.job_id,
        "ArrayJobId": task.array_id,
        "ArrayTaskId": str(task.index) if job.HasField("array_task") else "",
        "JobName": job.name,
        "UserId": f"{job.user}({words.uid(job.user)})",
        "Nice": str(job.nice),
        "JobState": queue_state(job),
        "Reason": words.reason(job),
        "Dependency": job.dependency,
        "Restarts": str(max(0, job.attempt_count - 1)),
        "BatchFlag": "1" if spec.script or not spec.command else "0",
        "ExitCode": f"{job.exit_code}:{job.exit_signal}",
        "RunTime": clock(words.run_s(job)),
        "TimeLimit": clock(words.limit_s(job)),
        "SubmitTime": words.instant(job.submit_time, UNKNOWN),
        "EligibleTime": words.instant(job.queue_time, UNKNOWN),
        "StartTime": words.instant(start, UNKNOWN),
        "EndTime": words.instant(end, UNKNOWN),
        "Partition": job.queue,
        "ReqNodeList": compress_hostlist(job.resources.node_ids),
        "ExcNodeList": compress_hostlist(job.resources.excluded_node_ids),
        "NodeList": words.nodes(job),
        "BatchHost": next(iter(job.node_ids), ""),
        "NumNodes": str(nodes),
        "NumCPUs": str(cpus),
        "NumTasks": str(tasks or nodes),
        "CPUs/Task": str(max(1, cpus // (tasks or nodes))),
        "TRES": tres(nodes, cpus, memory * nodes, job.resources.gpu_count),
        "Comment": spec.labels.get("comment", ""),
        "Command": "" if spec.script else " ".join(spec.command),
        "WorkDir": spec.working_directory,
    }
