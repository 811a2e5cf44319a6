"""`scontrol write batch_script`: the script of a job, of the caller's own or by an operator."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from dlq_cli.app import App
from dlq_cli.output.said import SlurmSays
from dlq_cli.output.terminal import screened
from dlq_client.jobs import Jobs
from dlq_common.errors import DlqError, NotFound

_MODE = 0o700
_GONE = "job script retrieval failed: Invalid job id specified"


def write(app: App, rest: Sequence[str]) -> None:
    """To slurm-JOB.sh, to a named file, or with `-` to stdout."""
    if len(rest) < 2 or rest[0].lower() not in ("batch_script", "batchscript"):
        what = rest[0][:40] if rest else ""
        raise SlurmSays(f"invalid write argument:{what}")
    job_id = rest[1]
    try:
        answer = Jobs(app.connection()).get(job_id)
    except NotFound:
        raise SlurmSays(_GONE, code=0) from None  # its exit code is 0 there
    except DlqError as error:
        raise SlurmSays(f"job script retrieval failed: {error.what}", code=0) from None
    script = answer.spec.script
    if not script:
        raise SlurmSays("job script retrieval failed: Requested job has no script", code=0)
    name = rest[2] if len(rest) > 2 else f"slurm-{job_id}.sh"
    if name == "-":
        shown = screened(script) if app.look().tty else script
        click.echo(shown, nl=not script.endswith("\n"))
        return
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(script)
    except OSError as error:
        raise SlurmSays(f"failed to open file `{name}`: {error.strerror}") from None
    click.echo(f"batch script for job {job_id} written to {name}")
