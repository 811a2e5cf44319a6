"""Reports of agents as values of the core. Every value is checked: an agent may be wrong or
hostile.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Sized
from dataclasses import replace

from dlq.v1 import agent_service_pb2 as agent
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.reading.words import MOST_TASKS_OF_A_NODE
from dlq_common.live_resize import FEATURE
from dlq_common.text.names import LONGEST_PATH_BYTES, check_word, printable, shown
from dlq_common.text.units import DAY
from dlq_common.text.wire import from_duration, said
from dlq_master.control.stimuli import (
    AgentInstance,
    ReportedCheckpoint,
    ReportedPhase,
    ReportedProgress,
    ReportedRank,
    ToldDisk,
    ToldGpu,
    ToldSymptom,
)
from dlq_master.control.stimuli.loans import Reading, TakeLook
from dlq_master.control.stimuli.nodes import ToldLoad, ToldUse
from dlq_master.model.attempts.attempt import RankMove
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.nodes.node import Gpu, NodePool
from dlq_master.model.nodes.node_steps import Registered
from dlq_master.policy.stragglers import WorkTimes
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.specs.intake import LONGEST_WORDS, job_id_of, words_of
from dlq_master.rpc.specs.node_choice import passing

MOVE_STATES = frozenset({"moving", "suspended", "running", "stranded"})

log = get_logger("master.agent_intake")

LONGEST_LINE = 500
MOST_LAST_LINES = 10
LONGEST_TASK = 64
MOST_GPUS_OF_A_NODE = 1024
MOST_CORES_OF_A_NODE = 4096
MOST_RUNTIMES = 16
MOST_RANKS = 10_000
MOST_GPUS_WITH_HEALTH = 64
MOST_SYMPTOMS = 32
LONGEST_DETAIL = 200
OLDEST_S = 366.0 * DAY
LONGEST_SPAN_S = 3600.0  # of one report of loads
MOST_MEMORY_BYTES = 1 << 47  # of a GPU, or of a rank
MOST_TIMED_STEPS = 10_000_000  # of one report
LARGEST_LOG = 20.0  # of a step of two nanoseconds, or of 15 years
_CODE = re.compile(r"[a-z][a-z0-9_]{0,39}\Z", re.ASCII)

PHASES = {agent.RankPhase.Value(f"RANK_PHASE_{phase.name}"): phase for phase in ReportedPhase}


def facts_of(facts: agent.NodeFacts) -> Registered:
    """The facts of a host about itself. The boot id is required: a new one means that attempts are
    lost.
    """
    if not facts.boot_id or len(facts.boot_id) > 64 or not facts.boot_id.isprintable():
        raise InvalidRequest("a node needs a boot id of at most 64 characters", field="boot_id")
    if facts.cpu_count < 0 or facts.memory_bytes < 0:
        raise InvalidRequest("a host cannot have less than nothing", field="cpu_count")
    return Registered(
        gpus=_gpus(facts),
        boot_id=facts.boot_id,
        hostname=words_of(facts.hostname, "hostname"),
        address=_address(facts.address),
        agent_version=words_of(facts.agent_version, "agent_version"),
        virtual=facts.virtual_devices,
        cpu_count=facts.cpu_count,
        memory_bytes=facts.memory_bytes,
        root_jobs=facts.root_jobs,
        runtimes=_runtimes(facts),
        resizes_live=FEATURE in facts.features,
        pool=_pool(facts.pool),
        cores=_cores(facts),
        core_memory_bytes=facts.core_memory_bytes,
        suspend_bytes=max(0, facts.suspend_memory_bytes),
    )


def _cores(facts: agent.NodeFacts) -> int:
    """The cores for jobs without GPUs, no more than the host has.

    A rented machine has none: it is paid for its GPUs.
    """
    cores, memory_bytes = facts.job_core_count, facts.core_memory_bytes
    if not 0 <= cores <= MOST_CORES_OF_A_NODE:
        raise InvalidRequest(
            f"a node gives 0 to {MOST_CORES_OF_A_NODE} cores to jobs without GPUs, not {cores}",
            field="job_core_count",
        )
    if facts.cpu_count and cores > facts.cpu_count:
        raise InvalidRequest(
            f"{cores} cores for jobs without GPUs are more than the host's {facts.cpu_count}",
            field="job_core_count",
        )
    if memory_bytes < 0 or (facts.memory_bytes and cores * memory_bytes > facts.memory_bytes):
        raise InvalidRequest(
            f"{cores} cores with {memory_bytes} bytes each are more than the host's "
            f"{facts.memory_bytes}",
            field="core_memory_bytes",
        )
    return cores if _pool(facts.pool) is NodePool.TRAINING else 0


def _pool(word: str) -> NodePool:
    if word == NodePool.PRICED.value:
        raise InvalidRequest(f"{shown(word)} is no pool: say its name in master.toml", field="pool")
    if word in ("", NodePool.TRAINING.value, NodePool.INFERENCE.value):
        return NodePool(word or NodePool.TRAINING.value)
    return NodePool.PRICED


def rented_as(facts: agent.NodeFacts) -> tuple[str, str]:
    """The pool and the provider's name of a rented machine; empty for other hosts."""
    if _pool(facts.pool) is not NodePool.PRICED:
        return "", ""
    name = passing(check_word, facts.pool, "pool", "pool")
    return name, words_of(facts.instance_id, "instance_id")


