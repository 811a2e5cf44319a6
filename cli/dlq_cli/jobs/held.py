"""Messages about a hold for people who wait for the job: one for each hold, with its reason."""

from __future__ import annotations

from dlq.v1 import job_pb2
from dlq_cli.app import App
from dlq_cli.lists.story import reason_text
from dlq_cli.words import HOLD_KINDS, shown_state
from dlq_client.jobs import Jobs


def is_poison(job: job_pb2.Job) -> bool:
    """Whether it is held because its starts fail again and again: it will not go on by itself."""
    return shown_state(job) == "held" and job.hold_kind == job_pb2.HOLD_KIND_POISON


class HoldTeller:
    """Prints holds on stderr; one for each command, however many of its parts wait."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._told: set[str] = set()

    def look(self, job: job_pb2.Job) -> None:
        """Print the hold, if this value of the job is its first."""
        if shown_state(job) != "held":
            self._told.discard(job.job_id)
        elif job.job_id not in self._told:
            self._told.add(job.job_id)
            self._app.say(f"job {job.job_id} is on hold: {self._why(job)}")

    def _why(self, job: job_pb2.Job) -> str:
        jobs = Jobs(self._app.connection())
        reasons = [reason_text(reason) for reason in jobs.explain(job.job_id).reasons]
        why = "; ".join(reasons) or " ".join(
            filter(None, (HOLD_KINDS.get(job.hold_kind), job.hold_reason))
        )
        cause = _last_cause(jobs, job.job_id) if is_poison(job) else ""
        return f"{why}; last cause: {cause}" if cause else why


def _last_cause(jobs: Jobs, job_id: str) -> str:
    """The failure of its last attempt, in the words of the first node that has any."""
    for attempt in list(jobs.get(job_id).attempts)[-1:]:
        for rank in attempt.ranks:
            if rank.error:
                return f"{rank.error} ({rank.node_id})"
    return ""
