"""A master that has gone mad, in front of a real agent: real TLS, and any bytes inside of it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from dlq.v1 import agent_service_pb2 as wire
from dlq_nodeagent.line.wire import BadMessage, decode
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Command, Fence, FromMaster, Launch, Welcome
from fuzz.masters_words import BrokenMaster, is_lawful
from support.stub_master import StubMaster

# Nothing of a forged launch is run but this, and no forged exec runs anything else.
HARMLESS = "/bin/true"
READS = "/bin/cat"


def raw(message: Any) -> bytes:
    """The bytes of a message, and bytes as they are."""
    data: bytes = message if isinstance(message, bytes) else message.SerializeToString()
    return data


def heard(data: bytes) -> FromMaster | None:
    """As the session of an agent hears it; DecodeError and BadMessage end that session."""
    message = wire.SessionResponse()
    message.ParseFromString(data)
    return decode(message)


class HostileMaster(StubMaster):
    """Sound until a test has it say something; its relays are never sound."""

    def __init__(self, seed: int) -> None:
        super().__init__(epoch=7)
        self.chance = random.Random(f"relays {seed}")
        self.sessions = self.said = self._welcomed = 0
        self.relays: Counter[str] = Counter()

    def serve_agents(self, server: grpc.aio.Server) -> None:
        """The same methods, which may answer with any bytes."""
        handlers: dict[str, Any] = {
            "Session": grpc.stream_stream_rpc_method_handler(
                self._session, wire.SessionRequest.FromString, raw
            ),
            "PushLog": grpc.stream_unary_rpc_method_handler(
                self._push_log, wire.PushLogRequest.FromString, raw
            ),
            "ServeExec": grpc.stream_stream_rpc_method_handler(
                self._serve_exec, wire.ServeExecRequest.FromString, raw
            ),
        }
        made = grpc.method_handlers_generic_handler("dlq.v1.AgentService", handlers)
        server.add_generic_rpc_handlers((made,))

    def say(self, words: Sequence[bytes]) -> None:
        """Say these on the open session, in order. The first word of each is a sound welcome."""

        def speak() -> None:
            if self._welcomed in self._calls:
                for word in words:
                    self._calls[self._welcomed].put_nowait(word)  # type: ignore[arg-type]

        self._loop.call_soon_threadsafe(speak)

    def forget(self) -> None:
        """Drop what was heard, so that only the agent can grow."""
        with self.changed:
            for heard_of in (self.reports, self.results, self.steps, self.evidence, self.hellos):
                del heard_of[:]
            del self.heartbeats[:-1]

    async def _session(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        self.sessions += 1
        async for message in self.converse(requests, self.sessions):
            yield message

    async def converse(
        self, requests: AsyncIterator[wire.SessionRequest], number: int
    ) -> AsyncIterator[Any]:
        """As a sound one; its words may be bytes."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self._calls = {number: queue}
        listener = asyncio.create_task(self._listen(requests, queue))
        try:
            while True:
                message = await queue.get()
                if not isinstance(message, bytes) and message.WhichOneof("body") is None:
                    return
                self.said += isinstance(message, bytes)
                if not isinstance(message, bytes) and message.HasField("welcome"):
                    self._welcomed = number
                yield message
        finally:
            listener.cancel()
            self._calls.pop(number, None)

    async def _push_log(self, requests: Any, context: Any) -> Any:
        """Takes output for a while, and then answers anything, or nothing."""
        self.relays["logs"] += 1
        for _ in range(self.chance.choice((0, 1, 3))):
            await anext(aiter(requests), None)
        match self.chance.choice(("answer", "noise", "refuse", "silence")):
            case "answer":
                return wire.PushLogResponse()
            case "noise":
                return self.chance.randbytes(40)
            case "refuse":
                await context.abort(self.chance.choice([*grpc.StatusCode][1:]), "\x00no")
        await asyncio.sleep(0.5)
        return b"\xff"

    async def _serve_exec(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        """A command, and inputs that break every rule."""
        self.relays["execs"] += 1
        chance, key = self.chance, self.chance.choice(("", "k" * 20, "other" * 5))
        reading = asyncio.create_task(_read_all(requests))
        try:
            yield self._spec(key)
            for _ in range(chance.choice((0, 1, 5, 40))):
                yield self._input()
            await asyncio.sleep(chance.choice((0.0, 0.05)))
            if chance.random() < 0.5:
                await context.abort(chance.choice([*grpc.StatusCode][1:]), "gone")
        finally:
            reading.cancel()

    def _spec(self, key: str) -> Any:
        chance = self.chance
        if chance.random() < 0.1:
            return chance.randbytes(chance.choice((0, 3, 50)))
        spec = wire.ServeExecResponse()
        spec.spec.command.append(chance.choice((HARMLESS, READS, "", "no\x00such", "x" * 5_000)))
        spec.spec.terminal = chance.random() < 0.5
        spec.spec.terminal_type = chance.choice(("", "xterm", "../../x", "\u202e"))
        spec.spec.resume_key, spec.spec.resumed = key, chance.random() < 0.5
        spec.spec.output_count = chance.choice((0, 0, 1, 2**64 - 1))
        if chance.random() < 0.5:
            spec.spec.terminal_size.column_count = chance.choice((-1, 0, 80, 2**31 - 1))
        return spec

    def _input(self) -> Any:
        chance = self.chance
        said = wire.ServeExecResponse()
        match chance.randrange(7):
            case 0:
                said.input.stdin = bytes(chance.choice((0, 10, 70_000, 2_000_000)))
            case 1:
                said.input.stdin_end = True
            case 2:
                said.input.terminal_size.row_count = chance.choice((-5, 0, 70_000))
            case 3:
                said.input.signal = chance.choice(("INT", "KILL", "NONE", "", "../x"))
            case 4:
                said.input.output_count = chance.choice((0, 1, 2**63))
            case 5:
                said.spec.resumed = True
            case _:
                return chance.randbytes(30)
        return said


async def _read_all(requests: Any) -> None:
    async for _ in requests:
        pass


class Said:
    """Words for a real agent: none that a sound master might have said about these ranks."""

    def __init__(self, seed: str, ranks: dict[RankKey, Fence], *, epoch: int) -> None:
        self._master = BrokenMaster(seed, [key.job_id for key in ranks], epoch=epoch)
        self._chance = random.Random(f"choice {seed}")
        self._ranks, self._epoch = ranks, epoch
        self.counts: Counter[str] = Counter()

    def words(self, count: int) -> list[bytes]:
        """So many. Those that end the session are few, since each costs a new one."""
        found: list[bytes] = []
        while len(found) < count:
            word = self._master.word()
            kind = self._kind(word)
            if kind == "lawful" or (kind == "breaks" and self._chance.random() > 0.01):
                continue
            self.counts[kind] += 1
            found.append(word)
        return found

    def _kind(self, word: bytes) -> str:
        try:
            told = heard(word)
        except (DecodeError, BadMessage):
            return "breaks"
        if isinstance(told, Welcome):
            return "welcome"  # not the first word of a session: nothing of it is done
        if is_lawful(told, self._epoch, self._ranks):
            return "lawful"
        if isinstance(told, Command):
            return "stale launch" if isinstance(told.order, Launch) else "command"
        return "other"
