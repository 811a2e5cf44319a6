"""Calls of agents: one session per node, and the logs that they are asked for.

An agent speaks for its own node, which its certificate names, and for ranks that were placed there.
A session that reports anything else is ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1.profile_pb2 import ProfileEvidence
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import InvalidRequest, PermissionDenied, Unavailable
from dlq_common.text.units import DAY
from dlq_common.text.wire import to_duration
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import (
    AnnounceLeave,
    AnnounceMaintenance,
    CloseSession,
    CommandDone,
    Heartbeat,
    OpenSession,
    RankReports,
    ReportedRank,
)
from dlq_master.model.attempts.attempt import Attempt, TakenSteps
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.rpc.agents.commands import welcome_messages
from dlq_master.rpc.agents.sessions import Line
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.reports.agent_intake import (
    agent_of,
    disk_of,
    facts_of,
    health_of,
    look_of,
    progresses_of,
    promotable,
    rented_as,
    report_of,
    reports_of,
    unexplained_of,
    uses_of,
)
from dlq_master.rpc.reports.profile_intake import evidence_of
from dlq_master.rpc.reports.steps_intake import is_known, steps_key, steps_of
from dlq_master.rpc.specs.intake import job_id_of, words_of
from dlq_master.rpc.specs.spec import check_span

_log = get_logger("master.agents")
HELLO_TIMEOUT_S = 10.0
LONGEST_ABSENCE_S = 30.0 * DAY  # whatever the configuration allows
MOST_REPORTS_AT_ONCE = 256
MOST_EVIDENCE_AT_ONCE = 16
MOST_STEP_LISTS_AT_ONCE = 64


async def session(
    call: Call, requests: AsyncIterator[wire.SessionRequest]
) -> AsyncIterator[wire.SessionResponse]:
    """The conversation with one agent, until either side ends it."""
    node_id, sessions = NodeId(call.caller.name), call.parts.sessions
    hello = await _first(requests)
    opening = _opening(call, node_id, hello)
    line = sessions.expect(node_id)
    tasks: list[asyncio.Task[None]] = []
    try:
        opened = await call.ask(opening)
        welcome = welcome_messages(opened, sessions.places, sessions.database)
        sessions.bind(line, opened.session_id, opened.epoch, welcome)
        conversation = _Conversation(call, line)
        tasks = [
            asyncio.create_task(conversation.listen(requests)),
            asyncio.create_task(conversation.report()),
            asyncio.create_task(conversation.tell_evidence()),
            asyncio.create_task(conversation.keep_steps()),
        ]
        async for message in line.messages():
            yield message
        conversation.raise_failure()
        raise Unavailable(line.closed_because)
    finally:
        sessions.drop(line)
        if line.session_id is not None:
            call.parts.control.tell(CloseSession(node_id=node_id, session_id=line.session_id))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def push_log(
    call: Call, requests: AsyncIterator[wire.PushLogRequest]
) -> wire.PushLogResponse:
    await call.parts.logs.push(NodeId(call.caller.name), requests)
    return wire.PushLogResponse()


async def serve_exec(
    call: Call, requests: AsyncIterator[wire.ServeExecRequest]
) -> AsyncIterator[wire.ServeExecResponse]:
    async for message in call.parts.execs.serve(NodeId(call.caller.name), requests):
        yield message


async def announce_maintenance(
    call: Call, request: wire.AnnounceMaintenanceRequest
) -> wire.AnnounceMaintenanceResponse:
    asked = request.maintenance_duration
    said = await call.ask(
        AnnounceMaintenance(
            **call.signed(request),
            node_id=NodeId(call.caller.name),
            maintenance_s=check_span("maintenance_duration", asked, 0.0, LONGEST_ABSENCE_S),
        )
    )
    return wire.AnnounceMaintenanceResponse(
        left_duration=to_duration(said.left_s),
        in_force=said.in_force,
        rank_count=said.rank_count,
        hold_duration=to_duration(said.hold_s),
    )


async def announce_leave(
    call: Call, request: wire.AnnounceLeaveRequest
) -> wire.AnnounceLeaveResponse:
    ranks = await call.ask(
        AnnounceLeave(
            **call.signed(request),
            node_id=NodeId(call.caller.name),
            leave_s=check_span("leave_duration", request.leave_duration, 0.0, DAY),
        )
    )
    return wire.AnnounceLeaveResponse(rank_count=ranks)


def _opening(call: Call, node_id: NodeId, hello: wire.Hello) -> OpenSession:
    places = call.parts.sessions.places
    reports = tuple(promotable(report, places) for report in reports_of(hello.ranks))
    for report in reports:
        check_placed(call.read, node_id, report.key, report.node_rank)
    pool_name, instance_id = rented_as(hello.facts)
    return OpenSession(
        node_id=node_id,
        pool_name=pool_name,
        instance_id=instance_id,
        facts=facts_of(hello.facts),
        highest_epoch=hello.highest_epoch,
        reports=reports,
        agent=agent_of(hello),
        unexplained=unexplained_of(hello.unexplained),
    )


class _Conversation:
    """The messages of one agent on one line: read in order, with reports sent to the loop in
    batches.

    While the master is busy, messages are still read, and the line keeps answers back.
    """

    def __init__(self, call: Call, line: Line) -> None:
        assert line.session_id is not None
        self._call = call
        self._control = call.parts.control
        self._line = line
        self._places = call.parts.sessions.places
        self._session_id = line.session_id
        self._reports: asyncio.Queue[ReportedRank] = asyncio.Queue(MOST_REPORTS_AT_ONCE)
        self._evidence: asyncio.Queue[ProfileEvidence] = asyncio.Queue(MOST_EVIDENCE_AT_ONCE)
        self._steps: dict[AttemptKey, wire.StepsReport] = {}
        self._steps_came = asyncio.Event()
        self._failure: Exception | None = None
        self._on_disk = 0  # the last report that is
        self._ack_due = False

    async def listen(self, requests: AsyncIterator[wire.SessionRequest]) -> None:
        """Read every message until the agent goes, or reports something forbidden."""
        with self._ending("the agent has hung up"):
            async for request in requests:
                await self._hear(request)

    async def report(self) -> None:
        """Send all reports since the last commit to the loop at once, then acknowledge them."""
        with self._ending("reports cannot be taken"):
            while True:
                reports = [await self._reports.get()]
                while not self._reports.empty() and len(reports) < MOST_REPORTS_AT_ONCE:
                    reports.append(self._reports.get_nowait())
                sequence = await self._control.ask(
                    RankReports(
                        node_id=self._line.node_id,
                        session_id=self._session_id,
                        reports=tuple(reports),
                    )
                )
                self._on_disk = max(self._on_disk, sequence)
                if not self._ack_due:
                    self._ack_due = True
                    pause_s = self._call.parts.sessions.ack_pause_s
                    asyncio.get_running_loop().call_later(pause_s, self._acknowledge)

    def _acknowledge(self) -> None:
        """One message for all reports of a moment. Nobody waits for it: an agent that starts anew,
        or has a new line, tells the others again.
        """
        self._ack_due = False
        ack = wire.ReportAck(sequence=self._on_disk)
        self._line.say(wire.SessionResponse(report_ack=ack))

    async def tell_evidence(self) -> None:
        """Send evidence about traffic to the loop, one after another, then acknowledge it."""
        with self._ending("evidence cannot be taken"):
            while True:
                told = await self._evidence.get()
                # An unreadable report would come again for ever. It is dropped, and the node works
                # on.
                try:
                    await self._control.ask(evidence_of(told, self._line.node_id))
                except InvalidRequest as error:
                    _log.warning(
                        "evidence_unreadable", node_id=self._line.node_id, error=error.what
                    )
                ack = wire.ProfileAck(
                    job_id=told.job_id, fence=told.fence, node_rank=told.node_rank
                )
                self._line.say(wire.SessionResponse(profile_ack=ack))

    async def keep_steps(self) -> None:
        """Have all received lists of steps written, then acknowledge them.

        Without room on the disk they are not acknowledged, and the agent sends them again.
        """
        with self._ending("steps cannot be taken"):
            while True:
                await self._steps_came.wait()
                self._steps_came.clear()
                told, self._steps = list(self._steps.values()), {}
                if not await self._call.parts.steps.keep(self._sound(told)):
                    _log.warning("steps_not_kept", node_id=self._line.node_id)
                    continue
                for each in told:
                    ack = wire.StepsAck(
                        job_id=each.job_id,
                        fence=each.fence,
                        node_rank=each.node_rank,
                        number=each.number,
                    )
                    self._line.say(wire.SessionResponse(steps_ack=ack))

    def _sound(self, told: list[wire.StepsReport]) -> Iterator[TakenSteps]:
        """The valid lists. An invalid one would be sent again for ever, so it is dropped."""
        for each in told:
            try:
                taken = steps_of(each, self._call.now_s)
            except InvalidRequest as error:
                _log.warning("steps_unreadable", node_id=self._line.node_id, error=error.what)
                continue
            if is_known(self._control.published, taken.key, each.fence.epoch):
                yield taken

    def _hear_steps(self, told: wire.StepsReport) -> None:
        key = steps_key(told)
        check_placed(self._control.published, self._line.node_id, key, told.node_rank)
        # A list beyond the most is told again later.
        if key in self._steps or len(self._steps) < MOST_STEP_LISTS_AT_ONCE:
            self._steps[key] = told
            self._steps_came.set()

    def raise_failure(self) -> None:
        """Raise what ended the conversation, unless the agent left."""
        if self._failure is not None:
            raise self._failure

    async def _hear(self, request: wire.SessionRequest) -> None:
        match request.WhichOneof("body"):
            case "heartbeat":
                self._beat(request.heartbeat)
            case "report":
                report = promotable(report_of(request.report), self._places)
                check_placed(
                    self._control.published, self._line.node_id, report.key, report.node_rank
                )
                await self._reports.put(report)
            case "profile_evidence":
                told = request.profile_evidence
                if told.node_rank < 0:
                    raise InvalidRequest(
                        "ranks are counted from 0", field="profile_evidence.node_rank"
                    )
                key = AttemptKey(job_id_of(told.job_id, "job_id"), told.fence.attempt)
                check_placed(self._control.published, self._line.node_id, key, told.node_rank)
                await self._evidence.put(told)
            case "steps_report":
                self._hear_steps(request.steps_report)
            case "gpu_look":
                self._control.tell(look_of(request.gpu_look, self._line.node_id, self._session_id))
            case "command_result":
                self._command_done(request.command_result)
            case "hello":
                raise InvalidRequest("a second hello on one session", field="hello")
            case _:
                raise InvalidRequest("an empty message, or one newer than this master")

    def _beat(self, heartbeat: wire.Heartbeat) -> None:
        self._call.check_member()
        progress = progresses_of(heartbeat.progress)
        for each in progress:
            attempt = self._control.published.attempt(each.key)
            if attempt is not None:
                _must_be_placed(self._line.node_id, each.key, each.node_rank, _nodes_of(attempt))
        self._control.tell(
            Heartbeat(
                node_id=self._line.node_id,
                session_id=self._session_id,
                progress=progress,
                hold_revision=heartbeat.hold_revision,
                health=health_of(heartbeat),
                disk=disk_of(heartbeat),
                rank_uses=uses_of(heartbeat.rank_uses) if heartbeat.rank_uses else (),
            )
        )
        self._line.say(wire.SessionResponse(heartbeat_reply=self._reply(heartbeat.sequence)))

    def _reply(self, sequence: int) -> wire.HeartbeatReply:
        """The answer to a heartbeat, with the holds of the node's ranks by the last commit."""
        node = self._control.published.node(self._line.node_id)
        reply = wire.HeartbeatReply(sequence=sequence)
        signs = self._call.parts.authority
        if (trust_digest := signs.trust_digest()) and self._call.identity is not None:
            reply.trust_digest = trust_digest
            reply.renewal_wanted = signs.is_former(self._call.identity)
        if node is not None and node.hold_revision:
            reply.hold_revision = node.hold_revision
            reply.hold_extension_duration.CopyFrom(to_duration(node.maintenance_s))
        return reply

    def _command_done(self, result: wire.CommandResult) -> None:
        # 0 is no command of the loop's: OpenLog is answered by PushLog.
        if result.sequence:
            self._control.tell(
                CommandDone(
                    node_id=self._line.node_id,
                    session_id=self._session_id,
                    sequence=result.sequence,
                    refusal=words_of(result.refusal, "refusal"),
                )
            )

    @contextmanager
    def _ending(self, because: str) -> Iterator[None]:
        """End the line with the first task that ends, and keep its failure for the stream."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised again by the stream, see raise_failure
            self._failure = self._failure or error
        finally:
            self._line.close(because)


def check_placed(read: Published, node_id: NodeId, key: AttemptKey, node_rank: int) -> None:
    """PermissionDenied: the attempt's rank was placed elsewhere.

    A forgotten attempt passes: the loop tells the agent to forget it.
    """
    attempt = read.attempt(key)
    if attempt is None:
        attempt = next((each for each in read.attempts(key.job_id) if each.key == key), None)
    if attempt is not None:
        _must_be_placed(node_id, key, node_rank, _nodes_of(attempt))


def _nodes_of(attempt: Attempt) -> tuple[NodeId, ...]:
    return tuple([status.node_id for status in attempt.ranks])


def _must_be_placed(
    node_id: NodeId, key: AttemptKey, node_rank: int, placed: tuple[NodeId, ...]
) -> None:
    if not 0 <= node_rank < len(placed) or placed[node_rank] != node_id:
        raise PermissionDenied(
            f"rank {node_rank} of attempt {key} is not placed on node {node_id}", user=node_id
        )


async def _first(requests: AsyncIterator[wire.SessionRequest]) -> wire.Hello:
    """The hello that opens a session."""
    try:
        first = await asyncio.wait_for(anext(requests), HELLO_TIMEOUT_S)
    except (StopAsyncIteration, TimeoutError):
        raise InvalidRequest("a session opens with a hello", field="hello") from None
    if first.WhichOneof("body") != "hello":
        raise InvalidRequest("a session opens with a hello", field="hello")
    return first.hello
