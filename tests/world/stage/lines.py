"""Lines between hosts: streams of agents that keep their order, and calls that may be lost.

A stream is what TCP gives: nothing is lost or doubled on it while it stands. A cut holds back what
is on its way in one direction. After the keepalive's time both ends see that the line is gone. An
old stream's words may arrive after a new one's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from world.stage.tape import Stream
from world.stage.virtual_loop import Process, VirtualLoop

DELAYS_S = (0.001, 0.001, 0.004, 0.02, 0.15, 1.2)
KEEPALIVE_S = 15.0


class Link:
    """The way between one node and one master: cut in neither, one or both directions."""

    def __init__(self, name: str, loop: VirtualLoop, draws: Stream) -> None:
        self.name = name
        self.loop = loop
        self.draws = draws
        self.slow_s = 0.0
        self.slow_down_s = 0.0  # more, from the master to the node alone
        self.heard_s = 0.0  # when the master last heard anything
        self.cut_up = False
        self.cut_down = False
        self._cuts = 0
        self.streams: list[AgentStream] = []

    @property
    def cut(self) -> bool:
        return self.cut_up or self.cut_down

    def set_cut(self, *, up: bool, down: bool) -> None:
        """What is on its way waits. Keepalive notices after its time, if it is cut still."""
        self.cut_up, self.cut_down = up, down
        self._cuts += 1
        if up or down:
            self.loop.call_later(KEEPALIVE_S, self._noticed, self._cuts)
            return
        for stream in list(self.streams):
            stream.up.flush()
            stream.down.flush()

    def mend(self) -> None:
        self.set_cut(up=False, down=False)

    def _noticed(self, number: int) -> None:
        if number == self._cuts:
            self.reset()

    def reset(self) -> None:
        """Both ends of every stream see its end now."""
        for stream in list(self.streams):
            stream.drop()


class Pipe:
    """One direction of a stream."""

    def __init__(self, link: Link, to: Process, *, up: bool) -> None:
        self._link, self._to, self._up = link, to, up
        self.take: Callable[[bytes | None], None] = lambda data: None
        self._flying: deque[bytes | None] = deque()  # each arrival is that of the first of them
        self._stalled = 0
        self._arrives_s = 0.0
        self.closed = False

    def send(self, data: bytes | None) -> None:
        """None: the sender has closed the stream."""
        link = self._link
        slow_s = link.slow_s if self._up else link.slow_s + link.slow_down_s
        at_s = link.loop.time() + link.draws.pick(DELAYS_S) + slow_s
        self._arrives_s = max(self._arrives_s, at_s)
        self._flying.append(data)
        link.loop.call_at(self._arrives_s, self._arrive, context=self._to.context)

    def flush(self) -> None:
        """The cut is over."""
        stalled, self._stalled = self._stalled, 0
        for _ in range(stalled):
            self._link.loop.call_soon(self._arrive, context=self._to.context)

    def _arrive(self) -> None:
        if self.closed:
            return
        link = self._link
        if link.cut_up if self._up else link.cut_down:
            self._stalled += 1
            return
        if self._up:
            link.heard_s = link.loop.time()
        self.take(self._flying.popleft())


class AgentStream:
    """One session's stream. The agent made it; `accept` is the master's part."""

    def __init__(self, link: Link, agent: Process, master: Process) -> None:
        self.link, self.agent, self.master = link, agent, master
        self.up = Pipe(link, master, up=True)
        self.down = Pipe(link, agent, up=False)
        link.streams.append(self)

    def drop(self) -> None:
        """It is gone, and both ends see it."""
        if self in self.link.streams:
            self.link.streams.remove(self)
            for pipe, process in ((self.up, self.master), (self.down, self.agent)):
                if not pipe.closed:
                    self.link.loop.call_soon(self._end, pipe, context=process.context)

    def _end(self, pipe: Pipe) -> None:
        if not pipe.closed:
            pipe.closed = True
            pipe.take(None)

    def ended_by_agent(self) -> None:
        """The agent hears no more of it. The master learns it when the word arrives."""
        self.down.closed = True
        self.up.send(None)

    def ended_by_master(self) -> None:
        """Likewise, the other way round."""
        self.up.closed = True
        self.down.send(None)


async def incoming(pipe: Pipe, decode: Callable[[bytes], Any]) -> AsyncIterator[Any]:
    """The messages of a pipe, until its end."""
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()
    pipe.take = queue.put_nowait
    while (data := await queue.get()) is not None:
        yield decode(data)
