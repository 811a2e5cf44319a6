"""Submission control: the jobs that one user may send to trials within the time of a trial
(Chronus, 3.2.1).

A further job is refused, with the time to try again. Nothing waits here that its user may want to
change meanwhile. Nothing is stored; after a restart of the master the jobs that it loads count as
before.
"""

import math

from dlq_common.errors import TryAgain
from dlq_common.text.units import format_duration
from dlq_master.control.loop.turn import Turn
from dlq_master.control.placement.execution import look
from dlq_master.model.jobs.job import Job
from dlq_master.policy.admit.submission import refused


def is_set(turn: Turn) -> bool:
    """Whether there is such a limit. It looks at the family of each job."""
    rules = turn.state.policy.profiling
    return rules is not None and rules.submit_gpus is not None


def check(turn: Turn, job: Job, count: int) -> None:
    """Whether its user may send so many jobs like this one. Raises TryAgain."""
    rules = turn.state.policy.profiling
    if rules is None or rules.submit_gpus is None or job.blocked is not None:
        return  # who is blocked is looked at again when it may wait
    held = refused(look(turn), rules, job, count)
    if held is None:
        return
    wait_s = max(1, math.ceil(held.opens_s - turn.now_s))
    within = format_duration(rules.profile_s)
    raise TryAgain(
        f"{job.user} has sent jobs of {held.sent_gpus} GPUs to be profiled in the last {within}, "
        f"and may send {rules.submit_gpus}",
        hint=f"nothing was submitted; try again in {wait_s} s. A job that says how long it runs "
        "(--work) "
        "is not profiled",
        retry_after_s=wait_s,
        limit="submit_gpus",
    )
