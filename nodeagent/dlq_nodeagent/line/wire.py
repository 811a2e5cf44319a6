"""Messages of dlq.v1 to and from the agent's own values; the only place that knows both."""

from collections.abc import Iterable
from typing import Any

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import job_pb2, lease_pb2, profile_pb2, resource_pb2
from dlq_common.job_fields.table import FIELDS
from dlq_common.live_resize import FEATURE, LIVE
from dlq_common.text.wire import from_duration, to_duration
from dlq_nodeagent.devices.host import HostFacts
from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.model.gpus import GpuHealth
from dlq_nodeagent.model.messages import (
    CheckpointFact,
    Command,
    CommandResult,
    ContainerRequest,
    Fence,
    FromAgent,
    FromMaster,
    GpuLook,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Launch,
    LookAtGpus,
    MountRequest,
    OpenExec,
    OpenLog,
    Phase,
    ProfileAck,
    ProfileEvidence,
    ProfileOrder,
    RankProgress,
    RankReport,
    ReportAck,
    Save,
    Signal,
    Stop,
    Verdict,
    Welcome,
)
from dlq_nodeagent.model.port import RankKey

_PHASES = {
    Phase.PREPARING: wire.RANK_PHASE_PREPARING,
    Phase.STARTED: wire.RANK_PHASE_STARTED,
    Phase.STOPPING: wire.RANK_PHASE_STOPPING,
    Phase.EXITED: wire.RANK_PHASE_EXITED,
    Phase.START_FAILED: wire.RANK_PHASE_START_FAILED,
    Phase.READY: wire.RANK_PHASE_READY,
    Phase.ABSENT: wire.RANK_PHASE_ABSENT,
}


_LONGEST_ERROR = 1000


class BadMessage(ValueError):
    """The master said something that makes no sense; the session is given up."""


def node_facts(
    host: HostFacts,
    devices: Iterable[Device],
    *,
    address: str,
    root_jobs: bool,
    pool: str = "",
    instance_id: str = "",
    runtimes: Iterable[str] = (),
) -> wire.NodeFacts:
    """The facts of this machine for a Hello."""
    listed = list(devices)
    return wire.NodeFacts(
        hostname=host.hostname,
        boot_id=host.boot_id,
        agent_version=host.agent_version,
        gpus=[
            resource_pb2.Gpu(
                index=device.index,
                uuid=device.uuid,
                gpu_type=device.gpu_type,
                memory_bytes=device.memory_bytes,
            )
            for device in listed
        ],
        virtual_devices=any(device.virtual for device in listed),
        cpu_count=host.cpu_count,
        memory_bytes=host.memory_bytes,
        root_jobs=root_jobs,
        pool=pool,
        instance_id=instance_id,
        runtimes=list(runtimes),
        features=[FEATURE],
        address=address,
    )


# ---- from the agent


def _unexplained(key: RankKey, fence: Fence) -> wire.UnexplainedRank:
    return wire.UnexplainedRank(job_id=key.job_id, node_rank=key.node_rank, fence=_fence(fence))


def encode(message: FromAgent, facts: wire.NodeFacts) -> wire.SessionRequest:
    """One message of the stream; `facts` go into a Hello."""
    match message:
        case Hello():
            hello = wire.Hello(
                facts=facts,
                highest_epoch=message.highest_epoch,
                ranks=[_report(report) for report in message.ranks],
                instance=wire.AgentInstance(
                    process_id=message.instance.process_id,
                    place=message.instance.place,
                    memory_id=message.instance.memory_id,
                    machine_id=message.instance.machine_id,
                ),
                unexplained=[_unexplained(key, fence) for key, fence in message.unexplained],
            )
            return wire.SessionRequest(hello=hello)
        case Heartbeat():
            progress = [_progress(rank) for rank in message.progress]
            beat = wire.Heartbeat(sequence=message.sequence, progress=progress)
            beat.hold_revision = message.hold_revision
            if message.health is not None:
                beat.health.CopyFrom(_health(message.health))
            if message.disk is not None:
                beat.disk.full = message.disk.full
                beat.disk.free_bytes = message.disk.free_bytes
                beat.disk.spare_bytes = message.disk.spare_bytes
            return wire.SessionRequest(heartbeat=beat)
        case RankReport():
            return wire.SessionRequest(report=_report(message))
        case CommandResult(sequence, refusal):
            result = wire.CommandResult(sequence=sequence, refusal=refusal)
            return wire.SessionRequest(command_result=result)
        case ProfileEvidence():
            return wire.SessionRequest(profile_evidence=_evidence(message))
        case GpuLook():
            readings = [
                wire.GpuReading(index=index, used_memory_bytes=used, process_count=processes)
                for index, used, processes in message.gpus
            ]
            return wire.SessionRequest(gpu_look=wire.GpuLook(number=message.number, gpus=readings))