def _runtimes(facts: agent.NodeFacts) -> frozenset[str]:
    if len(facts.runtimes) > MOST_RUNTIMES:
        raise InvalidRequest(f"a node has at most {MOST_RUNTIMES} runtimes", field="runtimes")
    return frozenset(passing(check_word, name, "runtimes", "runtime") for name in facts.runtimes)


def _gpus(facts: agent.NodeFacts) -> tuple[Gpu, ...]:
    _check_most(facts.gpus, MOST_GPUS_OF_A_NODE, "GPUs", "gpus")
    indexes = [gpu.index for gpu in facts.gpus]
    if len(set(indexes)) != len(indexes) or not all(
        0 <= index < MOST_GPUS_OF_A_NODE for index in indexes
    ):
        raise InvalidRequest("GPU indexes must differ and be small", field="gpus")
    return tuple(
        Gpu(
            index=gpu.index,
            gpu_type=passing(check_word, gpu.gpu_type, "gpus", "GPU type"),
            uuid=words_of(gpu.uuid, "gpus.uuid"),
            memory_bytes=max(0, gpu.memory_bytes),
        )
        for gpu in sorted(facts.gpus, key=lambda gpu: gpu.index)
    )


def _address(text: str) -> str:
    """A host name or a numeric address, which the environment of jobs will contain."""
    if text and not all(char.isascii() and (char.isalnum() or char in ".:-_") for char in text):
        raise InvalidRequest(f"{shown(text)} is not an address", field="address")
    return words_of(text, "address")


_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


def reports_of(reports: Sequence[agent.RankReport]) -> tuple[ReportedRank, ...]:
    """Reports of ranks, in the order in which they were made."""
    _check_most(reports, MOST_RANKS, "ranks", "ranks")
    return tuple(report_of(report) for report in reports)


def _check_most(told: Sized, most: int, what: str, field: str) -> None:
    """Before a look at each: a message may hold hundreds of thousands."""
    if len(told) > most:
        raise InvalidRequest(f"{len(told)} {what} are more than {most}", field=field)


def promotable(report: ReportedRank, places: CheckpointPlaces) -> ReportedRank:
    """The report, without a checkpoint that lies in another job's or attempt's directory."""
    found = report.checkpoint
    if found is None or places.may_promote(found.path, report.key):
        return report
    log.warning("checkpoint_not_promoted", key=str(report.key), path=found.path)
    return replace(report, checkpoint=None)


