"""The words of a broken master to its agents: real ones, real ones with changes, and noise."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from google.protobuf import descriptor_pool

from attack.forging import Forger
from dlq.v1 import agent_service_pb2 as wire
from dlq_common.text.wire import to_duration
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import (
    Command,
    Fence,
    FromMaster,
    Launch,
    Save,
    Signal,
    Stop,
    Welcome,
)
from fuzz.corpus import Mutator
from support.stub_master import launch_command, stop_command

SAID = "dlq.v1.SessionResponse"
OUTSIDE = "../../outside"
"""A name that leads out of a directory, in all fields that name one."""
SHARES = (0.15, 0.6, 0.8, 0.95)  # said as they are, changed, bent, forged; the rest is noise


def real_words(jobs: Sequence[str], *, epoch: int) -> list[wire.SessionResponse]:
    """What masters say of these jobs and of others, under the fences of an older epoch too."""
    orders: list[wire.Command] = []
    for job in jobs:
        for under, attempt in ((epoch, 1), (epoch, 2), (epoch - 1, 1), (epoch - 1, 2)):
            stop = stop_command(int(job), grace_s=0.0, epoch=under, attempt=attempt)
            fence = stop.fence
            orders += [
                wire.Command(epoch=under, stop=stop),
                wire.Command(epoch=under, signal=wire.SignalCommand(job_id=job, fence=fence)),
                wire.Command(epoch=under, save=wire.SaveCommand(job_id=job, fence=fence, number=3)),
                wire.Command(
                    epoch=under,
                    open_exec=wire.OpenExecCommand(job_id=job, fence=fence, relay_id="e"),
                ),
            ]
        log = wire.OpenLogCommand(relay_id="r", job_id=job, offset=-100)
        log.fence.epoch, log.fence.attempt = epoch, 1
        orders.append(wire.Command(epoch=epoch, open_log=log))
    for number, under in enumerate((epoch - 1, epoch - 1, epoch)):
        launch = launch_command(900 + number, "/bin/true", epoch=under, checkpoint_directory="/c")
        orders.append(wire.Command(epoch=under, launch=launch))
    samples = wire.OpenSamplesCommand(relay_id="s", sample_duration=to_duration(0.1), user="x")
    orders += [
        wire.Command(epoch=epoch, open_samples=samples),
        wire.Command(epoch=epoch, look_at_gpus=wire.LookAtGpusCommand(number=1)),
    ]
    for number, order in enumerate(orders, 1):
        order.sequence = number
    return [welcome(epoch), welcome(epoch - 1), *_answers(jobs), *map(_said, orders)]


def welcome(epoch: int) -> wire.SessionResponse:
    """The first word of a session, with a launch and a stop of others."""
    told = wire.Welcome(
        epoch=epoch,
        heartbeat_duration=to_duration(0.5),
        ttl_duration=to_duration(4.0),
        reconnect_jitter_duration=to_duration(0.2),
        wanted=[launch_command(950, "/bin/true", epoch=epoch)],
        stops=[stop_command(960, grace_s=0.0, epoch=epoch)],
        hold_revision=1,
    )
    return wire.SessionResponse(welcome=told)


def _answers(jobs: Sequence[str]) -> Iterator[wire.SessionResponse]:
    yield wire.SessionResponse(heartbeat_reply=wire.HeartbeatReply(sequence=1))
    held = wire.HeartbeatReply(sequence=2, hold_revision=2)
    held.hold_extension_duration.CopyFrom(to_duration(60.0))
    yield wire.SessionResponse(heartbeat_reply=held)
    yield wire.SessionResponse(report_ack=wire.ReportAck(sequence=1))
    for job in jobs:
        yield wire.SessionResponse(steps_ack=wire.StepsAck(job_id=job, number=1))
        ack = wire.SessionResponse()
        ack.profile_ack.job_id = job
        yield ack


def _said(command: wire.Command) -> wire.SessionResponse:
    return wire.SessionResponse(command=command)


class BrokenMaster:
    """A stream of words, all from one seed."""

    def __init__(self, seed: str, jobs: Sequence[str], *, epoch: int) -> None:
        known = {
            "job_id": [*jobs, "900", OUTSIDE, "0", "1.1"],
            "relay_id": ["r", OUTSIDE, ""],
            "checkpoint_directory": ["/", "/etc", OUTSIDE, ""],
            "resume_from": ["/etc", OUTSIDE, ""],
            "user": ["root", OUTSIDE, "nobody"],
            "signal": ["KILL", "STOP", "TERM", "SEGV", "", OUTSIDE],
            "cause": ["cancel", "preempt", "resize", ""],
        }
        self._chance = random.Random(seed)
        self._mutator = Mutator(seed, known, {})
        self._forger: Forger = self._mutator.forger
        self._real = [each.SerializeToString() for each in real_words(jobs, epoch=epoch)]
        self._form = descriptor_pool.Default().FindMessageTypeByName(SAID)

    def word(self) -> bytes:
        """The next one."""
        kind, real = self._chance.random(), self._chance.choice(self._real)
        as_is, changed, bent, forged = SHARES
        if kind < as_is:
            return real
        if kind < changed:
            return self._mutator.change(SAID, real)
        if kind < bent:
            return self._forger.bend(real)
        if kind < forged:
            return self._forger.message(self._form, 0).SerializeToString()
        return self._forger.noise(300)


def is_lawful(told: FromMaster | None, epoch: int, ranks: dict[RankKey, Fence]) -> bool:
    """Whether a sound master of this epoch might say it, and mean one of these ranks or a new one.

    Nobody can tell a broken master from a sound one by such a word.
    """
    if isinstance(told, Welcome):
        return True
    if not isinstance(told, Command) or told.epoch < epoch:
        return False
    if told.epoch > epoch:
        return True  # a master raises its epoch in a session where another agent has seen more
    order = told.order
    if isinstance(order, Stop | Signal | Save):
        return ranks.get(order.key) == order.fence
    return isinstance(order, Launch)
