"""The presets of baselines, by the names of their papers."""

from __future__ import annotations

from types import MappingProxyType

from dlq_baselines.deadlines import earliest_deadline, earliest_deadline_of_all, least_laxity
from dlq_baselines.genie_sizes import SizedByDeadline
from dlq_baselines.pollux import POLLUX_SIZING, fewest_base
from dlq_baselines.themis import Auction
from dlq_baselines.three_sigma import Chances
from dlq_baselines.three_sigma_program import PlannedStarts
from dlq_baselines.yarn_cs import QueueByQueue
from dlq_master.policy.order.by_key import always, longest_waiting
from dlq_master.policy.order.stage import KEPT_ORDER
from dlq_master.policy.policy import Know
from dlq_master.policy.registry.presets import COMMON, GUARDED, PLACE, Preset
from dlq_master.policy.registry.settings import PolicySettings
from dlq_master.policy.size.choices import GROW_SHRINK


def _chances(chosen: PolicySettings) -> Chances:
    """Run times that are known have no distribution."""
    return Chances.normal(0.0 if chosen.know is Know.KNOWN else chosen.errors)


def _three_sigma(chosen: PolicySettings) -> Chances | PlannedStarts:
    chances = _chances(chosen)
    return PlannedStarts(chances, chosen.solver_s) if chosen.by_program else chances


YARN_CS = Preset(
    "a static quota for each queue, and in it the order of arrival; nobody of the queue "
    "passes a job that does not fit yet",
    (*COMMON, "quota"),
    blocking=True,
    divides=lambda chosen: QueueByQueue(chosen.quotas),
)
THEMIS = Preset(
    "whose sharing costs most first, by finish time in the shared cluster over that alone; "
    "preempts at boundaries",
    (*COMMON, "know", "fairness", *GUARDED),
    preempts=True,
    knows=True,
    order=lambda chosen: Auction(fairness=chosen.fairness),
)
EDF = Preset(
    "the earliest deadline first; SLO jobs preempt best-effort ones at boundaries, never "
    "each other",
    (*COMMON, *GUARDED),
    preempts=True,
    key=always(earliest_deadline),
)
EDF_PREEMPTIVE = Preset(
    "the earliest deadline first; SLO jobs preempt each other and best-effort ones at boundaries",
    (*COMMON, *GUARDED),
    preempts=True,
    key=always(earliest_deadline_of_all),
)
THREE_SIGMA = Preset(
    "the most expected reward for what it takes first; SLO jobs preempt best-effort ones "
    "at boundaries, never each other",
    (*COMMON, "know", "errors", "plan", "solver_s", *GUARDED),
    preempts=True,
    knows=True,
    order=_three_sigma,
)
GENIE = Preset(
    "the smallest laxity first; SLO jobs preempt best-effort ones at boundaries, never each other",
    (*COMMON, "know", "sizes", *GUARDED),
    preempts=True,
    knows=True,
    key=always(least_laxity),
    order=lambda chosen: SizedByDeadline() if chosen.chooses_sizes else KEPT_ORDER,
)
GANDIVA = Preset(
    "in turns of a minute: the job with the longest wait takes over from the longest turn",
    (*PLACE, *GUARDED),
    preempts=True,
    key=always(longest_waiting),
    # A job stops between two mini-batches and stays in the memory of its host.
    replayed=MappingProxyType({"term_s": "60", "save_s": "0", "resume_s": "1"}),
)
GANDIVA_ELASTIC = Preset(
    "elastic: bases in the order of arrival; while nobody waits, jobs grow on their own "
    "nodes, and shrink when somebody does, at boundaries",
    COMMON,
    sizing=GROW_SHRINK,
)
POLLUX = Preset(
    "elastic: bases narrowest first, then the sizes with the greatest harmonic mean of the jobs' "
    "speedups by goodput (Pollux); resizes at boundaries, preempts nobody",
    (*COMMON, "cooldown_s"),
    key=always(fewest_base),
    sizing=POLLUX_SIZING,
    simulated="it divides GPUs by goodput, and no job tells a master the noise of its gradient; "
    "'afs' divides them by measured speeds",
)