def report_of(report: agent.RankReport) -> ReportedRank:
    """One report of a rank."""
    phase = PHASES.get(report.phase)
    if phase is None:
        raise InvalidRequest(f"no phase {report.phase}", field="phase")
    return ReportedRank(
        sequence=report.sequence,
        key=_key(report),
        epoch=report.fence.epoch,
        node_rank=_rank(report.node_rank),
        phase=phase,
        exit_code=said(report, "exit_code"),
        signal=report.signal,
        oom_killed=report.oom_killed,
        error=printable(report.error[:LONGEST_WORDS]),
        ended_by=words_of(report.ended_by, "ended_by"),
        checkpoint=_checkpoint(report) if report.HasField("checkpoint") else None,
        done=report.done,
        save_s=_positive(said(report, "save_duration")),
        age_s=max(0.0, from_duration(report.age_duration)),
        gpu_indexes=_gpu_indexes(report),
        detail=printable(report.detail[:LONGEST_WORDS]),
        ports=_ports(report),
        workers_done=report.workers_done,
        last_lines=tuple(
            printable(line[:LONGEST_LINE]) for line in report.last_lines[-MOST_LAST_LINES:]
        ),
        failed_task=printable(report.failed_task[:LONGEST_TASK]),
        noticed=words_of(report.noticed, "noticed"),
        unnoticed=report.unnoticed,
        catches=report.catches if report.HasField("catches") else None,
        start_cause=words_of(report.start_cause, "start_cause"),
        gpus_held=printable(report.gpus_held[:LONGEST_WORDS]),
        no_room=report.no_room,
        image_digest=_image_digest(report.image_digest),
        move=_move(report.suspension) if report.HasField("suspension") else None,
    )


def _move(fact: agent.SuspensionFact) -> RankMove:
    if fact.state not in MOVE_STATES:
        raise InvalidRequest(f"no state {shown(fact.state)} of a move", field="suspension.state")
    return RankMove(
        number=fact.number,
        state=fact.state,
        memory_bytes=max(0, fact.memory_bytes),
        took_s=max(0.0, from_duration(fact.took_duration)),
        failure=printable(fact.failure[:LONGEST_WORDS]),
        remaps=fact.remaps,
        own_only=printable(fact.own_only[:LONGEST_WORDS]),
    )


def _image_digest(word: str) -> str:
    if word and not _DIGEST.fullmatch(word):
        raise InvalidRequest("an image's digest is sha256: and 64 digits", field="image_digest")
    return word


def _ports(report: agent.RankReport) -> tuple[int, ...]:
    ports = tuple(report.ports)
    if len(ports) > MOST_TASKS_OF_A_NODE or not all(0 < port < 65_536 for port in ports):
        raise InvalidRequest("ports must be few, and between 1 and 65535", field="ports")
    return ports


def _gpu_indexes(report: agent.RankReport) -> tuple[int, ...]:
    indexes = report.gpu_indexes
    if len(indexes) > MOST_GPUS_OF_A_NODE or not all(
        0 <= index < MOST_GPUS_OF_A_NODE for index in indexes
    ):
        raise InvalidRequest("GPU indexes must be few and small", field="gpu_indexes")
    return tuple(indexes)


def _checkpoint(report: agent.RankReport) -> ReportedCheckpoint | None:
    found = report.checkpoint
    if len(found.path) > LONGEST_PATH_BYTES:
        # The words are the job's: a refusal would cut off its node, which tells them again.
        log.warning("checkpoint_path_too_long", job_id=report.job_id, characters=len(found.path))
        return None
    if not found.path.startswith("/") or printable(found.path) != found.path:
        raise InvalidRequest("a checkpoint has an absolute path", field="checkpoint.path")
    return ReportedCheckpoint(
        path=found.path,
        step=said(found, "step"),
        age_s=max(0.0, from_duration(found.age_duration)),
        after_notice=found.after_notice,
    )


