"""Commands of the core as messages to agents. `reports/agent_intake.py` reads the
agents' messages.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from dlq.v1 import agent_service_pb2 as agent
from dlq.v1 import job_pb2, lease_pb2
from dlq_common.text.wire import filled, to_duration
from dlq_master.control.stimuli import (
    Command,
    Launch,
    LookAtGpus,
    Opened,
    Resume,
    Save,
    Signal,
    Stop,
    Suspend,
)
from dlq_master.control.stimuli.nodes import RankCommand
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.agents.task import fit_to_task
from dlq_master.rpc.specs.elastic import fit_to_sizes

FEATURES: Final = ("steps", "reports-answer")  # words for agents; the proto tells of each


class RowsPlace(NamedTuple):
    """The database of this master. An agent obeys no master with another database later."""

    system: str = ""
    timeline: int = 0
    former: tuple[str, ...] = ()


OWN_FILE: Final = RowsPlace()


def welcome_messages(
    opened: Opened, places: CheckpointPlaces, database: RowsPlace = OWN_FILE
) -> Iterator[agent.SessionResponse]:
    """The messages that answer a hello."""
    welcome = agent.Welcome(
        epoch=opened.epoch,
        heartbeat_duration=to_duration(opened.heartbeat_s),
        ttl_duration=to_duration(opened.ttl_s),
        reconnect_jitter_duration=to_duration(opened.reconnect_jitter_s),
        wanted=[launch_message(launch, places) for launch in opened.launches],
        stops=[stop_message(stop) for stop in opened.stops],
        hold_extension_duration=to_duration(opened.hold_extension_s),
        hold_revision=opened.hold_revision,
        features=FEATURES,
        system=database.system,
        timeline=database.timeline,
        former_systems=database.former,
    )
    yield agent.SessionResponse(welcome=welcome)
    if opened.acknowledged:
        yield agent.SessionResponse(report_ack=agent.ReportAck(sequence=opened.acknowledged))


def command_message(command: Command, epoch: int, places: CheckpointPlaces) -> agent.Command:
    """A command, with this master's epoch."""
    message = agent.Command(sequence=command.sequence, epoch=epoch)
    match command:
        case Launch():
            message.launch.CopyFrom(launch_message(command, places))
        case Stop():
            message.stop.CopyFrom(stop_message(command))
        case LookAtGpus():
            message.look_at_gpus.number = command.number
        case Signal():
            message.signal.CopyFrom(filled(agent.SignalCommand, command, **_rank_of(command)))
        case Save():
            message.save.CopyFrom(filled(agent.SaveCommand, command, **_rank_of(command)))
        case Suspend():
            message.suspend.CopyFrom(filled(agent.SuspendCommand, command, **_rank_of(command)))
        case Resume():
            message.resume.CopyFrom(filled(agent.ResumeCommand, command, **_rank_of(command)))
    return message


def launch_message(launch: Launch, places: CheckpointPlaces) -> agent.LaunchCommand:
    """The command that starts one rank."""
    spec = job_pb2.JobSpec.FromString(launch.spec)
    fit_to_task(spec, launch)
    fit_to_sizes(spec, launch.sizes, fixed=launch.fixed)
    spec.queue = launch.queue or spec.queue  # the default one by its name, or another by now
    message = filled(
        agent.LaunchCommand,
        launch,
        **_rank_of(launch),
        node_ids=map(str, launch.node_ids),
        node_ports=[agent.NodePorts(ports=ports) for ports in launch.node_ports],
        spec=spec,
        checkpoint_directory=places.directory(spec, launch.key, trial=launch.trial),
        checkpoint_base=places.base(spec),
        step_key=step_key(places.seed, launch) if _has_steps_elsewhere(spec, launch) else "",
        hold_duration=to_duration(launch.hold_s),
        grace_duration=to_duration(launch.grace_s),
        time_left_duration=to_duration(launch.time_left_s),
    )
    if not message.resume_from and not launch.trial:
        message.resume_from = spec.checkpoint.resume_from
    if launch.record_s is not None:
        message.profile.window_duration.CopyFrom(to_duration(launch.record_s))
    return message


def _has_steps_elsewhere(spec: job_pb2.JobSpec, launch: Launch) -> bool:
    return spec.compat == "slurm" and len(launch.node_ids) > 1


def step_key(seed: bytes, launch: Launch) -> str:
    """The secret with which the ranks of an attempt recognise each other.

    It follows from the seed, so a restarted master derives the same.
    """
    attempt = f"steps {launch.key.job_id} {launch.key.number} {launch.epoch}"
    return hmac.new(seed, attempt.encode(), hashlib.sha256).hexdigest()


def stop_message(stop: Stop) -> agent.StopCommand:
    """The command that ends one rank."""
    return filled(
        agent.StopCommand,
        stop,
        **_rank_of(stop),
        grace_duration=to_duration(stop.grace_s),
        delay_duration=to_duration(stop.delay_s),
    )


def _rank_of(command: RankCommand) -> dict[str, Any]:
    key = command.key
    fence = lease_pb2.Fence(epoch=command.epoch, attempt=key.number)
    return {"job_id": str(key.job_id), "fence": fence}
