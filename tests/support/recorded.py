"""Behaviour as digests: what the policies plan, what masters write, what replays show, what specs
become.

A refactoring must not change one of them. Values are reduced to the words and numbers that are
stored or sent, so that a class may be renamed (`ALIASES`) or moved. `make record` writes
tests/data/identical; tests compare with it.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dlq.v1.job_pb2 import JobSpec
from dlq.v1.job_service_pb2 import UpdateJobRequest
from dlq_cli.spec.fields import BY_NAME, layer_from
from dlq_cli.spec.merge import merge
from dlq_cli.spec.message import to_message
from dlq_cli.spec.toml_yaml import read_spec_file
from dlq_cli.spec.validate import finish
from dlq_common.errors import DlqError, InternalError
from dlq_master.control.stimuli import (
    AskedDeadline,
    CancelJob,
    HoldJob,
    PauseJob,
    ReleaseJob,
    RequeueJob,
    ResumeJob,
    SetNodeFlags,
)
from dlq_master.model.cluster import drive
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.reward import soft, strict
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.plan import Plan
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.policy.admit.stage import promised
from dlq_simulator.replay.engine import replay
from dlq_simulator.results.report import to_json
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from support import recorded_fields as told
from support.builders import World, a_job, a_node
from support.master_harness import ROOT, Master, config_of
from support.sim_agent import SimAgent

# Name of a class now -> the name under which its values were recorded.
ALIASES: Mapping[str, str] = {"ReplayOutcome": "Outcome"}
# Fields that came after the recording, with the value under which a record is as it was recorded.
LATER: Mapping[str, Mapping[str, object]] = {
    "Start": {"rented": False},
    "TraceJob": {"tuned": None, "batch_size": None},
}
_NEVER = object()
VIEWS = 42  # of each story of plans
TURNS = 40  # of each story of a master
Choice = tuple[str, dict[str, str]]
POLICIES: tuple[Choice, ...] = (
    ("dlq", {}),
    ("dlq", {"be_floor": "0", "know": "unknown"}),
    ("chronus", {}),
    ("chronus", {"be_floor": "0", "know": "unknown"}),
    ("chronus-paper", {}),
    ("fifo", {}),
    ("best-effort", {"place": "spread"}),
    ("yarn-cs", {"place": "spread", "quota": "default:0.7"}),
    ("sf", {"place": "consolidate"}),
    ("lf", {"place": "spread", "preempt": "free"}),
    ("srtf", {}),
    ("srsf", {"place": "consolidate", "preempt": "free"}),
    ("themis", {"place": "spread"}),
    ("edf", {"place": "spread", "preempt": "free"}),
    ("edf-preemptive", {"place": "consolidate", "preempt": "free"}),
    ("3sigma", {"place": "spread", "preempt": "free"}),
    ("genie", {"place": "consolidate"}),
    ("afs", {"place": "spread", "preempt": "free"}),
    ("gandiva-elastic", {"place": "consolidate"}),
    ("aryl", {}),
    ("aryl", {"place": "spread", "preempt": "free", "size": "rollout"}),
    ("timeslice", {"place": "spread"}),
    ("tiresias-gittins", {"thresholds": "100,900", "refresh": "3"}),
    ("tiresias-las", {"thresholds": "100,900", "starve_limit_s": "400"}),
    ("tiresias-las", {"place": "count", "preempt": "free", "order": "first-start"}),
)


class Story(NamedTuple):
    """One that is recorded: its name, and what tells it."""

    name: str
    tell: Callable[[], Iterator[Any]]

    @property
    def digest(self) -> str:
        """Of everything that it tells, in order."""
        told = hashlib.sha256()
        for value in self.tell():
            told.update(json.dumps(plain(value), separators=(",", ":")).encode() + b"\n")
        return told.hexdigest()[:24]


def plain(value: Any) -> Any:
    """A value as JSON: enums by their words, records by their fields, whatever their class is
    called.
    """
    if isinstance(value, Enum):
        return plain(value.value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return sorted(([plain(key), plain(of)] for key, of in value.items()), key=repr)
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value), key=repr)
    name = ALIASES.get(type(value).__name__, type(value).__name__)
    if is_dataclass(value):
        return [
            name,
            *_told(name, ((each.name, getattr(value, each.name)) for each in fields(value))),
        ]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [name, *_told(name, zip(value._fields, value, strict=True))]
    return list(map(plain, value))


def _told(name: str, pairs: Iterable[tuple[str, Any]]) -> Iterator[Any]:
    """The values of fields that the recording has."""
    later = LATER.get(name, {})
    return (plain(of) for field, of in pairs if later.get(field, _NEVER) != of)


# --- plans ----------------------------------------------------------------------------------------


def plan_stories() -> Iterator[Story]:
    """10,500 views of small clusters under every policy, each with the plan that is made for it."""
    for choice in POLICIES:
        for seed in range(10):
            yield Story(_name("plan", choice, seed), lambda c=choice, s=seed: _planned(c, s))  # type: ignore[misc]  # bound


def _planned(choice: Choice, seed: int) -> Iterator[Any]:
    policy, settings = choice
    draw = random.Random(f"plans {policy} {seed}")
    nodes = [a_node(f"node-{number}", draw.choice([2, 4, 8])) for number in range(8)]
    world = World(policy, nodes, None, **settings)
    for number in range(1, VIEWS + 1):
        gpus = draw.choice([1, 1, 2, 4, 8, 16])
        request = Request(gpus=gpus, sizes=draw.choice([(), (), (gpus, 2 * gpus)]))
        steps = draw.choice([(), (), strict(900.0), soft([(600.0, 100.0), (6000.0, 20.0)])])
        known_s = draw.choice([None, 40.0, 400.0])
        rank = draw.randrange(2)
        job = a_job(number, request=request, priority_base=rank, duration_estimate_s=known_s)
        world.submit(job._replace(steps=steps))
        world.now_s += draw.choice([0.0, 1.0, 31.0, 300.0])
        if world.running and draw.random() < 0.6:
            world.finish(draw.choice(world.running))
        for job_id in world.leaving:
            world.leave(job_id)
        yield world.now_s
        yield from _decided(world)


def _decided(world: World) -> Iterator[Any]:
    """What is decided now, one plan after the other."""
    rules = world.policy.promises
    if rules is not None:
        changes = promised(View(world.cluster, world.now_s), rules)
        yield changes
        drive.apply(world.cluster, Plan(changes, None, again=True), world.now_s, epoch=1)
    while (planned := world.plan()).again:
        yield planned
        drive.apply(world.cluster, planned, world.now_s, epoch=1)
    yield planned
    world.decide()


# --- traces ---------------------------------------------------------------------------------------

TRACED: tuple[tuple[str, ...], ...] = (
    ("dlq",),
    ("dlq", "be_floor=0", "know=unknown"),
    ("chronus",),
    ("chronus", "know=profiled", "profile_s=40"),
    ("chronus-paper",),
    ("fifo",),
    ("best-effort",),
    ("yarn-cs",),
    ("sf",),
    ("lf",),
    ("srtf",),
    ("srtf", "place=skew", "packlimit=learned"),
    ("themis",),
    ("3sigma",),
    ("edf",),
    ("edf-preemptive",),
    ("afs",),
    ("aryl",),
    ("tiresias-las", "thresholds=60", "promote_knob=2"),
    ("tiresias-gittins", "thresholds=60,200", "refresh=2"),
)


def trace_stories() -> Iterator[Story]:
    """60 replays: each of the policies on three traces."""
    for choice in TRACED:
        for seed in range(3):
            name = f"trace {' '.join(choice)} {seed}"
            yield Story(name, lambda c=choice, s=seed: _replayed(c, s))  # type: ignore[misc]  # bound


def _replayed(choice: tuple[str, ...], seed: int) -> Iterator[Any]:
    draw = random.Random(f"trace {seed}")
    jobs, at_s = [], 0.0
    for number in range(40):
        at_s += draw.expovariate(1 / 40.0)
        jobs.append(
            TraceJob(
                job_id=str(number),
                submit_time_s=round(at_s, 3),
                num_gpus=draw.choice([1, 1, 2, 4, 8]),
                duration_s=round(draw.lognormvariate(5.0, 1.0), 3),
                deadline_s=draw.choice([None, None, 2000.0]),
                kind="be",
            )
        )
    cluster = ClusterSpec(name="3x4", groups=(NodeGroup(count=3, gpus=4),))
    (settings,) = read_settings([choice[0]], choice[1:])
    trace = Trace.of("recorded", jobs)
    result = replay(trace, cluster, settings)
    yield result.outcomes
    document = json.loads(to_json(trace, cluster, [result], seed=0, settings=[]))
    for each in document["policies"]:
        del each["timing"]
    yield document


# --- masters --------------------------------------------------------------------------------------

MASTERS = ("dlq", "chronus", "best-effort", "tiresias-las", "aryl")
_EDITS = (CancelJob, HoldJob, ReleaseJob, PauseJob, ResumeJob, RequeueJob)


def stream_stories() -> Iterator[Story]:
    """300 streams of what people and nodes do, each with the journal that the master wrote."""
    for policy in MASTERS:
        for seed in range(60):
            yield Story(f"stream {policy} {seed}", lambda p=policy, s=seed: _streamed(p, s))  # type: ignore[misc]  # bound


def _streamed(policy: str, seed: int) -> Iterator[Any]:
    draw = random.Random(f"stream {seed}")
    master = Master(config_of(policy))
    agents = [SimAgent(master, NodeId(f"n{number}")) for number in (1, 2, 3)]
    try:
        for agent in agents:
            agent.hello()
        for _ in range(TURNS):
            _something(draw, master, agents)
            _agents_act(draw, agents)
            master.tick(draw.choice([0.5, 2.0, 20.0]))
        for event in master.events():
            yield event.time_s, event.kind, event.job_id, event.attempt, event.node_id
            yield event.cause, event.actor, dict(event.data)
    finally:
        master.close()


def _something(draw: random.Random, master: Master, agents: list[SimAgent]) -> None:
    """What people do, or a node."""
    jobs = [job.job_id for job in master.loop.published.jobs() if not job.ended]
    act = draw.random()
    try:
        if act < 0.55 or not jobs:
            gpus = draw.choice([1, 1, 2, 4, 8])
            nodes = 2 if gpus == 8 and draw.random() < 0.5 else None
            deadlines = draw.choice([(), (), (AskedDeadline(reward=100.0, after_s=3000.0),)])
            master.submit(
                gpus,
                nodes=nodes,
                name=draw.choice(["a", "b"]),
                run_estimate_s=draw.choice([None, 100.0, 900.0]),
                time_limit_s=draw.choice([None, None, 400.0]),
                deadlines=deadlines,
            )
        elif act < 0.85:
            master.edit(draw.choice(_EDITS), draw.choice(jobs))
        elif act < 0.92:
            _flag(draw, master)
        elif act < 0.97:
            agent = draw.choice(agents)
            draw.choice([agent.cut, agent.reboot])()
        else:
            master.restart()
            for agent in agents:
                agent.session_id = None
    except InternalError:
        raise
    except DlqError:
        pass  # a refusal leaves no trace in the journal


def _flag(draw: random.Random, master: Master) -> None:
    flags, none = frozenset({NodeFlag.DRAINING}), frozenset[NodeFlag]()
    put, clear = draw.choice([(flags, none), (none, flags)])
    master.ask(
        SetNodeFlags(
            caller=ROOT,
            request_id=f"flag-{draw.random()}",
            node_id=NodeId(draw.choice(["n1", "n2", "n3"])),
            set_flags=put,
            clear_flags=clear,
            reason="recorded",
        )
    )


def _agents_act(draw: random.Random, agents: list[SimAgent]) -> None:
    for agent in agents:
        if agent.session_id is None:
            agent.hello()
        agent.obey()
        for key in sorted(agent.ranks):
            rank = agent.ranks[key]
            if rank.ended:
                continue
            if rank.alive and draw.random() < (0.8 if rank.noticed else 0.1):
                agent.exit(key, draw.choice([0, 0, 0, 1, 99]))
            elif not rank.alive:
                (agent.ready if rank.launch.at_barrier else agent.start)(key)
        agent.report()
        agent.heartbeat()


# --- specs ----------------------------------------------------------------------------------------

SPECS: tuple[tuple[str, ...], ...] = (
    ("--", "true"),
    ("-G", "8", "--", "python", "train.py"),
    ("-G", "h100-80gb:8", "-N", "2", "--", "true"),
    ("--gpus-per-node", "4", "-N", "3", "-t", "1-00:00:00", "--", "true"),
    ("-J", "n", "-p", "default", "--team", "t", "--nice", "5", "--", "true"),
    ("--deadline", "3h", "--work", "1h", "--on-miss", "cancel", "--", "true"),
    ("--array", "0-99:3%4", "--dependency", "afterok:3", "--", "true"),
    ("--env", "A=b", "--env", "C=d", "--label", "family=x", "--", "true"),
    ("--signal", "USR1@60", "--grace", "90s", "--requeue-exit", "85", "--", "true"),
    ("--checkpoint-dir", "/shared/x", "--checkpoint-marker", "DONE", "--", "true"),
    ("--image", "docker.io/library/x:1", "--mount", "/data:/data:ro", "--", "true"),
    ("--cpus", "8", "--mem", "16G", "--gpu-mem", "40G", "--", "true"),
    ("-G", "2", "--elastic-sizes", "2,4,8", "--", "true"),
    ("-C", "rack=1", "-w", "gpu1,gpu2", "-x", "gpu3", "--", "true"),
    ("--begin", "2026-12-01T08:00", "--hold", "--max-restarts", "2", "--", "true"),
)


def spec_stories() -> Iterator[Story]:
    """What a corpus of flags becomes on the wire, or the refusal."""
    for words in SPECS:
        yield Story(f"spec {' '.join(words)}", lambda w=words: _checked(w))  # type: ignore[misc]  # bound


def _checked(words: tuple[str, ...]) -> Iterator[Any]:
    given, left = [], list(words)
    while (name := left.pop(0)) != "--":
        flag = BY_NAME[name]
        given.append((flag, left.pop(0) if flag.metavar else True, name))
    program = read_spec_file(json.dumps({"command": left}).encode(), "job.yaml")
    try:
        spec = finish(merge([program, layer_from(given)], {}), directory="/home/ada")
        yield to_message(spec).SerializeToString(deterministic=True)
    except DlqError as refusal:
        yield str(refusal)


def field_stories() -> Iterator[Story]:
    """What becomes of every field of a job, on all of its ways."""
    yield Story("fields as people read them", told.shown_story)
    for tell, names in (
        (told.key_story, told.keys()),
        (told.update_story, told.UPDATES),
        (told.wire_story, told.paths(JobSpec.DESCRIPTOR)),
        (told.request_story, told.paths(UpdateJobRequest.DESCRIPTOR)),
    ):
        for name in names:
            yield Story(f"{tell.__name__} {name}", partial(tell, name))


# --- all ------------------------------------------------------------------------------------------

KINDS: Mapping[str, Callable[[], Iterator[Story]]] = {
    "plans": plan_stories,
    "traces": trace_stories,
    "streams": stream_stories,
    "specs": spec_stories,
    "fields": field_stories,
}


def _name(kind: str, choice: Choice, seed: int) -> str:
    policy, settings = choice
    return " ".join(
        [kind, policy, *(f"{key}={value}" for key, value in settings.items()), str(seed)]
    )


# --- the record -----------------------------------------------------------------------------------

FOLDER = Path(__file__).parents[1] / "data" / "identical"


def read(kind: str) -> dict[str, str]:
    """What was recorded of a kind: name of a story -> digest."""
    return dict(json.loads((FOLDER / f"{kind}.json").read_text()))


def main(kinds: list[str]) -> None:
    """Record these kinds anew, or all: a change of behaviour that is wanted."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for kind in kinds or KINDS:
        stories = KINDS[kind]
        digests = {story.name: story.digest for story in stories()}
        (FOLDER / f"{kind}.json").write_text(json.dumps(digests, indent=0) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
