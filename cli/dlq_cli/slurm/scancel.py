"""`scancel` and the parts of `scontrol` that ask the master."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import click

from dlq.v1 import job_pb2
from dlq_cli.app import App
from dlq_cli.exit_codes import FAILURE
from dlq_cli.slurm.squeue import GRAMMAR as SQUEUE
from dlq_cli.slurm.words import Grammar, ended, read
from dlq_cli.slurm_states import code, queue_state, wanted
from dlq_cli.tasks import shown_id
from dlq_cli.words import has_ended
from dlq_client.jobs import Edited, Jobs
from dlq_common.errors import DlqError, InvalidRequest
from dlq_common.wire import from_duration

GRAMMAR = Grammar(
    "scancel",
    {
        **{letter: SQUEUE.short[letter] for letter in "unpt"}, "s": "signal", "Q": "quiet",
        "b": "batch", "f": "full", "v": "verbose",
    },
    frozenset({"user", "name", "partition", "state", "states", "signal", "jobname"}),
    frozenset({"me", "quiet", "batch", "full", "verbose"}),
)  # fmt: skip


def main(app: App, words: Sequence[str]) -> None:
    """Cancel jobs, or with --signal send them one. Jobs that have ended are no failure."""
    given = read(GRAMMAR, words)
    jobs = Jobs(app.connection())
    ids = [part for word in given.rest for part in word.split(",") if part]
    if not ids and not given.options.keys() & {"user", "me", "name", "jobname", "partition"}:
        raise InvalidRequest("scancel: no job is named", hint="scancel JOB, or -n NAME, --me")
    if not ids:
        ids = [job.job_id for job in _mine(jobs, given.options)]
    signal = given.options.get("signal", "").upper().removeprefix("SIG")
    ended(_each(ids, _act(jobs, signal), quiet="quiet" in given.options))


def _mine(jobs: Jobs, said: Mapping[str, str]) -> list[job_pb2.Job]:
    states = wanted([said[name] for name in ("state", "states") if name in said])
    name = said.get("name") or said.get("jobname", "")
    found = jobs.list(user=said.get("user", ""), name=name, queue=said.get("partition", "")).jobs
    return [job for job in found if not has_ended(job) and (not states or code(job) in states)]


def _act(jobs: Jobs, signal: str) -> Callable[[str], Edited]:
    if not signal:
        return jobs.cancel_each
    if signal in ("KILL", "9"):
        return lambda target: jobs.cancel_each(target, kill=True)
    return lambda target: jobs.signal_each(target, signal, all_ranks=True)


def _each(targets: Sequence[str], act: Callable[[str], Edited], *, quiet: bool) -> int:
    code_ = 0
    for target in targets:
        try:
            act(target)
        except DlqError as error:
            code_ = FAILURE
            if not quiet:
                click.echo(f"scancel: error: {target}: {error.what}", err=True)
    return code_


def control(app: App, words: Sequence[str]) -> None:
    """`scontrol requeue|hold|release|suspend|resume JOB`, `scontrol show job JOB`."""
    verb, *rest = [word for word in words if not word.startswith("-")] or [""]
    jobs = Jobs(app.connection())
    verbs: dict[str, Callable[[str], Edited]] = {
        "requeue": jobs.requeue_each,
        "hold": jobs.hold_each,
        "uhold": jobs.hold_each,
        "release": jobs.release_each,
        "suspend": jobs.pause_each,
        "resume": jobs.resume_each,
    }
    if verb == "show" and len(rest) == 2 and rest[0].startswith("job"):
        click.echo(_shown(jobs.get(rest[1]).job))
    elif verb in verbs and rest:
        ids = [part for word in rest for part in word.split(",") if part]
        ended(_each(ids, verbs[verb], quiet=False))
    else:
        raise InvalidRequest(
            f"scontrol: dlq has nothing like {' '.join(words)[:60]!r}",
            hint="requeue, hold, release, suspend, resume JOB; show job JOB",
        )


def _shown(job: job_pb2.Job) -> str:
    limit = (
        str(round(from_duration(job.time_limit_duration)))
        if job.HasField("time_limit_duration")
        else "UNLIMITED"
    )
    facts = {
        "JobId": shown_id(job),
        "JobName": job.name,
        "UserId": job.user,
        "Partition": job.queue,
        "JobState": queue_state(job),
        "Reason": job.wait_code or job.end_reason or "None",
        "Restarts": max(0, job.attempt_count - 1),
        "ExitCode": f"{job.exit_code}:{job.exit_signal}",
        "RunTimeSeconds": round(from_duration(job.run_duration)),
        "TimeLimitSeconds": limit,
        "NodeList": ",".join(job.node_ids),
        "NumNodes": len(job.node_ids) or job.resources.node_count or 1,
        "Requeue": 1,
    }
    return "\n   ".join(f"{key}={value}" for key, value in facts.items())