def _health(told: Iterable[GpuHealth]) -> wire.NodeHealth:
    return wire.NodeHealth(
        gpus=[
            wire.GpuHealth(
                index=gpu.index,
                symptoms=[
                    wire.GpuSymptom(
                        code=symptom.code,
                        detail=_text(symptom.words),
                        age_duration=to_duration(symptom.age_s),
                    )
                    for symptom in gpu.symptoms
                ],
                temperature_celsius=gpu.temperature_celsius,
                utilization_percent=gpu.utilization_percent,
                used_memory_bytes=gpu.used_memory_bytes,
            )
            for gpu in told
        ]
    )


def _report(report: RankReport) -> wire.RankReport:
    message = wire.RankReport(
        sequence=report.sequence,
        job_id=report.key.job_id,
        fence=_fence(report.fence),
        node_rank=report.key.node_rank,
        phase=_PHASES[report.phase],
        exit_code=report.exit_code,
        signal=report.signal,
        oom_killed=report.oom_killed,
        error=_text(report.error),
        ended_by=report.ended_by,
        done=report.done,
        peak_memory_bytes=report.peak_memory_bytes,
        cpu_duration=to_duration(report.cpu_s),
        age_duration=to_duration(report.age_s),
        gpu_indexes=report.gpu_indexes,
        detail=_text(report.detail),
        no_room=report.no_room,
        image_digest=report.image_digest,
        ports=report.ports,
        workers_done=report.workers_done,
        last_lines=[_text(line) for line in report.last_lines],
        failed_task=_text(report.failed_task),
        noticed=report.noticed,
        unnoticed=report.unnoticed,
        start_cause=report.start_cause,
        gpus_held=_text(report.gpus_held),
    )
    if report.checkpoint is not None:
        message.checkpoint.CopyFrom(_checkpoint(report.checkpoint))
    if report.run_s is not None:
        message.run_duration.CopyFrom(to_duration(report.run_s))
    if report.save_s is not None:
        message.save_duration.CopyFrom(to_duration(report.save_s))
    return message


def _checkpoint(fact: CheckpointFact) -> wire.CheckpointFact:
    return wire.CheckpointFact(
        path=fact.path,
        step=fact.step,
        age_duration=to_duration(fact.age_s),
        evidence=fact.evidence,
        after_notice=fact.after_notice,
    )


def _progress(progress: RankProgress) -> wire.RankProgress:
    return wire.RankProgress(
        job_id=progress.key.job_id,
        fence=_fence(progress.fence),
        node_rank=progress.key.node_rank,
        step=progress.step,
        total_step_count=progress.total,
        loss=progress.loss,
        age_duration=None if progress.age_s is None else to_duration(progress.age_s),
        memory_bytes=progress.memory_bytes,
    )


def _evidence(evidence: ProfileEvidence) -> profile_pb2.ProfileEvidence:
    found = evidence.found
    return profile_pb2.ProfileEvidence(
        job_id=evidence.key.job_id,
        fence=_fence(evidence.fence),
        node_rank=evidence.key.node_rank,
        age_duration=to_duration(evidence.age_s),
        window_duration=to_duration(found.window_s),
        gpu_type=found.gpu_type,
        gpu_count=found.gpu_count,
        node_count=found.node_count,
        process_count=found.process_count,
        rank_count=found.rank_count,
        pattern=found.pattern,
        traffic=_verdict(found.traffic),
        sizes=_verdict(found.sizes),
        iteration_count=found.iteration_count,
        period_duration=None if found.period_s is None else to_duration(found.period_s),
        jitter=found.jitter,
        bytes_per_iteration=found.bytes_per_iteration,
        model_bytes=found.model_bytes,
        largest_tensor_low_bytes=found.largest_low_bytes,
        largest_tensor_high_bytes=found.largest_high_bytes,
        skew_low=found.skew_low,
        skew_high=found.skew_high,
        server_skew=found.server_skew,
        active_fraction=found.active_fraction,
        self_check_error=found.self_check_error,
        record_count=found.record_count,
        lost_count=found.lost_count,
        unseen=found.unseen,
        limits=found.limits,
        processes=found.processes.encode(),
    )


