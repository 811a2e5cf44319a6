"""The loop's state of nodes beside the cluster: their sessions, and the reports of agents about
GPUs and ranks. Only `instances` is stored; every hello reports the rest anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dlq_master.control.attempts.quarantine import Suspicion
from dlq_master.control.attempts.ranks import PHASES, RankRole
from dlq_master.control.config import MasterConfig
from dlq_master.control.loop.turn import Steps, Turn
from dlq_master.control.nodes.contacts import Contacts
from dlq_master.control.stimuli import CheckNodes, ReportedPhase, ReportedRank, SubmitJob
from dlq_master.control.stimuli.jobs import CheckOrder
from dlq_master.control.stimuli.nodes import AgentInstance
from dlq_master.model.attempts.attempt import Attempt, AttemptState, RankPhase
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.gpu_health import Action, Figures, actions_of
from dlq_master.model.nodes.node import LastCheck
from dlq_master.store.batch import Loaded

META = "agent:"  # key of meta, before the node's id


class MasterBoots(NamedTuple):
    """The boots of the hosts of the former master and of this one, as 32 digits; "": unknown."""

    former: str = ""
    present: str = ""


@dataclass(slots=True)
class Instances:
    """`heard`: the agent that opened the last session. `known`: agents whose memory accounts for
    everything placed there.
    """

    heard: dict[NodeId, AgentInstance] = field(default_factory=dict)
    known: dict[NodeId, AgentInstance] = field(default_factory=dict)
    refused: dict[NodeId, AgentInstance] = field(default_factory=dict)  # and not yet told
    told: dict[NodeId, str] = field(default_factory=dict)  # whose refusal is in the journal
    boots: MasterBoots = field(default_factory=MasterBoots)


def restore_instances(instances: Instances, meta: Mapping[str, str]) -> None:
    """The row that `instances.remember` has stored."""
    for key, stored in meta.items():
        if key.startswith(META) and stored:
            heard, known = json.loads(stored)
            node_id = NodeId(key.removeprefix(META))
            instances.heard[node_id] = AgentInstance(*heard)
            instances.known[node_id] = AgentInstance(*known)


Rank = tuple[AttemptKey, int]


# An agent that cannot give the GPUs of a rank back says why. It says so with the rank's end, or, if
# it cannot know that this is the end, with STOPPING. So the words begin when that has taken too
# long.
CLINGS = ("gpu_not_released", "unkillable", "look_timeout")


class UnreleasedRank(NamedTuple):
    """An agent's report of a rank whose GPUs cannot be given back."""

    why: str
    ended: bool  # nothing of it runs: its attempt may be over, and its GPUs belong to nobody
    gpu_indexes: tuple[int, ...]  # of its launch; empty: the agent does not know


class CheckRoom(NamedTuple):
    """The functions of the room `checks`: it is loaded, and handed in, where checks are configured.

    `check` begins a check that is asked for, `take` judges ends, `watch` looks once a second, and
    `settle` before each plan. `make` is the submission of a check.
    """

    check: Callable[[Turn, CheckNodes], Job]
    take: Callable[[Turn, Steps], None]
    watch: Callable[[Turn], None]
    settle: Callable[[Turn], None]
    make: Callable[[CheckOrder], SubmitJob]


@dataclass(slots=True)
class Checks:
    """Checks of nodes (the room `checks`). Nothing is stored beside their jobs and events; a master
    that starts knows of no earlier result.

    `room`: None where none are configured. `living`: the jobs that check now; `first`: those of
    them that no job ends. `marked`: nodes that joined or were undrained, and when; `known`: since
    when nodes are known. `overdue`: nodes whose check goes before jobs. `partners`: those with
    which a node failed all-reduces since the last one that passed. `wide`: jobs that begin after
    checks, and when at the latest; `asked_for`: those for which nodes were marked. `suspects`: when
    nodes were last marked as suspected stragglers, and by whose jobs.
    """

    room: CheckRoom | None = None
    living: set[JobId] = field(default_factory=set)
    first: set[JobId] = field(default_factory=set)
    overdue: set[NodeId] = field(default_factory=set)
    known: dict[NodeId, float] = field(default_factory=dict)
    suspects: dict[NodeId, tuple[float, str]] = field(default_factory=dict)
    last: dict[NodeId, dict[str, LastCheck]] = field(default_factory=dict)
    marked: dict[NodeId, dict[str, float]] = field(default_factory=dict)
    boots: dict[NodeId, str] = field(default_factory=dict)
    drained: set[NodeId] = field(default_factory=set)
    partners: dict[NodeId, set[NodeId]] = field(default_factory=dict)
    wide: dict[JobId, float] = field(default_factory=dict)
    asked_for: set[JobId] = field(default_factory=set)
    look_s: float = 0.0
    looked: bool = False  # once: nodes that are new since then have joined


