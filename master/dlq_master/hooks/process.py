"""The process of hooks (`dlq_hooks.program`) as the master sees it: one line, one call at a time.

It is started by the first call. A call that takes too long, ends the process or gets an answer that
makes no sense ends it; the next call finds another one. After failures in a row of a hook its next
start waits, ever longer up to LONGEST_REST_S; other hooks do not wait for it. Between two calls a
process that has grown, or has ended, is replaced, and no call fails by it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_master.planner.frames import HEAD, BadFrame, framed, length_of

_log = get_logger("master.hooks")
LOAD_S: Final = 10.0  # for a start and for the file itself
FIRST_REST_S, LONGEST_REST_S = 0.5, 60.0
LONGEST_ANSWER: Final = 1 << 20  # the loop of the master reads it
GROWN: Final = 0.5  # of the limit of memory: a process above that is replaced
PROGRAM: Final = (sys.executable, "-I", "-m", "dlq_hooks.program")


class HookFailed(Exception):
    """There is no answer; `words` say why. `again_s`: another try may help, after so long. `said`:
    the prints of the hook.
    """

    def __init__(self, words: str, again_s: float | None = None, said: str = "") -> None:
        super().__init__(words)
        self.said = said
        self.words = words
        self.again_s = again_s


class HookBusy(HookFailed):
    """The hook was not called: there is no room for another call that waits."""


class HookFile(NamedTuple):
    """The operator's file as it was read."""

    name: str
    source: str


class HookLimits(NamedTuple):
    """Of one call, and of the process."""

    call_s: float
    memory_bytes: int