def _verdict(verdict: Verdict) -> profile_pb2.ProfileVerdict:
    return profile_pb2.ProfileVerdict(
        method=verdict.method, confidence=verdict.confidence, reason=verdict.reason
    )


def _text(words: str) -> str:
    """Words that may repeat a job's file names, in a form that any message can carry."""
    return words[:_LONGEST_ERROR].encode("utf-8", "replace").decode("utf-8")


def _fence(fence: Fence) -> lease_pb2.Fence:
    return lease_pb2.Fence(epoch=fence.epoch, attempt=fence.attempt)


# ---- from the master


def decode(message: wire.SessionResponse) -> FromMaster | None:
    """One message of the stream; None for one of a later version that this agent does not know.

    Raises BadMessage for a message without a meaning.
    """
    try:
        match message.WhichOneof("body"):
            case "welcome":
                return _welcome(message.welcome)
            case "heartbeat_reply":
                return _heartbeat_reply(message.heartbeat_reply)
            case "command":
                return _command(message.command)
            case "report_ack":
                return ReportAck(message.report_ack.sequence)
            case "profile_ack":
                return _profile_ack(message.profile_ack)
            case _:
                return None
    except ValueError as error:
        raise BadMessage(str(error)) from error


def _welcome(welcome: wire.Welcome) -> Welcome:
    return Welcome(
        epoch=welcome.epoch,
        heartbeat_s=_positive(from_duration(welcome.heartbeat_duration), "heartbeat"),
        ttl_s=_positive(from_duration(welcome.ttl_duration), "ttl"),
        reconnect_jitter_s=max(0.0, from_duration(welcome.reconnect_jitter_duration)),
        wanted=tuple(_launch(launch) for launch in welcome.wanted),
        stops=tuple(_stop(stop) for stop in welcome.stops),
        hold_extension_s=max(0.0, from_duration(welcome.hold_extension_duration)),
        hold_revision=welcome.hold_revision,
    )


def _heartbeat_reply(reply: wire.HeartbeatReply) -> HeartbeatReply:
    extension_s = max(0.0, from_duration(reply.hold_extension_duration))
    return HeartbeatReply(reply.sequence, extension_s, reply.hold_revision)


def _command(command: wire.Command) -> Command | None:
    order: Launch | Stop | Signal | Save | OpenLog | OpenExec | LookAtGpus
    match command.WhichOneof("body"):
        case "launch":
            order = _launch(command.launch)
        case "stop":
            order = _stop(command.stop)
        case "signal":
            order = _signal(command.signal)
        case "save":
            order = _save(command.save)
        case "open_log":
            order = _open_log(command.open_log)
        case "open_exec":
            order = _open_exec(command.open_exec)
        case "look_at_gpus":
            order = LookAtGpus(command.look_at_gpus.number)
        case _:
            return None
    return Command(sequence=command.sequence, epoch=command.epoch, order=order)