@dataclass(slots=True)
class NodesState:
    """By node. `unowned`: ranks that run, or may start, and belong to no living attempt, with their
    GPUs, which are not free. `unreleased`: ranks that should be gone and whose GPUs cannot be given
    back. `unaccounted`: ranks that may run although their agent has no record of them, and since
    when; `unexplained`: processes that the agent found and cannot explain.
    """

    gpu_actions: Mapping[str, Action]  # the configured action for each symptom
    sessions: dict[NodeId, int] = field(default_factory=dict)
    next_session: int = 1
    contacts: Contacts = field(default_factory=Contacts)
    greeted: set[NodeId] = field(default_factory=set)  # nodes that said hello to this master
    holds_sent: dict[NodeId, int] = field(default_factory=dict)  # hold revision its ranks have
    unowned: dict[NodeId, dict[Rank, tuple[int, ...]]] = field(default_factory=dict)
    unreleased: dict[NodeId, dict[Rank, UnreleasedRank]] = field(default_factory=dict)
    unaccounted: dict[NodeId, dict[Rank, float]] = field(default_factory=dict)
    unexplained: dict[NodeId, frozenset[Rank]] = field(default_factory=dict)
    instances: Instances = field(default_factory=Instances)
    gpu_figures: dict[NodeId, dict[int, Figures]] = field(default_factory=dict)
    # GPUs that did nothing at the last report, and nodes of which the metrics have not seen it yet
    unused_gpus: dict[NodeId, frozenset[int]] = field(default_factory=dict)
    use_moved: dict[NodeId, None] = field(default_factory=dict)
    failures: Suspicion = field(default_factory=Suspicion)  # evidence against nodes
    checks: Checks = field(default_factory=Checks)

    @classmethod
    def begin(cls, config: MasterConfig) -> NodesState:
        """The slice of an empty cluster."""
        return cls(gpu_actions=actions_of(config.health.actions))

    def restore(self, loaded: Loaded, now_s: float) -> None:
        """Take over what is stored. Every silence starts now."""
        self.contacts = Contacts((node.node_id for node in loaded.nodes), now_s)
        restore_instances(self.instances, loaded.meta)
        self.checks.living = {job.job_id for job in loaded.jobs if job.check and not job.ended}

    def note_figures(self, node_id: NodeId, figures: dict[int, Figures]) -> None:
        """The last measurements of the node's GPUs, all of them."""
        self.gpu_figures[node_id] = figures
        unused = frozenset(
            gpu
            for gpu, one in figures.items()
            if (one.utilization_percent == 0 if one.idle_s is None else one.idle_s > 0.0)
        )
        if self.unused_gpus.get(node_id, frozenset()) != unused:
            self.unused_gpus[node_id] = unused
            self.use_moved[node_id] = None

    def note_clinging(self, node_id: NodeId, report: ReportedRank, found: RankRole) -> None:
        """Whether the GPUs of a rank that has ended cannot be given back, as its agent says.

        An agent that has just been started may not have looked again at a rank whose end is known.
        """
        here = self.unreleased.setdefault(node_id, {})
        rank = (report.key, report.node_rank)
        if report.gpus_held:
            here[rank] = UnreleasedRank(report.gpus_held, True, report.gpu_indexes)
        elif found is RankRole.GONE and PHASES[report.phase] is not RankPhase.EXITED:
            here[rank] = UnreleasedRank("not looked at yet", True, report.gpu_indexes)
        elif report.phase is ReportedPhase.STOPPING and report.error.startswith(CLINGS):
            here[rank] = UnreleasedRank(report.error, False, report.gpu_indexes)
        else:
            here.pop(rank, None)

    def is_unaccounted(self, attempt: Attempt) -> bool:
        """Whether a rank of this attempt may run where the agent has no record of it."""
        if attempt.state is not AttemptState.UNKNOWN:
            return False
        nodes = {status.node_id for status in attempt.ranks}
        return any(
            attempt.key == key for node in nodes for key, _ in self.unaccounted.get(node, {})
        )
