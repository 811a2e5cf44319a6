"""`sattach` outside a job: the `sattach` inside it, with our input and our terminal's output.

The line may be cut: that ends this program alone, and the step goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.interactive.command import attended
from dlq_cli.lists.select import one_job
from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.allocate import holder
from dlq_cli.slurm.words import own_word
from dlq_client.inside.command import CommandInside
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest, NotFound


def main(app: App, words: Sequence[str]) -> None:
    """Join a step that runs: JOB.STEP."""
    named = next((word for word in words if not word.startswith("-")), "")
    job, dot, step = named.partition(".")
    if not dot or not step:
        raise SlurmSays("sattach: error: No job/step id specified: say sattach JOB.STEP")
    jobs = Jobs(app.connection())
    try:
        job_id = one_job(jobs, own_word(job)).job_id
    except (NotFound, InvalidRequest):
        raise InvalidRequest("Invalid job id specified") from None
    inside_words = [f"{job_id}.{step}" if word == named else word for word in words]
    inside = CommandInside(app.connection(), job_id, holder.listener(inside_words), kept=True)
    ended = attended(inside, stdin=True, raw=False)
    if ended.rank_ended:
        return
    code = exit_codes.SIGNALLED + ended.signal if ended.signal else ended.exit_code
    if code:
        raise exit_codes.Ended(code)
