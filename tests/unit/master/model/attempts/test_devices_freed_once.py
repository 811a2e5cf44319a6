"""Random events against the attempt's machine: its devices are freed exactly once, at its end."""

from collections.abc import Mapping

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dlq_master.model.attempts import attempt_steps
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.jobs.job import EndReason
from dlq_master.model.transitions import IllegalStep, StopCause
from support.builders import World, a_waiting_job, an_attempt

PLAIN = (
    attempt_steps.Preparing,
    attempt_steps.Starting,
    attempt_steps.Running,
    attempt_steps.NodeSilent,
    attempt_steps.ReturnedAssigned,
    attempt_steps.ReturnedPreparing,
    attempt_steps.ReturnedStarting,
    attempt_steps.ReturnedRunning,
    attempt_steps.ReturnedPausing,
    attempt_steps.Succeeded,
    attempt_steps.Preempted,
    attempt_steps.PreemptedLost,
    attempt_steps.Cancelled,
    attempt_steps.TimedOut,
    attempt_steps.NodeLost,
)


class AttemptStory(RuleBasedStateMachine):
    """One attempt, told anything in any order; what its table refuses changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.attempt = an_attempt(slots=[("n1", 0b11), ("n2", 0b11)])
        world = World(nodes=2).submit(a_waiting_job(1, 4, live_attempt=1, attempts=1))
        self.cluster = world.cluster
        self.cluster.put_attempt(self.attempt)
        self.now_s = 0.0

    def tell(self, event: attempt_steps.AttemptEvent) -> None:
        self.now_s += 1.0
        before = self.attempt
        try:
            self.attempt = attempt_steps.step(before, event, at_s=self.now_s)
        except IllegalStep:
            assert (before.state, type(event)) not in attempt_steps.TABLE
            return
        self.cluster.put_attempt(self.attempt)

    @rule(kind=st.sampled_from(PLAIN))
    def a_plain_event(self, kind: type[attempt_steps.Preparing]) -> None:
        self.tell(kind())

    @rule(cause=st.sampled_from(StopCause), grace_s=st.floats(0.0, 300.0))
    def a_stop(self, cause: StopCause, grace_s: float) -> None:
        self.tell(attempt_steps.StopRequested(cause=cause, grace_s=grace_s))

    @rule(reason=st.sampled_from(EndReason), code=st.integers(0, 255))
    def a_failure(self, reason: EndReason, code: int) -> None:
        self.tell(attempt_steps.Failed(reason=reason, exit_code=code))

    @rule()
    def a_failed_start(self) -> None:
        self.tell(attempt_steps.StartFailed(detail="barrier"))

    @invariant()
    def freed_exactly_when_ended(self) -> None:
        capacity = self.cluster.capacity
        capacity.ready()
        held = {slot.node_id: slot.mask for slot in self.attempt.lease.allocation.slots}
        assert capacity.free_gpus == (12 if self.attempt.live else 16)
        assert _claimed(capacity.claims) == (held if self.attempt.live else {})
        assert capacity.soon == (held if self.attempt.state is AttemptState.PAUSING else {})

    @invariant()
    def service_never_runs_backwards(self) -> None:
        assert 0.0 <= self.attempt.executed_s(self.now_s) <= self.now_s


def _claimed(claims: Mapping[NodeId, Mapping[AttemptKey, int]]) -> dict[NodeId, int]:
    return {node_id: mask for node_id, held in claims.items() for mask in held.values()}


TestAttemptStory = AttemptStory.TestCase
