"""A master's two ports with nothing behind them: a test says what it commands and reads what it
hears.

Real TLS, real certificates, real gRPC; it runs on a thread of its own, so that tests are plain
functions and agents are real processes.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

import grpc

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import identity_service_pb2 as identity
from dlq.v1 import job_pb2, lease_pb2, profile_pb2
from dlq.v1.agent_service_pb2_grpc import (
    AgentServiceServicer,
    add_AgentServiceServicer_to_server,
)
from dlq.v1.identity_service_pb2_grpc import (
    IdentityServiceServicer,
    JoinServiceServicer,
    add_IdentityServiceServicer_to_server,
    add_JoinServiceServicer_to_server,
)
from dlq_common.clock import SteadyClock
from dlq_common.identity.join_token import JoinTokenText
from dlq_common.identity.pki import Authority, fingerprint, new_key_and_csr, requested_name
from dlq_common.text.wire import to_duration

T = TypeVar("T")
PATIENCE_S = 60.0


class StubMaster:
    """Start it with `with`. All methods may be called from the test's thread."""

    def __init__(self, *, epoch: int = 1) -> None:
        self.clock = SteadyClock()
        self.authority = Authority.create("bench", self.clock.now_s())
        self.epoch = epoch
        self.wanted: list[wire.LaunchCommand] = []
        self.stops: list[wire.StopCommand] = []
        self.answers_heartbeats = True
        self.acks = True
        self.acks_profiles = True
        self.hellos: list[wire.Hello] = []
        self.heartbeats: list[wire.Heartbeat] = []
        self.reports: list[wire.RankReport] = []
        self.results: list[wire.CommandResult] = []
        self.evidence: list[profile_pb2.ProfileEvidence] = []
        self.steps: list[wire.StepsReport] = []
        self.logs: dict[str, list[wire.PushLogRequest]] = {}
        self.renewals = 0
        self.changed = threading.Condition()
        self._sequence = 0
        self._calls: dict[int, asyncio.Queue[wire.SessionResponse]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.api_port = self.join_port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, *exc: object) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    # ---- what a test says

    def token(self) -> str:
        """A token that the join port accepts."""
        ca = fingerprint(self.authority.certificate_pem())
        return JoinTokenText("t1", "s" * 43, ca).text()

    def command(self, order: wire.LaunchCommand | wire.StopCommand | wire.OpenLogCommand) -> int:
        """Send a command on the open session; its sequence."""
        self._sequence += 1
        command = wire.Command(sequence=self._sequence, epoch=self.epoch)
        if isinstance(order, wire.LaunchCommand):
            command.launch.CopyFrom(order)
        elif isinstance(order, wire.StopCommand):
            command.stop.CopyFrom(order)
        else:
            command.open_log.CopyFrom(order)
        self._loop.call_soon_threadsafe(self._say, wire.SessionResponse(command=command))
        return self._sequence

    def hang_up(self) -> None:
        """End every open session, as a master that stops does."""
        self._run(self._hang_up())

    def wait_for(self, found: Callable[[], T | None], what: str) -> T:
        """What `found` returns, as soon as it is not None."""
        with self.changed:
            until_s = self.clock.boottime_s() + PATIENCE_S
            while (answer := found()) is None:
                left_s = until_s - self.clock.boottime_s()
                if left_s <= 0:
                    raise AssertionError(f"never came: {what}; reports: {self.reports}")
                self.changed.wait(left_s)
            return answer

    def report(self, job_id: str, phase: int, *, after: int = 0) -> wire.RankReport:
        """The first report of that phase about a job, among those with a higher sequence."""
        return self.wait_for(
            lambda: next(
                (
                    report
                    for report in self.reports
                    if (report.job_id, report.phase) == (job_id, phase) and report.sequence > after
                ),
                None,
            ),
            f"job {job_id} in {wire.RankPhase.Name(phase)}",  # type: ignore[arg-type]
        )

    # ---- the doors

    def serve_agents(self, server: grpc.aio.Server) -> None:
        """Answer the calls of agents."""
        add_AgentServiceServicer_to_server(_Agents(self), server)

    async def _start(self) -> None:
        key = new_key_and_csr("master")
        certificate = self.authority.sign_master(key.request, self.clock.now_s())
        pair = [(key.key, certificate + self.authority.certificate_pem())]
        ca = self.authority.certificate_pem()
        self._api = grpc.aio.server()
        self.serve_agents(self._api)
        add_IdentityServiceServicer_to_server(_Identities(self), self._api)
        mutual = grpc.ssl_server_credentials(pair, ca, require_client_auth=True)
        self.api_port = self._api.add_secure_port("127.0.0.1:0", mutual)
        self._join = grpc.aio.server()
        add_JoinServiceServicer_to_server(_Joins(self), self._join)
        one_way = grpc.ssl_server_credentials(pair)
        self.join_port = self._join.add_secure_port("127.0.0.1:0", one_way)
        await self._api.start()
        await self._join.start()

    async def _stop(self) -> None:
        await self._hang_up()
        await self._api.stop(0)
        await self._join.stop(0)

    async def _hang_up(self) -> None:
        for queue in self._calls.values():
            queue.put_nowait(wire.SessionResponse())

    def _say(self, message: wire.SessionResponse) -> None:
        for queue in self._calls.values():
            queue.put_nowait(message)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(PATIENCE_S)

    # ---- one session

    async def converse(
        self, requests: AsyncIterator[wire.SessionRequest], number: int
    ) -> AsyncIterator[wire.SessionResponse]:
        """Answer one session until it is hung up."""
        queue: asyncio.Queue[wire.SessionResponse] = asyncio.Queue()
        self._calls = {number: queue}
        listener = asyncio.create_task(self._listen(requests, queue))
        try:
            while (message := await queue.get()).WhichOneof("body") is not None:
                yield message
        finally:
            listener.cancel()
            self._calls.pop(number, None)

    async def _listen(
        self,
        requests: AsyncIterator[wire.SessionRequest],
        queue: asyncio.Queue[wire.SessionResponse],
    ) -> None:
        async for request in requests:
            with self.changed:
                self._hear(request, queue)
                self.changed.notify_all()

    def _hear(
        self, request: wire.SessionRequest, queue: asyncio.Queue[wire.SessionResponse]
    ) -> None:
        match request.WhichOneof("body"):
            case "hello":
                self.hellos.append(request.hello)
                self.reports += request.hello.ranks
                queue.put_nowait(wire.SessionResponse(welcome=self._welcome()))
                self._ack(request.hello.ranks, queue)
            case "heartbeat":
                self.heartbeats.append(request.heartbeat)
                if self.answers_heartbeats:
                    reply = wire.HeartbeatReply(sequence=request.heartbeat.sequence)
                    queue.put_nowait(wire.SessionResponse(heartbeat_reply=reply))
            case "report":
                self.reports.append(request.report)
                self._ack([request.report], queue)
            case "profile_evidence":
                told = request.profile_evidence
                self.evidence.append(told)
                if self.acks_profiles:
                    ack = wire.ProfileAck(
                        job_id=told.job_id, fence=told.fence, node_rank=told.node_rank
                    )
                    queue.put_nowait(wire.SessionResponse(profile_ack=ack))
            case "steps_report":
                told_steps = request.steps_report
                self.steps.append(told_steps)
                known = wire.StepsAck(
                    job_id=told_steps.job_id,
                    fence=told_steps.fence,
                    node_rank=told_steps.node_rank,
                    number=told_steps.number,
                )
                queue.put_nowait(wire.SessionResponse(steps_ack=known))
            case _:
                self.results.append(request.command_result)

    def _ack(self, reports: Any, queue: asyncio.Queue[wire.SessionResponse]) -> None:
        if self.acks and len(reports):
            ack = wire.ReportAck(sequence=max(report.sequence for report in reports))
            queue.put_nowait(wire.SessionResponse(report_ack=ack))

    def _welcome(self) -> wire.Welcome:
        return wire.Welcome(
            epoch=self.epoch,
            heartbeat_duration=to_duration(0.5),
            ttl_duration=to_duration(4.0),
            reconnect_jitter_duration=to_duration(0.2),
            wanted=self.wanted,
            stops=self.stops,
        )


