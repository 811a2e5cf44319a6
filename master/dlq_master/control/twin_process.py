"""The twin as a process of ours: started when it is asked, watched, and started again when it is gone.

Nothing hangs on it. It may be killed, hang or say nonsense: whoever asked then gets `TwinGone`, and the
next question starts another one, not more often than every `LONGEST_REST_S` if that goes on.
"""

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from dlq_common.clock import Clock
from dlq_common.logs import get_logger
from dlq_master.planner.answers import Nonsense, read_answer
from dlq_master.planner.frames import HEAD, BadFrame, framed, length_of

_log = get_logger("master.twin")
FIRST_REST_S, LONGEST_REST_S = 1.0, 300.0


class TwinGone(Exception):
    """There is no answer, and why."""


class TwinHangs(TwinGone):
    """It is there and does not answer."""


class Twin(Protocol):
    """Whom the master asks; `number` tells questions apart."""

    async def ask(self, number: int, question: bytes, patience_s: float) -> Mapping[str, Any]:
        """The answer; TwinGone when there is none in `patience_s`."""

    async def restart(self, why: str) -> None:
        """It is believed no more: end it. The next question finds another one."""


class TwinProcess:
    """One child process at a time, and who waits for its answers."""

    def __init__(self, command: Sequence[str], clock: Clock) -> None:
        self._command = tuple(command)
        self._clock = clock
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._starting = asyncio.Lock()
        self._rest_s = FIRST_REST_S
        self._not_before_s = 0.0

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._process is None else self._process.pid

    async def ask(self, number: int, question: bytes, patience_s: float) -> Mapping[str, Any]:
        """As `Twin.ask`."""
        try:
            async with asyncio.timeout(patience_s):
                return await self._ask(number, question)
        except TimeoutError:
            raise TwinHangs(f"it has not answered for {patience_s:g} s") from None
        finally:
            self._waiting.pop(number, None)

    async def _ask(self, number: int, question: bytes) -> Mapping[str, Any]:
        process = await self._running()
        assert process.stdin is not None
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            process.stdin.write(framed(question))
            await process.stdin.drain()
        except (ConnectionError, RuntimeError) as error:
            raise TwinGone(f"it has ended: {error}") from None
        content = await answer
        self._rest_s = FIRST_REST_S
        return content

    async def restart(self, why: str) -> None:
        """As `Twin.restart`."""
        _log.warning("twin_ended", why=why, pid=self.pid)
        await self.stop()
        self._not_before_s = self._clock.boottime_s() + self._rest_s
        self._rest_s = min(LONGEST_REST_S, 2.0 * self._rest_s)

    async def stop(self) -> None:
        """End it, and wait until it is gone. Who waits for an answer gets none."""
        process, reading = self._process, self._reading
        self._process = self._reading = None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if reading is not None and reading is not asyncio.current_task():
            reading.cancel()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(TwinGone("it has ended"))
        self._waiting.clear()

    async def _running(self) -> Process:
        async with self._starting:
            if self._process is not None:
                return self._process
            left_s = self._not_before_s - self._clock.boottime_s()
            if left_s > 0.0:
                raise TwinGone(f"it has just ended, and is started again in {left_s:.0f} s")
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, stdin=PIPE, stdout=PIPE, env=_environment()
                )
            except OSError as error:
                self._not_before_s = self._clock.boottime_s() + LONGEST_REST_S
                raise TwinGone(f"it cannot be started: {error}") from None
            self._reading = asyncio.create_task(self._read(self._process))
            _log.info("twin_started", pid=self._process.pid)
            return self._process

    async def _read(self, process: Process) -> None:
        """Hand answers to those who wait for them, until the process ends or says what it should not."""
        assert process.stdout is not None
        why = ""
        try:
            while not why:
                length = length_of(await process.stdout.readexactly(HEAD))
                number, content = read_answer(await process.stdout.readexactly(length))
                waiting = self._waiting.pop(number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(content)
        except (asyncio.IncompleteReadError, ConnectionError):
            why = "it has ended by itself"
        except (BadFrame, Nonsense) as error:
            why = f"it says nonsense: {error}"
        if process is self._process:
            await self.restart(why)


def _environment() -> dict[str, str]:
    """One thread: it is to be small, not fast."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
