"""The journal of a real master as the plot of a world: what people asked for, and when.

Jobs keep their shape, their run times, their deadlines and how they left. Arrays and groups come as
one, and jobs after those that they waited for. Cancels, holds, releases and drains of people come
when they came. Users become the clients of the world, in the order of their names. The policy is
the one that decided last, where the world knows it.

The trouble that the journal tells of comes when it came: starts of masters, and nodes that were
silent. A seed can draw more, as for every world.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.eligible import Array, Relation
from dlq_master.model.jobs.job import Job
from dlq_master.store.batch import ALL_ENDED, Loaded, MemoryWindow
from dlq_master.store.tables.chosen_policy import CHOSEN, read_chosen
from world.stage.acts import CLIENTS, Act, Settings
from world.stage.plot import POLICIES, TROUBLE, Plot
from world.stage.tape import Tape

LONGEST_RUN_S = 150.0  # longer runs are cut: the world is to end
LONGEST_CUT_S = 150.0
MOST_GPUS = 16  # of one node; the bits of larger ones would say nothing more
EDITS = {"job_cancelled": "cancel", "job_held": "hold", "job_released": "release"}
DRAINS = {"node_flag_set": "drain", "node_flag_cleared": "undrain"}
EVERYTHING = 10_000_000
TAIL_S = 30.0
DIES_BEFORE_S = 2.0  # a master, before its next start
_SILENT = re.compile(r"silent for ([0-9.]+) s")

Facts = dict[str, Any]


class Told(Protocol):
    """A master's database."""

    def load(self, window: MemoryWindow = ALL_ENDED) -> Loaded: ...
    def events(
        self, after: int, limit: int, job_id: JobId | None = None
    ) -> Sequence[JournalEvent]: ...
    def job(self, job_id: JobId) -> Job | None: ...


class _Names(NamedTuple):
    """The names in the world of the nodes and users there."""

    nodes: Mapping[NodeId, str]
    users: Sequence[str]

    def client(self, job: Job) -> str:
        """Who asks for it."""
        clients = sorted(CLIENTS)
        return clients[self.users.index(job.user) % len(clients)]


def plot_of(
    told: Told, seed: int, *, from_s: float = 0.0, most_s: float = 600.0, trouble: bool = True
) -> Plot:
    """The plot of `most_s` seconds of a journal, from `from_s` after its first event. `trouble`:
    more than the journal tells of, from the seed.
    """
    events, loaded = told.events(0, EVERYTHING), told.load()
    begin_s = (events[0].time_s if events else 0.0) + from_s
    nodes = sorted(loaded.nodes, key=lambda node: node.node_id)
    gpus = tuple(min(MOST_GPUS, max(1, len(node.gpus))) for node in nodes) or (2,)
    names = _Names(
        {node.node_id: f"n{at}" for at, node in enumerate(nodes)},
        sorted({job.user for job in loaded.jobs}),
    )
    some = [event for event in events if begin_s <= event.time_s < begin_s + most_s]
    found = [*_asked(told, some, names), *_happened(some, names)]
    acts = [
        Act(round(max(0.5, 1.0 + at_s - begin_s), 3), what, facts) for at_s, what, facts in found
    ]
    last_s = max((act.at_s + act.facts.get("for_s", 0.0) for act in acts), default=0.0)
    settings = Settings(policy=_policy(loaded), gpus=gpus, busy_s=round(last_s + TAIL_S), order=1)
    if trouble:
        draws = Tape(seed).stream("trouble of a journal")
        for kind in TROUBLE:
            if draws.below(10) < 4:
                acts += TROUBLE[kind](draws, settings)
    return Plot(settings, tuple(sorted(acts, key=lambda act: (act.at_s, act.what))))


def _policy(loaded: Loaded) -> str:
    stored = loaded.meta.get(CHOSEN)
    name = "" if stored is None else read_chosen(stored).policy
    return name if name in POLICIES else Settings().policy


Found = Iterator[tuple[float, str, Facts]]


