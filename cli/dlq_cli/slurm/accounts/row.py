"""A line of sacct: a job, or one of its steps."""

from __future__ import annotations

from collections.abc import Sequence

from dlq_cli.lists.slurm_states import account_state
from dlq_cli.slurm.job_words import uid
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_cli.slurm.jobs.steps import SeenStep


class AccountRow:
    """The facts that a job and a step have both."""

    __slots__ = ("job", "own", "step")

    def __init__(
        self, job: SeenJob, step: SeenStep | None = None, own: Sequence[SeenStep] = ()
    ) -> None:
        """`own`: the steps of a job, for the line of the job."""
        self.job, self.step = job, step
        self.own: Sequence[SeenStep] = own if step is None else (step,)

    @property
    def shown_id(self) -> str:
        return self.step.shown_id if self.step else self.job.shown_id

    @property
    def raw_id(self) -> str:
        return self.step.raw_id if self.step else self.job.raw_id

    @property
    def name(self) -> str:
        return self.step.name if self.step else self.job.job.name

    @property
    def nodes(self) -> Sequence[str]:
        return self.step.nodes if self.step else self.job.nodes

    @property
    def node_count(self) -> int:
        """Of those that it has or had."""
        return self.step.node_count if self.step else len(self.job.nodes)

    @property
    def cpus(self) -> int:
        return self.step.cpus if self.step else self.job.cpus

    @property
    def tasks(self) -> int:
        return self.step.tasks if self.step else self.job.tasks

    @property
    def state(self) -> str:
        """A job that a person cancelled names the person's number, where it is known."""
        if self.step:
            return self.step.state
        word, who = account_state(self.job.job), self.job.canceller
        return f"{word} by {uid(who)}" if who else word

    @property
    def exit_text(self) -> str:
        one = self.step or self.job.job
        return f"{one.exit_code}:{one.exit_signal}"

    @property
    def elapsed_s(self) -> int:
        return int(self.step.run_s if self.step else self.job.run_s)

    @property
    def start_s(self) -> float:
        if self.step:
            return self.step.start_s
        return 0.0 if self.job.code == "PD" else self.job.began_s

    @property
    def end_s(self) -> float:
        if self.step:
            return self.step.end_s
        return self.job.end_s if self.job.ended else 0.0

    @property
    def eligible_s(self) -> float:
        return self.step.start_s if self.step else self.job.eligible_s

    @property
    def waited_s(self) -> int:
        """From the time at which it could have started to its start."""
        if not self.eligible_s or self.eligible_s > self.job.now_s:
            return 0
        return max(0, int((self.start_s or self.end_s or self.job.now_s) - self.eligible_s))
