"""A node with the agent's real core on a fake host, under a real master: what they say to each
other goes over the wire's own messages, and the agent may be killed before and after whatever it
does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1.resource_pb2 import Gpu
from dlq_common.live_resize import FEATURE
from dlq_master.control.stimuli import (
    CloseSession,
    CommandDone,
    Heartbeat,
    Opened,
    OpenSession,
    RankReports,
)
from dlq_master.model.ids import NodeId
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.agents.commands import command_message, welcome_messages
from dlq_master.rpc.reports.agent_intake import facts_of, progress_of, report_of, reports_of
from dlq_nodeagent.core import AgentCore
from dlq_nodeagent.line import wire as agent_wire
from dlq_nodeagent.line.uplink import UplinkTransport
from dlq_nodeagent.model import messages
from dlq_nodeagent.model.errands import LookOrder, Move, MoveResult
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.model.port import Runtime
from dlq_nodeagent.state.journal import Journal
from support.agent_bench import AgentBench, a_preparation, made
from support.master_harness import Master

ROOT = "/ckpt"
PLACES = CheckpointPlaces(ROOT, b"seed")
PORT = 29_777
# What changes the host, the disk or the master's mind. Looks and heartbeats change nothing.
_ACTS = frozenset(
    {"start", "stop", "kill", "signal", "notice", "forget", "save_rank", "drop_rank", "send"}
    | {"standstill"}
)


class Killed(BaseException):
    """The agent is gone, with all that was on its way to it."""


class _Mortal:
    """A port whose user may die just before, or just after, it is used."""

    def __init__(self, port: Any, passed: Callable[[], None]) -> None:
        self._port, self._passed = port, passed

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name not in _ACTS:
            return found

        def act(*given: Any, **named: Any) -> Any:
            if given and isinstance(given[0], messages.Heartbeat):
                return found(*given, **named)
            self._passed()
            done = found(*given, **named)
            self._passed()
            return done

        return act


class CoreAgent(AgentBench):
    """`dies_at`: at which passage it is killed, counted from 1; 0: at none. `away_s`: how long the
    node is then without an agent."""

    def __init__(
        self,
        master: Master,
        name: str,
        gpus: int = 4,
        *,
        dies_at: int = 0,
        away_s: float = 0.0,
        suspend_bytes: int = 0,
        own_only: str = "",
    ) -> None:
        self.passages = self.deaths = 0
        self.own_only = own_only
        self._dies_at, self._away_s, self._back_s = dies_at, away_s, 0.0
        self._master, self.node_id = master, NodeId(name)
        self._session_id: int | None = None
        self._read = 0
        self._gpus_of: dict[RankKey, frozenset[int]] = {}
        gpu = (Gpu(index=at, gpu_type="h100", uuid=f"{name}-{at}") for at in range(gpus))
        self._facts = wire.NodeFacts(
            hostname=name,
            address="10.0.0.1",
            boot_id="1",
            gpus=gpu,
            features=[FEATURE],
            suspend_memory_bytes=suspend_bytes,
        )
        super().__init__(clock=master.clock)
        self.prepare = self._prepared
        self.move = self._moved

    def step(self) -> None:
        """One moment of its life, in which it may die."""
        if self.clock.now_s() < self._back_s:
            return
        try:
            self._live()
        except Killed:
            self.kill()

    def kill(self) -> None:
        """kill -9; what it has sent arrives, what was on its way to it does not."""
        self.deaths += 1
        self._back_s = self.clock.now_s() + self._away_s
        self._say_what_was_said(to_nobody=True)
        self._cut()
        self.restart()

    def lose_master(self) -> None:
        """The master is another process: the line is gone, and what was on it."""
        self._session_id = None
        self.core.closed()

    def end(self, job_id: int, code: int = 0) -> None:
        """What runs of this job here ends by itself."""
        for key, attempt in self.host.attempts.items():
            if key.job_id == str(job_id) and attempt.record is None:
                attempt._exits_at_s, attempt._exit_code = self.clock.boottime_s(), code
        self.host.settle()

    def gpus_of(self, job_id: int) -> frozenset[int]:
        """GPUs of the ranks of a job, as the host knows them."""
        found = [gpus for key, gpus in self._gpus_of.items() if key.job_id == str(job_id)]
        return frozenset().union(*found)

    # ---- inside

    def _core(self, runtime: Runtime, transport: UplinkTransport, journal: Journal) -> AgentCore:
        mortal = [_Mortal(port, self._passed) for port in (runtime, transport, journal)]
        return super()._core(*mortal)

    def _passed(self) -> None:
        self.passages += 1
        if self.passages == self._dies_at:
            raise Killed

    def _prepared(self, launch: Launch) -> Any:
        self._gpus_of[launch.key] = frozenset(launch.gpu_indexes)
        made = a_preparation(launch)
        self._must_have_room(launch.key)
        return made if launch.key.node_rank else replace(made, ports=(PORT,))

    def _must_have_room(self, key: RankKey) -> None:
        for other, attempt in self.host.attempts.items():
            if attempt.record is None and other != key and not attempt.frozen:
                both = self._gpus_of[key] & self._gpus_of[other]
                assert not both, f"{key} gets GPUs {both} of {other}\n{self._master.story()}"

    def _moved(self, move: Move) -> MoveResult:
        """Its processes go on record first, as those of a real job that uses CUDA."""
        if not move.out:
            self._gpus_of[move.launch.key] = frozenset(move.launch.gpu_indexes)
            self._must_have_room(move.launch.key)
        elif not move.pids:
            return MoveResult(found=(11, 12), nbytes=2 << 30)
        return replace(made(move), own_only=self.own_only if move.out else "")

    def is_released(self, look: LookOrder) -> bool:
        """Whatever runs there is seen, whoever it belongs to."""
        asked = set(look.launch.gpu_indexes) - look.given_out
        return not any(
            asked & self._gpus_of[key]
            for key, attempt in self.host.attempts.items()
            if attempt.record is None and not attempt.frozen
        )

    def _live(self) -> None:
        opens = self.transport.opens
        self.core.tick()
        if self.transport.opens != opens:
            self._cut()
            self.core.opened()
        for _ in range(50):
            busy = self._answer_errands()
            self.core.speak()
            if not (self._talk() or busy):
                return
        raise AssertionError("they never stop talking")

    def _talk(self) -> bool:
        """What the agent has said reaches the master, and what that has said the agent."""
        said = self._say_what_was_said()
        heard = False
        if self._session_id is not None:
            sent = self._master.wires.sent[self.node_id]
            fresh, self._read = sent[self._read :], len(sent)
            for session_id, command in fresh:
                if session_id == self._session_id:
                    heard = True
                    told = command_message(command, self._master.state.epoch, PLACES)
                    self._hear(wire.SessionResponse(command=told))
        return said or heard

    def _say_what_was_said(self, *, to_nobody: bool = False) -> bool:
        """`to_nobody`: who asked is dead, and what it said last is still on its way."""
        fresh = self.transport.sent[self._heard() :]
        self.transport.__dict__["heard"] = len(self.transport.sent)
        for message in fresh:
            answers = self._asked(agent_wire.encode(message, self._facts))
            for answer in () if to_nobody else answers:
                self._hear(answer)
        return bool(fresh)

    def _hear(self, message: wire.SessionResponse) -> None:
        told = agent_wire.decode(message)
        assert told is not None
        self.core.received(told)

    def _asked(self, said: wire.SessionRequest) -> list[wire.SessionResponse]:
        """What the master answers, as its session does."""
        master, node_id, session_id = self._master, self.node_id, self._session_id
        if said.HasField("hello"):
            self._read = len(master.wires.sent[node_id])
            opened: Opened = master.ask(
                OpenSession(
                    node_id=node_id,
                    facts=facts_of(said.hello.facts),
                    highest_epoch=said.hello.highest_epoch,
                    reports=reports_of(said.hello.ranks),
                )
            )
            self._session_id = opened.session_id
            return list(welcome_messages(opened, PLACES))
        if session_id is None:
            return []
        if said.HasField("heartbeat"):
            progress = tuple(progress_of(each) for each in said.heartbeat.progress)
            beat = Heartbeat(node_id=node_id, session_id=session_id, progress=progress)
            master.turn(beat)
            reply = wire.HeartbeatReply(sequence=said.heartbeat.sequence)
            return [wire.SessionResponse(heartbeat_reply=reply)]
        if said.HasField("report"):
            told = RankReports(
                node_id=node_id, session_id=session_id, reports=(report_of(said.report),)
            )
            ack = wire.ReportAck(sequence=master.ask(told))
            return [wire.SessionResponse(report_ack=ack)]
        if said.HasField("profile_evidence"):
            told_of = said.profile_evidence
            known = wire.ProfileAck(
                job_id=told_of.job_id, fence=told_of.fence, node_rank=told_of.node_rank
            )
            return [wire.SessionResponse(profile_ack=known)]
        if said.HasField("steps_report"):
            steps = said.steps_report
            taken = wire.StepsAck(
                job_id=steps.job_id,
                fence=steps.fence,
                node_rank=steps.node_rank,
                number=steps.number,
            )
            return [wire.SessionResponse(steps_ack=taken)]
        result = said.command_result
        master.turn(
            CommandDone(
                node_id=node_id,
                session_id=session_id,
                sequence=result.sequence,
                refusal=result.refusal,
            )
        )
        return []

    def _cut(self) -> None:
        if self._session_id is not None:
            self._master.turn(CloseSession(node_id=self.node_id, session_id=self._session_id))
            self._session_id = None
