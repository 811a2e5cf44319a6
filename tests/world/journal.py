"""The journal of a real master as the plot of a world: what people asked for, and when.

Jobs keep their shape, their run times and how they left. Cancels, holds, releases and drains of
people come when they came. Users become the clients of the world, in the order of their names.
Trouble is drawn from a seed, as for every world.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.store.batch import ALL_ENDED, Loaded, MemoryWindow
from world.stage.acts import CLIENTS, Act, Settings
from world.stage.plot import TROUBLE, Plot
from world.stage.tape import Tape

LONGEST_RUN_S = 150.0  # longer runs are cut: the world is to end
MOST_GPUS = 16  # of one node; the bits of larger ones would say nothing more
EDITS = {"job_cancelled": "cancel", "job_held": "hold", "job_released": "release"}
DRAINS = {"node_flag_set": "drain", "node_flag_cleared": "undrain"}
EVERYTHING = 10_000_000
TAIL_S = 30.0


class Told(Protocol):
    """A master's database."""

    def load(self, window: MemoryWindow = ALL_ENDED) -> Loaded: ...
    def events(
        self, after: int, limit: int, job_id: JobId | None = None
    ) -> Sequence[JournalEvent]: ...
    def job(self, job_id: JobId) -> Job | None: ...


def plot_of(
    told: Told, seed: int, *, from_s: float = 0.0, most_s: float = 600.0, trouble: bool = True
) -> Plot:
    """The plot of `most_s` seconds of a journal, from `from_s` after its first event."""
    events = told.events(0, EVERYTHING)
    begin_s = (events[0].time_s if events else 0.0) + from_s
    nodes = sorted(told.load().nodes, key=lambda node: node.node_id)
    names = {node.node_id: f"n{at}" for at, node in enumerate(nodes)}
    gpus = tuple(min(MOST_GPUS, max(1, len(node.gpus))) for node in nodes) or (2,)
    users = sorted({job.user for job in told.load().jobs})
    acts = [
        Act(round(1.0 + event.time_s - begin_s, 3), what, facts)
        for event in events
        if begin_s <= event.time_s < begin_s + most_s
        for what, facts in _acts(told, event, names, users)
    ]
    last_s = max((act.at_s for act in acts), default=0.0)
    settings = Settings(gpus=gpus, busy_s=round(last_s + TAIL_S), order=1)
    if trouble:
        draws = Tape(seed).stream("trouble of a journal")
        for kind in TROUBLE:
            if draws.below(10) < 4:
                acts += TROUBLE[kind](draws, settings)
    return Plot(settings, tuple(sorted(acts, key=lambda act: (act.at_s, act.what))))


def _acts(
    told: Told, event: JournalEvent, names: dict[Any, str], users: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a person did, if this event tells of it."""
    job = None if event.job_id is None else told.job(event.job_id)
    if job is not None and event.kind == "job_submitted":
        yield "submit", _submission(job, users, names.values())
    elif job is not None and event.kind in EDITS and event.actor.startswith("user:"):
        yield EDITS[event.kind], {"client": _client(job, users), "job": f"j{job.job_id}"}
    elif event.node_id in names and event.kind in DRAINS and event.cause.startswith("draining"):
        yield DRAINS[event.kind], {"node": names[event.node_id]}


def _submission(job: Job, users: Sequence[str], names: Iterable[str]) -> dict[str, Any]:
    run_s = min(LONGEST_RUN_S, max(1.0, round(job.total_executed_s, 1)))
    facts: dict[str, Any] = {
        "client": _client(job, users),
        "job": f"j{job.job_id}",
        "gpus": max(1, job.request.gpus),
        "run_s": run_s,
    }
    if job.request.nodes and job.request.nodes <= len(list(names)):
        facts["nodes"] = job.request.nodes
    if job.exit_code:
        facts["code"] = job.exit_code
    if job.saves:
        facts["saves_s"] = round(job.saves[-1], 1) or 1.0
    return facts


def _client(job: Job, users: Sequence[str]) -> str:
    clients = sorted(CLIENTS)
    return clients[users.index(job.user) % len(clients)]