class HookLine(NamedTuple):
    """The line to a process that has just started; `child` where the master started it itself."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    child: asyncio.subprocess.Process | None


class FailuresInARow(NamedTuple):
    """Those of one hook: it starts no process until `rest_until_s`."""

    in_a_row: int
    rest_until_s: float
    words: str


class HookStarter(Protocol):
    """Starts a process of hooks. Raises OSError."""

    async def __call__(self) -> HookLine: ...


class HookProcess:
    """At most one process, for one file. Calls come one after the other: the caller sees to it."""

    def __init__(
        self, file: HookFile, limits: HookLimits, start: HookStarter, clock: Clock
    ) -> None:
        self.file = file
        self.facts: Mapping[str, Any] = {}  # what the process said of itself at its start
        self.starts = 0
        self.last_failure = ""
        self._limits, self._start, self._clock = limits, start, clock
        self._line: HookLine | None = None
        self._number = 0
        self._failures: dict[str, FailuresInARow] = {}  # by hook

    @property
    def running(self) -> bool:
        """Whether there is a process now."""
        return self._line is not None and not self._line.reader.at_eof()

    @property
    def rest_s(self) -> float:
        """So long some hook starts no process."""
        return max(map(self._rest_of_s, self._failures), default=0.0)

    async def call(self, hook: str, told: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer of the hook. Raises HookFailed when there is none."""
        line = await self._running(hook)
        if hook not in self.facts.get("hooks", ()):
            raise HookFailed(f"{self.file.name} has no function {hook}")
        self._number += 1
        limit_s = self._limits.call_s
        asked = {"number": self._number, "hook": hook, "told": told}
        asked |= {"limit_s": limit_s, "file": self.file.name}
        answer = await self._exchange(line, asked, limit_s, hook)
        if answer.get("number") != self._number:
            raise await self._fail(hook, "it answered what makes no sense")
        self._failures.pop(hook, None)
        if int(answer.get("memory_bytes", 0)) > GROWN * self._limits.memory_bytes:
            _log.warning("hooks_grown", memory_bytes=answer["memory_bytes"])
            await self.stop()
        if answer.get("fault"):
            raise HookFailed(str(answer["fault"]), said=str(answer.get("said", "")))
        return answer

    async def load(self) -> None:
        """Start the process, so that the file is read. Raises HookFailed when it cannot be."""
        await self._running("")

    async def stop(self) -> None:
        """End the process, and wait until it is gone."""
        line, self._line = self._line, None
        if line is None:
            return
        line.writer.close()
        if line.child is not None:
            with suppress(ProcessLookupError):
                os.killpg(line.child.pid, signal.SIGKILL)
            await asyncio.shield(asyncio.ensure_future(line.child.wait()))

    # --- helpers, in order of use -----------------------------------------------------------------

    def _rest_of_s(self, hook: str) -> float:
        return max(0.0, self._failures[hook].rest_until_s - self._clock.boottime_s())

    async def _running(self, hook: str) -> HookLine:
        if self._line is not None:
            if not self._line.reader.at_eof():
                return self._line
            _log.warning("hooks_ended")  # killed from outside, or its unit was stopped
            await self.stop()
        if hook in self._failures and (rest_s := self._rest_of_s(hook)) > 0.0:
            words = f"{self._failures[hook].words}; it is started again in {rest_s:.1f} s"
            raise HookFailed(words, rest_s)
        self.starts += 1
        try:
            self._line = line = await self._start()
        except OSError as error:
            words = f"it cannot be started: {error.strerror or error}"
            raise await self._fail(hook, words) from None
        hello = {"source": self.file.source, "file": self.file.name, "load_s": LOAD_S}
        hello["memory_bytes"] = self._limits.memory_bytes
        facts = await self._exchange(line, hello, LOAD_S, hook)
        if facts.get("fault"):
            raise await self._fail(hook, f"{self.file.name} cannot be loaded: {facts['fault']}")
        self.facts = facts
        _log.info("hooks_started", file=self.file.name, walls=facts.get("walls"))
        return line

    async def _exchange(
        self, line: HookLine, asked: Mapping[str, Any], limit_s: float, hook: str
    ) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(limit_s):
                line.writer.write(framed(json.dumps(asked).encode()))
                await line.writer.drain()
                answer = json.loads(await _message(line.reader))
        except TimeoutError:
            raise await self._fail(hook, f"it took longer than {limit_s:g} s") from None
        except (asyncio.IncompleteReadError, OSError):
            raise await self._fail(hook, "its process ended") from None
        except (BadFrame, ValueError, RecursionError):
            raise await self._fail(hook, "it answered what makes no sense") from None
        except BaseException:  # the caller has left: nobody would read the answer
            await self.stop()
            raise
        if not isinstance(answer, dict):
            raise await self._fail(hook, "it answered what makes no sense")
        return answer

    async def _fail(self, hook: str, words: str) -> HookFailed:
        """End the process. The first failure in a row lets the next call start another at once."""
        before = self._failures.get(hook)
        count, rest_s = 1 if before is None else before.in_a_row + 1, 0.0
        if count > 1:
            rest_s = min(FIRST_REST_S * 2.0 ** (count - 2), LONGEST_REST_S)
        rest_until_s = self._clock.boottime_s() + rest_s
        self._failures[hook] = FailuresInARow(count, rest_until_s, words)
        self.last_failure = words
        _log.error("hooks_failed", hook=hook, cause=words, in_a_row=count, rest_s=rest_s)
        await self.stop()
        return HookFailed(words, rest_s)


async def _message(reader: asyncio.StreamReader) -> bytes:
    length = length_of(await reader.readexactly(HEAD))
    if length > LONGEST_ANSWER:
        raise BadFrame(f"an answer of {length} bytes")
    return await reader.readexactly(length)


def spawning(account: str) -> HookStarter:
    """Start it as a child, in this account (`UID:GID`; "": the master's own)."""

    async def start() -> HookLine:
        ours, theirs = socket.socketpair()
        try:
            child = await asyncio.create_subprocess_exec(
                *PROGRAM,
                *([account] if account else []),
                stdin=theirs.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"},
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        return HookLine(reader, writer, child)

    return start


def dialling(path: str) -> HookStarter:
    """Have systemd start it in its own account: `dlq-hooks.socket`."""

    async def start() -> HookLine:
        return HookLine(*await asyncio.open_unix_connection(path), None)

    return start