def agent_of(hello: agent.Hello) -> AgentInstance | None:
    """The process that sends; None: an old agent, which does not say."""
    told = hello.instance
    if not told.process_id:
        return None
    names = AgentInstance._fields
    return AgentInstance(*[words_of(getattr(told, name), f"instance.{name}") for name in names])


def unexplained_of(
    ranks: Sequence[agent.UnexplainedRank],
) -> tuple[tuple[AttemptKey, int, int], ...]:
    """Running ranks without a record at the agent, as key, epoch and rank."""
    _check_most(ranks, MOST_RANKS, "ranks", "unexplained")
    return tuple((_key(each), each.fence.epoch, _rank(each.node_rank)) for each in ranks)


def progresses_of(told: Sequence[agent.RankProgress]) -> tuple[ReportedProgress, ...]:
    """The last reports of running ranks about themselves."""
    _check_most(told, MOST_RANKS, "ranks", "progress")
    return tuple(progress_of(each) for each in told)


def progress_of(progress: agent.RankProgress) -> ReportedProgress:
    """The last report of a running rank about itself."""
    return ReportedProgress(
        key=_key(progress),
        epoch=progress.fence.epoch,
        node_rank=_rank(progress.node_rank),
        step=said(progress, "step"),
        total=said(progress, "total_step_count"),
        loss=said(progress, "loss"),
        age_s=_positive(said(progress, "age_duration")),
    )


# --- the health of GPUs ---------------------------------------------------------------------------


def health_of(heartbeat: agent.Heartbeat) -> tuple[ToldGpu, ...] | None:
    """The health of all GPUs of a node; None: the heartbeat has none."""
    if not heartbeat.HasField("health"):
        return None
    _check_most(heartbeat.health.gpus, MOST_GPUS_WITH_HEALTH, "GPUs", "health.gpus")
    told = tuple(_gpu_health(gpu) for gpu in heartbeat.health.gpus)
    if len({gpu.gpu for gpu in told}) != len(told):
        raise InvalidRequest("GPU indexes must differ", field="health.gpus")
    return told


def disk_of(heartbeat: agent.Heartbeat) -> ToldDisk | None:
    """The disk with the agent's state; None: the heartbeat has none."""
    if not heartbeat.HasField("disk"):
        return None
    told = heartbeat.disk
    return ToldDisk(told.full, max(0, told.free_bytes), max(0, told.spare_bytes))


def look_of(look: agent.GpuLook, node_id: NodeId, session_id: int) -> TakeLook:
    """The programs on a node's GPUs. An impossible figure counts as a program."""
    if len(look.gpus) > MOST_GPUS_WITH_HEALTH or len({gpu.index for gpu in look.gpus}) != len(
        look.gpus
    ):
        raise InvalidRequest("GPU indexes must differ and be few", field="gpu_look.gpus")
    if any(gpu.used_memory_bytes < 0 or gpu.process_count < 0 for gpu in look.gpus):
        raise InvalidRequest("a GPU cannot hold less than nothing", field="gpu_look.gpus")
    return TakeLook(
        node_id=node_id,
        session_id=session_id,
        number=look.number,
        readings=tuple(
            Reading(gpu.index, gpu.used_memory_bytes, gpu.process_count) for gpu in look.gpus
        ),
    )


def _gpu_health(gpu: agent.GpuHealth) -> ToldGpu:
    if len(gpu.symptoms) > MOST_SYMPTOMS:
        raise InvalidRequest(f"more than {MOST_SYMPTOMS} symptoms", field="health.gpus.symptoms")
    return ToldGpu(
        gpu=gpu.index,
        symptoms=tuple(_symptom(symptom) for symptom in gpu.symptoms),
        temperature_celsius=said(gpu, "temperature_celsius"),
        utilization_percent=said(gpu, "utilization_percent"),
        used_memory_bytes=_memory(said(gpu, "used_memory_bytes")),
        load=_load(gpu.load) if gpu.HasField("load") else None,
    )


