"""The open sessions of agents, and the messages that wait for them.

A session is a pipe, not the truth. A command without a session, or lost with one, is sent again
after the node's next hello.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

from dlq.v1 import agent_service_pb2 as wire
from dlq_master.control.loop.ports import Leads
from dlq_master.control.stimuli import Command
from dlq_master.model.ids import NodeId
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.agents.commands import OWN_FILE, command_message

# An agent that does not read is cut off; its next hello brings everything anew.
MOST_UNREAD = 10_000
ACK_PAUSE_S = 0.1  # from a report on the disk to its acknowledgement, with all that come meanwhile


class Line:
    """The messages that wait for one session. It is closed once."""

    def __init__(self, node_id: NodeId, leads: Leads | None = None) -> None:
        self.node_id = node_id
        self._leads = leads
        self.session_id: int | None = None  # until the loop has answered the hello
        self.early: list[tuple[int, Sequence[Command]]] = []
        self._waiting: asyncio.Queue[wire.SessionResponse | None] = asyncio.Queue()
        self.closed_because = ""

    def say(self, message: wire.SessionResponse) -> None:
        """Queue a message. Closes the line if the agent does not read."""
        if self._waiting.qsize() >= MOST_UNREAD:
            self.close("the agent does not read")
        if not self.closed_because:
            self._waiting.put_nowait(message)

    def close(self, because: str) -> None:
        """Drop the waiting messages: all of them are sent again if they still count."""
        if not self.closed_because:
            self.closed_because = because
            self._waiting.put_nowait(None)

    async def messages(self) -> AsyncIterator[wire.SessionResponse]:
        """The messages in order, until the line is closed."""
        while not self.closed_because:
            message = await self._waiting.get()
            if self._leads is not None:
                await self._leads.until_it_may_speak()
            if message is not None and not self.closed_because:
                yield message


class Sessions:
    """The sessions of all nodes, and the loop's `Transport`. Used in the event loop's
    thread only.
    """

    def __init__(self, places: CheckpointPlaces, leads: Leads | None = None) -> None:
        """`leads` returns whether this master leads; if not, no message is sent."""
        self.places = places
        self.ack_pause_s = ACK_PAUSE_S
        self.database = OWN_FILE
        self._leads = leads
        self._epoch = 0
        self._open: dict[NodeId, Line] = {}
        self._opening: dict[NodeId, set[Line]] = {}

    # --- the loop's side ----------------------------------------------------------------------

    def send(self, node_id: NodeId, session_id: int, commands: Sequence[Command]) -> None:
        """Send commands to this session; without one they are dropped."""
        line = self._open.get(node_id)
        if line is not None and line.session_id == session_id:
            self._say(line, commands)
            return
        # The loop answers a hello and sends in the same turn; the answer is taken up a moment
        # later.
        for opening in self._opening.get(node_id, ()):
            opening.early.append((session_id, commands))

    def close(self, node_id: NodeId, session_id: int) -> None:
        """End this session."""
        line = self._open.get(node_id)
        if line is not None and line.session_id == session_id:
            line.close("closed by the master")

    # --- the service's side -------------------------------------------------------------------

    def expect(self, node_id: NodeId) -> Line:
        """A line whose hello is on its way to the loop."""
        line = Line(node_id, self._leads)
        self._opening.setdefault(node_id, set()).add(line)
        return line

    def bind(
        self, line: Line, session_id: int, epoch: int, welcome: Iterable[wire.SessionResponse]
    ) -> None:
        """Welcome the agent, then send the messages that have waited for that.

        An older session of the node is closed, since a node has one agent.
        """
        self._epoch = epoch
        before = self._open.get(line.node_id)
        if before is not None:
            before.close("the node has opened another session")
        self._forget_opening(line)
        line.session_id = session_id
        self._open[line.node_id] = line
        for message in welcome:
            line.say(message)
        for early_session_id, commands in line.early:
            if early_session_id == session_id:
                self._say(line, commands)
        line.early.clear()

    def drop(self, line: Line) -> None:
        """The stream of this line has ended."""
        line.close("the stream has ended")
        self._forget_opening(line)
        if self._open.get(line.node_id) is line:
            del self._open[line.node_id]

    def line(self, node_id: NodeId) -> Line | None:
        """The node's open line."""
        return self._open.get(node_id)

    @property
    def epoch(self) -> int:
        """The master's epoch, as agents are told it."""
        return self._epoch

    def close_all(self) -> None:
        """End every session, because the master stops."""
        for line in list(self._open.values()):
            line.close("the master is stopping")

    def _say(self, line: Line, commands: Sequence[Command]) -> None:
        for command in commands:
            message = command_message(command, self._epoch, self.places)
            line.say(wire.SessionResponse(command=message))

    def _forget_opening(self, line: Line) -> None:
        opening = self._opening.get(line.node_id, set())
        opening.discard(line)
        if not opening:
            self._opening.pop(line.node_id, None)