def _asked(told: Told, events: Iterable[JournalEvent], names: _Names) -> Found:
    """What people did."""
    together = set[JobId]()  # arrays and groups that have come
    for event in events:
        job = None if event.job_id is None else told.job(event.job_id)
        if job is not None and event.kind == "job_submitted":
            array = job.array
            if array is None:
                yield event.time_s, "submit", _submission(told, job, names)
            elif array.array_id not in together:
                together.add(array.array_id)
                yield event.time_s, *_of_many(told, job, array, names)
        elif job is not None and event.kind in EDITS and event.actor.startswith("user:"):
            facts = {"client": names.client(job), "job": _label(job)}
            yield event.time_s, EDITS[event.kind], facts
        elif event.node_id is None or event.node_id not in names.nodes:
            continue
        elif event.kind in DRAINS and event.cause.startswith("draining"):
            yield event.time_s, DRAINS[event.kind], {"node": names.nodes[event.node_id]}


def _of_many(told: Told, job: Job, array: Array, names: _Names) -> tuple[str, Facts]:
    """An array, or a group whose members are one job each."""
    ids = range(array.array_id + 1, array.array_id + array.tasks + 1)
    tasks = [task for it in ids if (task := told.job(JobId(it))) is not None]
    if not array.members:
        facts = _submission(told, job, names)
        facts |= {"tasks": array.tasks, "at_once": array.concurrent, "job": f"j{ids[0]}"}
        return "submit", facts | {"run_s": max(_run_s(task) for task in tasks)}
    members = []
    for place, task in enumerate(tasks):
        facts = _submission(told, task, names)
        ends = array.member(place)[0].ends.value
        members.append({key: it for key, it in facts.items() if key in MEMBER} | {"ends": ends})
    label = f"j{array.array_id}"
    return "submit_group", {"client": names.client(job), "job": label, "members": members}


MEMBER = frozenset({"gpus", "nodes", "run_s", "code", "saves_s"})


def _happened(events: Sequence[JournalEvent], names: _Names) -> Found:
    """The trouble that the journal tells of."""
    heard: dict[NodeId, float] = {}  # when each node said hello next
    cuts: list[tuple[float, str, Facts]] = []
    for event in reversed(events):
        node_id = event.node_id
        if node_id is None or node_id not in names.nodes:
            continue
        if event.kind == "node_registered":
            heard[node_id] = event.time_s
        elif event.kind == "node_missed" and (silent := _SILENT.search(event.cause)):
            from_s = event.time_s - float(silent[1])
            for_s = min(LONGEST_CUT_S, heard.get(node_id, event.time_s + 1.0) - from_s)
            facts = {"node": names.nodes[node_id], "way": "both", "for_s": round(for_s, 3)}
            cuts.append((from_s, "cut", facts))
    yield from reversed(cuts)
    starts = [event.time_s for event in events if event.kind == "master_started"]
    for start_s in starts[1:]:
        yield start_s - DIES_BEFORE_S, "kill_master", {"master": "m1", "at": "once", "number": 1}


def _submission(told: Told, job: Job, names: _Names) -> Facts:
    facts: Facts = {
        "client": names.client(job),
        "job": _label(job),
        "gpus": max(1, job.request.gpus),
        "run_s": _run_s(job),
    }
    if job.request.nodes and job.request.nodes <= len(names.nodes):
        facts["nodes"] = job.request.nodes
    if job.exit_code:
        facts["code"] = job.exit_code
    if job.saves:
        facts["saves_s"] = round(job.saves[-1], 1) or 1.0
    if job.steps:
        facts["due_s"] = round(job.steps[0].deadline_s, 1)
    for term in job.depends.terms[:1] if job.depends is not None else ():
        awaited = None if term.array else told.job(term.target)
        if awaited is not None:
            facts |= {"after": _label(awaited), "if_ok": term.relation is Relation.AFTEROK}
    return facts


def _run_s(job: Job) -> float:
    return min(LONGEST_RUN_S, max(1.0, round(job.total_executed_s, 1)))


def _label(job: Job) -> str:
    """As the world's clients name a job, a task of an array, and a member of a group."""
    if job.array is None:
        return f"j{job.job_id}"
    place = job.job_id - job.array.array_id - 1
    if job.array.members:
        return f"j{job.array.array_id}.m{place}"
    first = f"j{job.array.array_id + 1}"
    return f"{first}.{place}" if place else first
