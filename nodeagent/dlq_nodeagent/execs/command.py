"""One command inside a rank that runs, for a caller whose streams may come and go."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc

from dlq.v1 import exec_pb2
from dlq_nodeagent.execs.guarded import Ending, Guarded
from dlq_nodeagent.execs.passing import STREAM_LOST, CallerStream, CommandInputs, KeptOutputs
from dlq_nodeagent.model.port import Handle

LAST_S = 60.0


class TakenCommand:
    """A started command, its outputs that the caller has not confirmed, and its input.

    It outlives a stream only where the caller keeps it by a resume key.
    """

    def __init__(
        self,
        handle: Handle,
        guarded: Guarded,
        *,
        kept: bool,
        piece_bytes: int,
        judged: Callable[[Ending], Awaitable[Ending]],
    ) -> None:
        """`judged`: looks at an ending once more, before it is told."""
        self.handle, self.kept = handle, kept
        self.ticket = ""
        """Of the line through the relay on which its caller was last; "": it was no such line."""
        self._guarded, self._judged = guarded, judged
        self._outputs, self._inputs = KeptOutputs(piece_bytes), CommandInputs(guarded)
        self._talk: CallerStream | None = None
        self._life = asyncio.create_task(self._live())

    @property
    def attended(self) -> bool:
        """Whether a stream of its caller is here."""
        return self._talk is not None

    async def attend(self, talk: CallerStream, spec: exec_pb2.ExecSpec) -> bool:
        """Serve one stream to its end. False: the line was lost, and the caller may come back.

        ValueError for a master that does not keep the rules.
        """
        if self._talk is not None:
            self._talk.end()
        self._talk = self._inputs.present = talk
        try:
            self._outputs.confirm(spec.output_count)
            await talk.say(exec_pb2.ExecOutput(started=self._started(spec)))
            if self.kept and spec.resumed:
                await talk.taken(0, self._inputs.done)  # the word of it may be lost with a stream
            return await self._pass(talk, spec.output_count)
        except STREAM_LOST:
            return await talk.over() is grpc.StatusCode.NOT_FOUND
        finally:
            if self._talk is talk:
                self._talk = None

    async def end(self) -> None:
        """Kill what still runs of it, and let go of everything."""
        self._life.cancel()
        await asyncio.gather(self._life, return_exceptions=True)
        self._guarded.close()
        await asyncio.shield(self._guarded.reap())

    def _started(self, spec: exec_pb2.ExecSpec) -> exec_pb2.ExecStarted:
        key = self.handle.key
        started = exec_pb2.ExecStarted(attempt=key.attempt, node_rank=key.node_rank)
        started.kept = self.kept
        started.input_count = self._inputs.come if spec.resumed else 0
        return started

    async def _pass(self, talk: CallerStream, first: int) -> bool:
        """Bytes both ways until the stream is over. True: nobody will come back for more."""
        over = asyncio.create_task(talk.over())
        hearing = asyncio.create_task(self._hear(talk))
        saying = asyncio.create_task(self._say(talk, first))
        tasks = {over, hearing, saying}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if self._talk is not talk:
                return False  # another stream has taken over, and this one was cancelled for it
            if saying.done() and not over.done():
                saying.result()  # the last word is said; the master ends the stream with it
                await asyncio.wait({over}, timeout=LAST_S)
            elif hearing.done():
                hearing.result()
            return (await over) is grpc.StatusCode.NOT_FOUND
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # An error of one would keep this frame, and with it the connection.
            tasks.clear()
            del over, hearing, saying, task

    async def _say(self, talk: CallerStream, first: int) -> None:
        """Say the outputs from this number on, up to the end."""
        number, ended = first, False
        while not ended:
            output = await self._outputs.number(number)
            await talk.say(output)
            number += 1
            ended = not isinstance(output, bytes) and output.HasField("ended")
            if not self.kept:
                self._outputs.confirm(number)

    async def _hear(self, talk: CallerStream) -> None:
        """Take the master's messages; returns at the end of the stream."""
        async for message in talk.messages:
            if self._talk is not talk:
                return  # another stream has taken over: its inputs count
            if isinstance(message, memoryview):
                self._inputs.put_stdin(message, talk)
            elif message.input.WhichOneof("body") == "output_count":
                self._outputs.confirm(message.input.output_count)
            else:
                self._inputs.put(message.input, talk)

    async def _live(self) -> None:
        """Gather what it says until it has ended; its end is the last output."""
        over, guarded = asyncio.Event(), self._guarded
        pumps = [asyncio.create_task(self._outputs.pump(guarded.stdout, over))]
        if not guarded.has_terminal:
            pumps.append(asyncio.create_task(self._outputs.pump(guarded.stderr, over, stderr=True)))
        feeding = asyncio.create_task(self._inputs.feed(counted=self.kept))
        try:
            ending = await guarded.wait()
            over.set()
            await asyncio.gather(*pumps)
            message = ended_message(await self._judged(ending))
            await self._outputs.put(exec_pb2.ExecOutput(ended=message))
        finally:
            for task in (*pumps, feeding):
                task.cancel()
            await asyncio.gather(*pumps, feeding, return_exceptions=True)


def ended_message(ending: Ending) -> exec_pb2.ExecEnded:
    """The last word about a command."""
    error = ending.error
    if ending == Ending():
        error = "its guard was killed, and the command with it"
    return exec_pb2.ExecEnded(
        exit_code=ending.exit_code,
        signal=ending.signal,
        error=error,
        rank_ended=ending.rank_ended,
    )
