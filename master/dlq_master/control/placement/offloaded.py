"""Plans that take long: a planning process makes them, while turns go on.

Almost every turn plans at once. If a plan would take long (`policy.elsewhere`), the turn ends
without it. After the commit the planner gets a snapshot. Its answer is a stimulus of a later turn,
which checks it again (`policy.legal.recheck`) and makes the changes that still hold. Until then:

- for new promises, everything else goes on;
- for the next slot, or a whole plan, nothing is decided, for `PATIENCE_S` at most;
- without a planner (it ended, hung, gave a malformed answer, or has another version) plans are made
  without solvers.

Nothing is stored: a restarted master asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from dlq_master.control.forecast.helper_health import HelperHealth
from dlq_master.control.loop.histogram import CALLS_S, Histograms
from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.cluster.drive import Happened
from dlq_master.model.ids import JobId
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.planner.plans import Answer
from dlq_master.planner.process import Facts, Write
from dlq_master.planner.snapshot import slices, take_promises
from dlq_master.planner.told import StateTold
from dlq_master.policy.elsewhere import Elsewhere, Stage
from dlq_master.policy.legal.recheck import Dropped, PlanBasis, basis_of, recheck
from dlq_master.policy.offload import hurried, may_take_long, plain, trapped, waiting
from dlq_master.policy.policy import Policy
from dlq_master.policy.turn import Decided, decide

# The longest wait for each stage. A slot is decided a lead (30 s) before it begins.
PATIENCE_S = {Stage.SLOT: 5.0, Stage.PLAN: 1.0, Stage.PROMISES: 0.0}
REST = 4.0  # the pause after a whole plan, as a multiple of its time
HURRIED = 2  # failures in a row after which plans are made without an integer program
FIRST_DISTRUST_S = 5.0  # the first pause of questions after useless answers; it doubles
LONGEST_DISTRUST_S = 300.0


class Planner(Protocol):
    """The port to the planning process (planner.process). `ready`: it takes questions."""

    @property
    def ready(self) -> bool: ...
    def ask(self, number: int, stage: str, write: Write) -> None: ...
    def facts(self) -> Facts: ...


class Planning(NamedTuple):
    """The state of the planner, for users. `process` None: there is none."""

    process: Facts | None = None
    useless: int = 0
    dropped: int = 0
    last_fault: str = ""


class PlanQuestion(NamedTuple):
    """The open question, and the state for which its answer holds."""

    number: int
    stage: Stage
    asked_s: float
    policy: Policy
    basis: PlanBasis


class Variants(NamedTuple):
    """The variants of a policy for plans on the loop (policy.offload)."""

    policy: Policy
    trapped: Policy
    waiting: Policy
    plain: Policy
    plain_waiting: Policy


@dataclass(slots=True)
class Offloaded:
    """The question to the planner and its answer. `planner` None: all plans are made in turns."""

    planner: Planner | None = None
    number: int = 0
    wanted: Stage | None = None  # the question to send after this turn's commit
    asked: PlanQuestion | None = None
    answer: Answer | None = None
    stirred: bool = False  # the cluster has changed since the question
    rest_until_s: float = 0.0  # no question for a whole plan before
    distrust_until_s: float = 0.0  # no question at all before
    useless: int = 0  # useless answers in a row
    dropped: int = 0  # changes that did not hold any more, in all
    faults: int = 0  # useless answers, in all
    last_fault: str = ""
    health: HelperHealth = field(default_factory=lambda: HelperHealth("planner"))
    plans: Histograms = field(default_factory=lambda: Histograms(CALLS_S, "stage"))
    delayed: set[JobId] = field(
        default_factory=set
    )  # jobs that were told that their verdict is delayed
    _variants: Variants | None = field(default=None, repr=False)

    def variants(self, policy: Policy) -> Variants:
        """The variants, made once for each policy."""
        known = self._variants
        if known is None or known.policy is not policy:
            made = (policy, trapped(policy), waiting(policy), plain(policy))
            known = self._variants = Variants(*made, waiting(plain(policy)))
        return known

    def quick(self, policy: Policy) -> Policy:
        """The policy without solvers, for reasons: they must not wait, and decide nothing."""
        return policy if self.planner is None else self.variants(policy).plain

    def told(self) -> Planning:
        """The state of the planner."""
        facts = None if self.planner is None else self.planner.facts()
        return Planning(facts, self.faults, self.dropped, self.last_fault)

    def heard(self, answer: Answer) -> bool:
        """Take an answer; False: it answers no open question."""
        if self.asked is None or self.asked.number != answer.number:
            return False
        self.answer = answer
        return True

    def ask(self, cluster: Cluster, policy: Policy, now_s: float, pause: ReasonCode | None) -> None:
        """Send the question of this turn, if there is one, after its commit."""
        stage, self.wanted = self.wanted, None
        if stage is None or self.planner is None or not self.planner.ready:
            return
        self.number += 1
        self.stirred = False
        self.asked = PlanQuestion(self.number, stage, now_s, policy, basis_of(cluster))
        view = View(cluster, now_s, pause)
        whole = stage is Stage.PLAN
        asks = hurried(policy) if self.health.failures >= HURRIED else policy

        def write(known: StateTold) -> Iterator[bytes]:
            return (
                slices(view, asks) if whole else iter([known.difference(take_promises(view, asks))])
            )

        self.planner.ask(self.number, stage.value, write)


Apply = Callable[[], Decided]


def decided(
    away: Offloaded,
    cluster: Cluster,
    policy: Policy,
    now_s: float,
    epoch: int,
    pause: ReasonCode | None,
) -> Decided:
    """As `policy.turn.decide`, but never for long: a plan that may take long is requested after
    this turn.
    """
    if away.planner is None or not may_take_long(policy):
        return decide(cluster, policy, now_s, epoch, pause_starts=pause)

    def by(variant: Policy) -> Decided:
        return decide(cluster, variant, now_s, epoch, pause_starts=pause)

    variants = away.variants(policy)
    if away.asked is not None:
        away.stirred = True
        return _meanwhile(away.asked, variants, now_s, by)
    if not away.planner.ready or now_s < away.distrust_until_s:
        again_s = max(away.distrust_until_s, now_s + max(1.0, away.planner.facts().rest_s))
        return _woken(by(variants.plain), again_s if cluster.to_judge() else None)
    first = by(variants.trapped)
    if not isinstance(first.fault, Elsewhere):
        return first
    stage = first.fault.stage
    if stage is Stage.PLAN and now_s < away.rest_until_s:
        return _after(first, by(variants.plain))
    away.wanted = stage
    if stage is Stage.PROMISES:
        rest = _or(by(variants.waiting), lambda: by(variants.plain_waiting))
        return _after(first, rest)
    return Decided(first.happened, now_s + PATIENCE_S[stage])


def _meanwhile(
    asked: PlanQuestion, variants: Variants, now_s: float, by: Callable[[Policy], Decided]
) -> Decided:
    """The decision while the planner works."""
    patient_s = asked.asked_s + PATIENCE_S[asked.stage]
    if asked.stage is not Stage.PROMISES:
        return by(variants.plain) if now_s >= patient_s else Decided((), patient_s)
    first = by(variants.waiting)
    if not isinstance(first.fault, Elsewhere):
        return first
    if first.fault.stage is Stage.SLOT:  # it has become due since
        patient_s = asked.asked_s + PATIENCE_S[Stage.SLOT]
        rest = by(variants.plain) if now_s >= patient_s else Decided((), patient_s)
        return _after(first, rest)
    return _after(first, by(variants.plain_waiting))


class Applied(NamedTuple):
    """The result of an answer; `wake_at_s` and `whole`: it was all there was to decide. `stage`
    None: none has come; `waited_s`: from the turn that asked.
    """

    stage: Stage | None = None
    waited_s: float = 0.0
    plan_s: float = 0.0
    happened: tuple[Happened, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    wake_at_s: float | None = None
    whole: bool = False


def apply(
    away: Offloaded,
    cluster: Cluster,
    policy: Policy,
    now_s: float,
    epoch: int,
    pause: ReasonCode | None,
) -> Applied:
    """Do what still holds of the answer that has come, if one has."""
    answer, question = away.answer, away.asked
    if answer is None or question is None:
        return Applied()
    away.answer = away.asked = None
    if answer.fault or question.policy is not policy:
        if answer.fault:
            _faulty(away, now_s, answer.fault)
        return Applied()
    happened: list[Happened] = []
    dropped: list[Dropped] = []
    basis = question.basis
    for plan in answer.plans:
        view = View(cluster, now_s, pause)
        rechecked = recheck(view, plan, policy, basis)
        dropped += rechecked.dropped
        happened += drive.apply(cluster, rechecked.plan, now_s, epoch)
        basis = basis_of(cluster)
    _judge(away, question, answer, now_s, len(happened), dropped)
    wake_s = answer.plans[-1].wake_at_s if answer.plans else None
    whole = question.stage is Stage.PLAN and not away.stirred and not dropped
    return Applied(
        stage=question.stage,
        waited_s=now_s - question.asked_s,
        plan_s=answer.plan_s,
        happened=tuple(happened),
        dropped=tuple(dropped),
        wake_at_s=wake_s,
        whole=whole,
    )


# --- helpers, in order of use ---------------------------------------------------------------------


def _or(first: Decided, otherwise: Callable[[], Decided]) -> Decided:
    """The first, or what is done where it would take long."""
    return _after(first, otherwise()) if isinstance(first.fault, Elsewhere) else first


def _after(first: Decided, rest: Decided) -> Decided:
    return rest._replace(happened=(*first.happened, *rest.happened))


def _woken(decided: Decided, at_s: float | None) -> Decided:
    """Jobs that nobody has judged yet are no event: somebody has to remember them."""
    if at_s is None or decided.fault is not None:
        return decided
    wake_s = decided.wake_at_s
    return decided._replace(wake_at_s=at_s if wake_s is None else min(wake_s, at_s))


def _faulty(away: Offloaded, now_s: float, why: str) -> None:
    """One that died or hung rests by itself, and another one takes its place; a bug would be met
    again.
    """
    if away.planner is not None and away.planner.facts().rest_s > 0.0:
        away.health.failed(why, now_s)
        away.faults += 1
        away.last_fault = why
    else:
        _useless(away, now_s, why)


def _useless(away: Offloaded, now_s: float, why: str) -> None:
    away.faults += 1
    away.useless += 1
    away.last_fault = why
    away.health.failed(why, now_s)
    pause_s = min(FIRST_DISTRUST_S * 2.0 ** (away.useless - 1), LONGEST_DISTRUST_S)
    away.distrust_until_s = now_s + pause_s


def _judge(
    away: Offloaded,
    question: PlanQuestion,
    answer: Answer,
    now_s: float,
    done: int,
    dropped: list[Dropped],
) -> None:
    """Whether it was of use. One that was not, although nothing has happened meanwhile, would be no
    better if it were asked for again."""
    away.plans.of(question.stage.value).observe(answer.plan_s)
    away.dropped += len(dropped)
    away.rest_until_s = now_s + REST * max(answer.plan_s, now_s - question.asked_s)
    if dropped and not done and not away.stirred:
        _useless(away, now_s, f"nothing of its plan could be done: {dropped[0].why}")
    else:
        away.useless = 0
        away.health.answered()
