"""The questions of the master to its twin.

The twin (`dlq_simulator.twin`) is a process that the master starts. Questions are values of the
model as bytes (`planner.snapshot`), written by the master alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.cluster.frozen import Frozen, freeze, thaw
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.node import Node
from dlq_master.planner.forecasts import Changes, PastRuns
from dlq_master.planner.snapshot import Unreadable, dumps, loads
from dlq_master.policy.adopt import adopt
from dlq_master.policy.policy import Policy
from dlq_master.policy.registry.registry import build

_AS_IT_IS = Changes()


class Values(NamedTuple):
    """The part of a state that is large."""

    jobs: tuple[Job, ...]
    attempts: tuple[Attempt, ...]
    nodes: tuple[Node, ...]


class PlannedState(NamedTuple):
    """A cluster at an instant, on its way into bytes.

    The knowledge of a cluster goes on changing: `learned` is written at once. The values never
    change: they may be written down in another thread.
    """

    policy: str
    settings: Mapping[str, str]
    now_s: float
    learned: bytes
    values: Values


def state_of(cluster: Cluster, policy: Policy, now_s: float) -> PlannedState:
    """O(jobs), and none is copied: some milliseconds for ten thousand."""
    frozen = freeze(cluster)
    learned = dumps(frozen._replace(jobs=(), attempts=(), nodes=()))
    values = Values(frozen.jobs, frozen.attempts, frozen.nodes)
    return PlannedState(policy.name, dict(policy.settings), now_s, learned, values)


def look(
    number: int, state: PlannedState, past: Sequence[PastRuns], recent: Sequence[Job], cpu_s: float
) -> bytes:
    """Foresee all that wait in at most `cpu_s` of CPU time, and keep the state for further
    questions.

    `past`: jobs that are over; `recent`: the jobs submitted last, the oldest first.
    """
    content = {
        "do": "look",
        "number": number,
        "state": (state.policy, state.settings, state.now_s, state.learned),
        "values": tuple(state.values),
        "past": [tuple(job) for job in past],
        "recent": tuple(recent),
        "cpu_s": cpu_s,
    }
    return dumps(content)


def ask(number: int, job: Job, cpu_s: float) -> bytes:
    """When this one would start and end, whether it is there or not."""
    return dumps({"do": "ask", "number": number, "job": job, "cpu_s": cpu_s})


def what_if(number: int, changes: Changes, cpu_s: float) -> bytes:
    """Foresee all once more, with other nodes or another policy."""
    plain = tuple(changes._replace(settings=dict(changes.settings)))
    return dumps({"do": "what_if", "number": number, "changes": plain, "cpu_s": cpu_s})


class Question(NamedTuple):
    """One of the above, read again."""

    do: str
    number: int
    cpu_s: float
    content: Mapping[str, Any]


class KeptQuestions(NamedTuple):
    """The state of the last look: a cluster can be made of it as often as one is wanted."""

    state: tuple[str, Mapping[str, str], float, bytes]
    values: Values
    past: tuple[PastRuns, ...]
    recent: tuple[Job, ...]

    @property
    def now_s(self) -> float:
        return self.state[2]

    def thaw(self, changes: Changes = _AS_IT_IS) -> tuple[Cluster, Policy]:
        """A cluster of its own, and the policy."""
        name, settings, _, learned = self.state
        policy = build(name, settings)
        known: Frozen = loads(learned)
        frozen = known._replace(**self.values._asdict())
        cluster = thaw(frozen, policy.ordering)
        if not changes.policy:
            return cluster, policy
        other = build(changes.policy, changes.settings)
        return adopt(cluster, policy.ordering, other).cluster, other


def read_question(data: bytes) -> Question:
    """Raises Unreadable."""
    content = loads(data)
    try:
        return Question(content["do"], content["number"], content["cpu_s"], content)
    except (KeyError, TypeError) as error:
        raise Unreadable(f"no question: {error}") from None


def kept(question: Question) -> KeptQuestions:
    content = question.content
    past = tuple([PastRuns(*job) for job in content["past"]])
    return KeptQuestions(content["state"], Values(*content["values"]), past, content["recent"])


def changes_of(question: Question) -> Changes:
    return Changes(*question.content["changes"])
