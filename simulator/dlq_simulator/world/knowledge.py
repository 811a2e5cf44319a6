"""The policy's knowledge of run times: none, an estimate after a trial, or the truth."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from random import Random

from dlq_master.policy.policy import Know
from dlq_master.policy.trial.rules import PROFILE_S
from dlq_simulator.workload import TraceJob

# Time to communicate over time to compute, where a row does not say.
_COMMUNICATION = 0.2
# An estimate is never below this part of the run time, however wide the noise.
_LEAST = 0.1
# A trial never says that a job takes no time at all.
_LEAST_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """`profile_s`: seconds that a job must run before it is `profiled`; they are part of its run
    time.

    `noise`: the standard deviation of an estimate, as a share of the run time (Chronus, figure 6d).
    """

    know: Know = Know.UNKNOWN
    profile_s: float = PROFILE_S
    noise: float = 0.2
    seed: int = 0
    trials: bool = False
    stands_in: bool = True

    def at_submit(self, row: TraceJob) -> float | None:
        """The run time known from the start, in seconds on the reference; None: unknown.

        A job that is to be measured ranks as one that ends with its trial. Ranked last, among jobs
        that stay unknown, its trial would come too late to help. A policy that makes trials itself
        (`trials`) chooses the jobs to try. A policy that knows which jobs are unmeasured needs no
        substitute for an estimate (`stands_in`).
        """
        if self.know is Know.PROFILED:
            return self.profile_s if self.stands_in and not self.trials else None
        return row.duration_s if self.know is Know.KNOWN else None

    def paces(self, row: TraceJob, nodes: int) -> tuple[float, float]:
        """The seconds for all its work at the pace of a trial on one node, and of one on two.

        That is the world of the two-node model. Computing takes the same time on every node, and
        each doubling adds a step of communication. The step is `rho` of the computing if the row
        has one.
        """
        share = _COMMUNICATION if row.rho is None else float(row.rho)
        one_s = self.after_trial(row) / (1.0 + share * log2(nodes))
        return one_s, one_s * (1.0 + share)

    def after_trial(self, row: TraceJob) -> float:
        """The estimate: run time x (1 + noise x z), with a normal z.

        It is drawn from the seed and the job's name, so that neither other jobs nor the order of
        events changes it.
        """
        z = Random(f"{self.seed}:{row.job_id}").gauss(0.0, 1.0)
        return max(_LEAST_S, float(row.duration_s * max(_LEAST, 1.0 + self.noise * z)))