class _Agents(AgentServiceServicer):
    def __init__(self, master: StubMaster) -> None:
        self._master = master
        self._count = 0

    async def Session(self, request_iterator: Any, context: Any) -> Any:
        self._count += 1
        async for message in self._master.converse(request_iterator, self._count):
            yield message

    async def ServeExec(self, request_iterator: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this master plays sessions only")
        yield

    async def AnnounceMaintenance(self, request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this master plays sessions only")

    async def AnnounceLeave(self, request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this master plays sessions only")

    async def PushLog(self, request_iterator: Any, context: Any) -> wire.PushLogResponse:
        async for request in request_iterator:
            with self._master.changed:
                self._master.logs.setdefault(request.relay_id, []).append(request)
                self._master.changed.notify_all()
        return wire.PushLogResponse()


class _Identities(IdentityServiceServicer):
    def __init__(self, master: StubMaster) -> None:
        self._master = master

    async def CreateSignInLink(
        self, request: identity.CreateSignInLinkRequest, context: Any
    ) -> identity.CreateSignInLinkResponse:
        raise NotImplementedError

    async def UseSignInLink(
        self, request: identity.UseSignInLinkRequest, context: Any
    ) -> identity.UseSignInLinkResponse:
        raise NotImplementedError

    async def CertifyUser(
        self, request: identity.CertifyUserRequest, context: Any
    ) -> identity.CertifyUserResponse:
        raise NotImplementedError

    async def Introduce(
        self, request: identity.IntroduceRequest, context: Any
    ) -> identity.IntroduceResponse:
        raise NotImplementedError

    async def CheckIdentity(
        self, request: identity.CheckIdentityRequest, context: Any
    ) -> identity.CheckIdentityResponse:
        return identity.CheckIdentityResponse()

    async def RenewCertificate(
        self, request: Any, context: Any
    ) -> identity.RenewCertificateResponse:
        self._master.renewals += 1
        authority, now_s = self._master.authority, self._master.clock.now_s()
        return identity.RenewCertificateResponse(
            certificate=authority.sign_node(request.certificate_request, "node-a", now_s),
            ca_certificates=authority.certificate_pem(),
        )


class _Joins(JoinServiceServicer):
    def __init__(self, master: StubMaster) -> None:
        self._master = master

    async def EnterAsGuest(
        self, request: identity.EnterAsGuestRequest, context: Any
    ) -> identity.EnterAsGuestResponse:
        raise NotImplementedError

    async def Join(self, request: Any, context: Any) -> identity.JoinResponse:
        if request.token != self._master.token():
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is unknown")
        node_id = requested_name(request.certificate_request)
        authority, now_s = self._master.authority, self._master.clock.now_s()
        return identity.JoinResponse(
            certificate=authority.sign_node(request.certificate_request, node_id, now_s),
            ca_certificates=authority.certificate_pem(),
            api_address=f"127.0.0.1:{self._master.api_port}",
            node_id=node_id,
        )


def launch_command(
    job_id: int, *command: str, epoch: int = 1, attempt: int = 1, **changes: Any
) -> wire.LaunchCommand:
    """Run a command as rank 0 of a job, on GPU 0."""
    environment = changes.pop("environment", {})
    directory = changes.pop("checkpoint_directory", "")
    script = changes.pop("script", "")
    message = wire.LaunchCommand(
        job_id=str(job_id),
        fence=lease_pb2.Fence(epoch=epoch, attempt=attempt),
        gpu_indexes=[0],
        node_ids=["node-a"],
        node_addresses=["127.0.0.1"],
        master_port=29555,
        spec=job_pb2.JobSpec(command=command, script=script, environment=environment),
        checkpoint_directory=directory,
        hold_duration=to_duration(changes.pop("hold_s", 3600.0)),
        grace_duration=to_duration(60.0),
    )
    for name, value in changes.items():
        setattr(message, name, value)
    return message


def stop_command(
    job_id: int, *, grace_s: float, cause: str = "preempt", epoch: int = 1, attempt: int = 1
) -> wire.StopCommand:
    """End rank 0 of a job."""
    return wire.StopCommand(
        job_id=str(job_id),
        fence=lease_pb2.Fence(epoch=epoch, attempt=attempt),
        cause=cause,
        grace_duration=to_duration(grace_s),
    )
