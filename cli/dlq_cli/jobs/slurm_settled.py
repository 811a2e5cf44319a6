"""The account and the nodes of a Slurm job, settled with the master when it is submitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from dlq.v1 import job_pb2, job_service_pb2
from dlq_cli.app import App
from dlq_cli.jobs.whole_nodes import take_all_cores, take_whole_nodes
from dlq_cli.output.said import SlurmSays
from dlq_cli.spec.slurm.request import ACCOUNT, ALL_MEMORY, FEWEST, WHOLE
from dlq_cli.spec.validate import Spec
from dlq_client.jobs import Jobs
from dlq_client.nodes import Nodes
from dlq_client.teams import Teams
from dlq_common.errors import TryAgain, Unsatisfiable

T = TypeVar("T")
_BUSY = "Slurm temporarily unable to accept job, sleeping and retrying"
_CORES = "a job that names no GPU gets cores: --gpus=1 asks for a GPU"


def settle_account(app: App, spec: Spec, message: job_pb2.JobSpec) -> None:
    """An account is the team with that name. Another name is an error in Slurm's words.

    A user without teams may name any account, as programs always name one.
    """
    if spec.origins.get("team") != ACCOUNT or not message.team:
        return
    names = {team.name for team in Teams(app.connection()).list().teams}
    if not names:
        message.team = ""
    elif message.team not in names:
        what = "Invalid account or account/partition combination specified"
        raise SlurmSays(f"sbatch: error: Batch job submission failed: {what}")


def settle_nodes(app: App, spec: Spec, message: job_pb2.JobSpec) -> None:
    """A script with --exclusive gets its whole nodes, one with --mem=0 all of their memory."""
    origin = spec.origins.get("nodes")
    if origin in (WHOLE, ALL_MEMORY):
        take = take_whole_nodes if origin == WHOLE else take_all_cores
        take(message.resources, Nodes(app.connection()).list())


def submit_on_fewest(
    jobs: Jobs,
    spec: Spec,
    message: job_pb2.JobSpec,
    *,
    request_id: str,
    test_only: bool,
    brief: bool = False,
) -> job_service_pb2.SubmitJobResponse:
    """Submit it.

    A Slurm script without a number of nodes is spread over several if one node could never hold it.
    A refusal queues nothing, so the second request has a key of its own.
    """
    try:
        return _submit(jobs, message, request_id=request_id, test_only=test_only, brief=brief)
    except Unsatisfiable:
        if spec.origins.get("nodes") != FEWEST or not message.resources.HasField("node_count"):
            raise
        message.resources.ClearField("node_count")
        key = f"{request_id}-spread"
        return _submit(jobs, message, request_id=key, test_only=test_only, brief=brief)


def patiently(app: App, send: Callable[[], T], program: str = "sbatch") -> T:
    """The answer of `send`, which is repeated while the master refuses for now, as Slurm's programs
    do.

    It says so once, and gives up when the patience is over. Such a refusal has queued nothing, and
    says when to come again.
    """
    patience = app.connection().patience(app.settings.number("patience_s") or 0.0)
    told = False
    while True:
        try:
            return send()
        except TryAgain as error:
            if "retry_after_s" not in error.metadata:
                raise
            if not told:
                click.echo(f"{program}: error: {_BUSY}", err=True)
                told = True
            if not patience.wait():
                raise


def _submit(
    jobs: Jobs, message: job_pb2.JobSpec, *, request_id: str, test_only: bool, brief: bool
) -> job_service_pb2.SubmitJobResponse:
    """Submit it. A refused script that names no GPU is told how to ask for one."""
    try:
        return jobs.submit(message, request_id=request_id, validate_only=test_only, brief=brief)
    except Unsatisfiable as error:
        if message.tasks.implied and message.resources.core_count:
            error.hint = _CORES
        raise