def _launch(launch: wire.LaunchCommand) -> Launch:
    spec = launch.spec
    limits = spec.resources
    return Launch(
        **_of_the_table(spec),
        key=_key(launch.job_id, launch.fence, launch.node_rank),
        fence=Fence(launch.fence.epoch, launch.fence.attempt),
        command=tuple(spec.command),
        script=spec.script,
        environment=dict(spec.environment),
        runtime=spec.runtime,
        gpu_indexes=tuple(launch.gpu_indexes),
        node_addresses=tuple(launch.node_addresses),
        node_ids=tuple(launch.node_ids),
        master_port=launch.master_port,
        user=launch.user,
        uid=launch.uid,
        gid=launch.gid,
        groups=tuple(launch.groups),
        preempt_signal=spec.preempt.signal,
        checkpoint_directory=launch.checkpoint_directory,
        checkpoint_base=launch.checkpoint_base,
        checkpoint_named=bool(spec.checkpoint.directory),
        settle_s=max(0.0, from_duration(spec.checkpoint.settle_duration)),
        resume_from=launch.resume_from,
        hold_s=_positive(from_duration(launch.hold_duration), "hold"),
        grace_s=max(0.0, from_duration(launch.grace_duration)),
        restart_count=launch.restart_count,
        time_left_s=(
            from_duration(launch.time_left_duration)
            if launch.HasField("time_left_duration")
            else None
        ),
        container=_container(spec.container) if spec.HasField("container") else None,
        at_barrier=launch.at_barrier,
        port_first=launch.port_first,
        port_last=launch.port_last,
        node_ports=tuple(tuple(each.ports) for each in launch.node_ports),
        node_gpu_counts=tuple(launch.node_gpu_counts),
        node_gpu_types=tuple(launch.node_gpu_types),
        profile=_profile_order(launch.profile) if launch.HasField("profile") else None,
        trial=launch.trial,
        sizes=tuple(spec.elastic.gpu_counts),
        live=spec.elastic.resize == LIVE,
        joins=launch.joins,
        asked_gpus=max(0, limits.gpu_count),
        gpu_memory_bytes=max(0, limits.gpu_memory_bytes) if limits.halves_batch else 0,
    )


def _of_the_table(spec: job_pb2.JobSpec) -> dict[str, Any]:
    """Fields that a launch takes over as they are; missing ones have the record's default."""
    named: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, field in FIELDS.items():
        value = None if field.wire is None else field.wire.take(spec)
        if value is not None and field.launch:
            named[field.launch] = value
        if value is not None and field.to_agent:
            others[key] = value
    return {**named, "fields": others}


def _profile_order(order: profile_pb2.ProfileOrder) -> ProfileOrder:
    return ProfileOrder(max(0.0, from_duration(order.window_duration)))


def _container(asked: job_pb2.ContainerSpec) -> ContainerRequest:
    return ContainerRequest(
        image=asked.image,
        mounts=tuple(
            MountRequest(source=each.source, target=each.target, read_only=each.read_only)
            for each in asked.mounts
        ),
        shm_size_bytes=asked.shm_size_bytes if asked.HasField("shm_size_bytes") else None,
        network=asked.network,
        image_secret=asked.image_secret,
        secrets=tuple(asked.secrets),
    )


def _stop(stop: wire.StopCommand) -> Stop:
    return Stop(
        key=_key(stop.job_id, stop.fence, stop.node_rank),
        fence=Fence(stop.fence.epoch, stop.fence.attempt),
        cause=stop.cause,
        grace_s=max(0.0, from_duration(stop.grace_duration)),
        delay_s=max(0.0, from_duration(stop.delay_duration)),
    )


def _signal(order: wire.SignalCommand) -> Signal:
    return Signal(
        key=_key(order.job_id, order.fence, order.node_rank),
        fence=Fence(order.fence.epoch, order.fence.attempt),
        signal=order.signal,
    )


def _save(order: wire.SaveCommand) -> Save:
    return Save(
        key=_key(order.job_id, order.fence, order.node_rank),
        fence=Fence(order.fence.epoch, order.fence.attempt),
        number=order.number,
    )


def _profile_ack(ack: wire.ProfileAck) -> ProfileAck:
    return ProfileAck(
        key=_key(ack.job_id, ack.fence, ack.node_rank),
        fence=Fence(ack.fence.epoch, ack.fence.attempt),
    )


def _open_log(order: wire.OpenLogCommand) -> OpenLog:
    return OpenLog(
        relay_id=order.relay_id,
        key=_key(order.job_id, order.fence, order.node_rank),
        offset=order.offset,
        follow=order.follow,
    )


def _open_exec(order: wire.OpenExecCommand) -> OpenExec:
    return OpenExec(
        relay_id=order.relay_id,
        key=_key(order.job_id, order.fence, order.node_rank),
        fence=Fence(order.fence.epoch, order.fence.attempt),
    )


def _key(job_id: str, fence: lease_pb2.Fence, node_rank: int) -> RankKey:
    # Parsed, because it names directories: a master gone mad must not reach outside them.
    return RankKey.parse(f"{job_id}.{fence.attempt}.{node_rank}")


def _positive(seconds: float, what: str) -> float:
    if seconds <= 0:
        raise BadMessage(f"{what} of {seconds} s")
    return seconds