def _load(load: agent.GpuLoad) -> ToldLoad:
    """A mean load. NaN counts as busy, so that it makes no host idle."""
    span_s = _span_s(from_duration(load.span_duration))
    mean = load.mean_utilization_percent
    return ToldLoad(
        span_s=span_s,
        seen_s=min(span_s, max(0.0, from_duration(load.seen_duration))),
        mean_percent=mean if 0.0 <= mean <= 100.0 else 100.0,
        peak_percent=min(100, max(0, load.peak_utilization_percent)),
        power_watts=said(load, "power_watts"),
        clock_mhz=said(load, "clock_mhz"),
    )


def uses_of(uses: Sequence[agent.RankUse]) -> tuple[ToldUse, ...]:
    """The use of a host by its ranks."""
    _check_most(uses, MOST_RANKS, "ranks", "rank_uses")
    return tuple(_use(use) for use in uses)


def _use(use: agent.RankUse) -> ToldUse:
    return ToldUse(
        key=_key(use),
        epoch=use.fence.epoch,
        node_rank=_rank(use.node_rank),
        span_s=_span_s(from_duration(use.span_duration)),
        cpu_s=_positive(said(use, "cpu_duration")),
        read_bytes=said(use, "read_bytes"),
        written_bytes=said(use, "written_bytes"),
        work=_work(use.work) if use.HasField("work") else None,
        traffic=use.work.from_traffic,
        sent_ago_s=_positive(said(use, "sent_ago_duration")),
        looked_ago_s=max(0.0, from_duration(use.looked_ago_duration)),
        quiet_s=max(0.0, from_duration(use.quiet_duration)),
        memory_bytes=_memory(said(use, "memory_bytes")),
    )


def _memory(nbytes: int | None) -> int | None:
    """A size, cut off so that the sum over a job's nodes fits."""
    return None if nbytes is None else min(MOST_MEMORY_BYTES, max(0, nbytes))


def _work(told: agent.StepWork) -> WorkTimes | None:
    """Work times of steps. Impossible sums count as no information."""
    steps, logs, squares = told.step_count, told.log_sum, told.log_square_sum
    if not 0 < steps <= MOST_TIMED_STEPS or not abs(logs) <= steps * LARGEST_LOG:
        return None
    if not logs**2 / steps * 0.999 <= squares <= steps * LARGEST_LOG**2:
        return None
    return WorkTimes(steps, logs, squares)


def _span_s(seconds: float) -> float:
    return min(LONGEST_SPAN_S, max(0.0, seconds))


def _symptom(symptom: agent.GpuSymptom) -> ToldSymptom:
    if not _CODE.match(symptom.code):
        raise InvalidRequest("a symptom's code is a short word", field="health.gpus.symptoms.code")
    return ToldSymptom(
        code=symptom.code,
        age_s=min(max(0.0, from_duration(symptom.age_duration)), OLDEST_S),
        detail=printable(symptom.detail[:LONGEST_DETAIL]),
    )


# --- helpers --------------------------------------------------------------------------------------


def _key(
    told: agent.RankReport | agent.RankProgress | agent.RankUse | agent.UnexplainedRank,
) -> AttemptKey:
    job_id, number = job_id_of(told.job_id), told.fence.attempt
    if number < 1:
        raise InvalidRequest("attempts are counted from 1", field="fence.attempt")
    return AttemptKey(job_id, number)


def _rank(node_rank: int) -> int:
    if node_rank < 0:
        raise InvalidRequest("ranks are counted from 0", field="node_rank")
    return node_rank


def _positive(seconds: float | None) -> float | None:
    """An age, 0 at least, whatever an agent's arithmetic says."""
    return None if seconds is None else max(0.0, seconds)
