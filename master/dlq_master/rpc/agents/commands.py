"""Commands of the core to agents become messages. The way back is agent_intake.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlq.v1 import agent_service_pb2 as agent
from dlq.v1 import job_pb2, lease_pb2
from dlq_common.text.wire import to_duration
from dlq_master.control.stimuli import Command, Launch, LookAtGpus, Opened, Signal, Stop
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.agents.task import fit_to_task
from dlq_master.rpc.specs.elastic import fit_to_sizes


def welcome_messages(opened: Opened, places: CheckpointPlaces) -> Iterator[agent.SessionResponse]:
    """The answer to a hello."""
    welcome = agent.Welcome(
        epoch=opened.epoch,
        heartbeat_duration=to_duration(opened.heartbeat_s),
        ttl_duration=to_duration(opened.ttl_s),
        reconnect_jitter_duration=to_duration(opened.reconnect_jitter_s),
        wanted=[launch_message(launch, places) for launch in opened.launches],
        stops=[stop_message(stop) for stop in opened.stops],
        hold_extension_duration=to_duration(opened.hold_extension_s),
        hold_revision=opened.hold_revision,
    )
    yield agent.SessionResponse(welcome=welcome)
    if opened.acknowledged:
        yield agent.SessionResponse(report_ack=agent.ReportAck(sequence=opened.acknowledged))


def command_message(command: Command, epoch: int, places: CheckpointPlaces) -> agent.Command:
    """A command of this master's epoch."""
    message = agent.Command(sequence=command.sequence, epoch=epoch)
    if isinstance(command, Launch):
        message.launch.CopyFrom(launch_message(command, places))
    elif isinstance(command, Stop):
        message.stop.CopyFrom(stop_message(command))
    elif isinstance(command, LookAtGpus):
        message.look_at_gpus.number = command.number
    elif isinstance(command, Signal):
        message.signal.CopyFrom(
            agent.SignalCommand(
                job_id=str(command.key.job_id),
                fence=_fence(command.key, command.epoch),
                node_rank=command.node_rank,
                signal=command.signal,
            )
        )
    else:
        message.save.CopyFrom(
            agent.SaveCommand(
                job_id=str(command.key.job_id),
                fence=_fence(command.key, command.epoch),
                node_rank=command.node_rank,
                number=command.number,
            )
        )
    return message


def launch_message(launch: Launch, places: CheckpointPlaces) -> agent.LaunchCommand:
    """Run one rank."""
    spec = job_pb2.JobSpec.FromString(launch.spec)
    fit_to_task(spec, launch)
    fit_to_sizes(spec, launch.sizes, fixed=launch.fixed)
    spec.queue = launch.queue or spec.queue  # the default one by its name, or another by now
    message = agent.LaunchCommand(
        job_id=str(launch.key.job_id),
        fence=_fence(launch.key, launch.epoch),
        node_rank=launch.node_rank,
        gpu_indexes=launch.gpu_indexes,
        node_addresses=launch.node_addresses,
        node_ids=_texts(launch.node_ids),
        master_port=launch.master_port,
        spec=spec,
        user=launch.user,
        uid=launch.uid,
        gid=launch.gid,
        groups=launch.groups,
        resume_from=launch.resume_from,
        checkpoint_directory=places.directory(spec, launch.key, trial=launch.trial),
        checkpoint_base=places.base(spec),
        hold_duration=to_duration(launch.hold_s),
        grace_duration=to_duration(launch.grace_s),
        restart_count=launch.restart_count,
    )
    message.at_barrier, message.trial = launch.at_barrier, launch.trial
    message.joins = launch.joins
    if launch.record_s is not None:
        message.profile.window_duration.CopyFrom(to_duration(launch.record_s))
    message.node_gpu_counts.extend(launch.node_gpu_counts)
    message.node_gpu_types.extend(launch.node_gpu_types)
    message.port_first, message.port_last = launch.port_first, launch.port_last
    message.node_ports.extend(agent.NodePorts(ports=ports) for ports in launch.node_ports)
    if launch.time_left_s is not None:
        message.time_left_duration.CopyFrom(to_duration(launch.time_left_s))
    return message


def stop_message(stop: Stop) -> agent.StopCommand:
    """End one rank."""
    return agent.StopCommand(
        job_id=str(stop.key.job_id),
        fence=_fence(stop.key, stop.epoch),
        node_rank=stop.node_rank,
        cause=stop.cause,
        grace_duration=to_duration(stop.grace_s),
        delay_duration=to_duration(stop.delay_s),
    )


def _fence(key: AttemptKey, epoch: int) -> lease_pb2.Fence:
    return lease_pb2.Fence(epoch=epoch, attempt=key.number)


def _texts(node_ids: Iterable[NodeId]) -> list[str]:
    return [str(node_id) for node_id in node_ids]
