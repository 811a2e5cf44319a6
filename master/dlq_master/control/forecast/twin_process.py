"""The twin as a process of ours: started when it is asked, watched, and started again when it is
gone.

Nothing hangs on it. It may be killed, hang or send nonsense. The open question then fails with
`TwinGone`, and the next one starts another process, at most every `LONGEST_REST_S` if that goes on.
One that is of another version of the package than the master (`planner.code`) is asked nothing.
"""

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_master.planner import code
from dlq_master.planner.answers import read_answer
from dlq_master.planner.frames import framed, greeted, message

_log = get_logger("master.twin")
FIRST_REST_S, LONGEST_REST_S = 1.0, 300.0
# Users read these sentences; operators find the rest in the log.
CRASHED = "the forecasting process crashed (master log: twin_ended)"


class TwinGone(Exception):
    """There is no answer, and why."""


class TwinHangs(TwinGone):
    """It is there and does not answer."""


class TwinRests(TwinGone):
    """It has failed before, and is not started again yet: no failure of its own."""


class Twin(Protocol):
    """Whom the master asks; `number` tells questions apart."""

    async def ask(self, number: int, question: bytes, patience_s: float) -> Mapping[str, Any]:
        """The answer; TwinGone when there is none in `patience_s`."""

    async def restart(self, why: str) -> None:
        """It is believed no more: end it. The next question finds another one."""

    async def leave(self) -> None:
        """Nobody needs it for now: end it. The next question finds another one, at once."""


class TwinProcess:
    """One child process at a time, and the questions that wait for its answers."""

    def __init__(self, command: Sequence[str], clock: Clock) -> None:
        self._command = tuple(command)
        self._clock = clock
        self._code = code.digest()
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[int] | None = None  # a killed process, until it is gone
        self._waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._starting = asyncio.Lock()
        self._greeted = asyncio.Event()  # it is of our version; or has ended
        self._rest_s = FIRST_REST_S
        self._not_before_s = 0.0
        self._ended = "the forecasting process was stopped"  # why the last one did

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
            raise TwinHangs(
                f"the forecasting process has not answered for {patience_s:g} s"
            ) from None
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
            raise TwinGone(f"{CRASHED}; retrying") from error
        content = await answer
        self._rest_s = FIRST_REST_S
        return content

    async def restart(self, why: str) -> None:
        """As `Twin.restart`."""
        _log.warning("twin_ended", why=why, pid=self.pid)
        self._ended = why
        await self.stop()
        self._rest(why, self._rest_s)
        self._rest_s = min(LONGEST_REST_S, 2.0 * self._rest_s)

    async def leave(self) -> None:
        """As `Twin.leave`."""
        if self._process is not None:
            _log.info("twin_left", pid=self.pid)
            await self.stop()

    async def stop(self) -> None:
        """End it, and wait until it is gone, also where somebody else is ending it. The open
        question gets no answer.
        """
        process, reading = self._process, self._reading
        self._process = self._reading = None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            self._ending = asyncio.create_task(process.wait())
        if self._ending is not None:
            await asyncio.shield(self._ending)
        if reading is not None and reading is not asyncio.current_task():
            reading.cancel()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(TwinGone(f"{self._ended}; retrying"))
        self._waiting.clear()
        self._greeted.set()

    async def _running(self) -> Process:
        """It, once it is certain that it understands. A caller that waits no longer leaves the
        process to the next question.
        """
        async with self._starting:
            process = self._process or await self._start()
            said = self._greeted
        await said.wait()
        if process is not self._process:
            raise TwinGone(self._ended)
        return process

    async def _start(self) -> Process:
        left_s = self._not_before_s - self._clock.boottime_s()
        if left_s > 0.0:
            raise TwinRests(f"{self._ended}; it is started again in {left_s:.0f} s")
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, env=_environment()
            )
        except OSError as error:
            self._rest(f"the forecasting process cannot be started: {error}", LONGEST_REST_S)
            raise TwinGone(self._ended) from None
        self._process, self._greeted = process, asyncio.Event()
        self._reading = asyncio.create_task(self._read(process))
        return process

    async def _read(self, process: Process) -> None:
        """Hand answers to those who wait for them, until the process ends or says what it should
        not.
        """
        assert process.stdout is not None
        why = CRASHED
        try:
            await greeted(process.stdout, self._code)
            _log.info("twin_started", pid=process.pid)
            self._greeted.set()
            while True:
                number, content = read_answer(await message(process.stdout))
                waiting = self._waiting.pop(number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(content)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except code.OtherCode as error:
            why = str(error)
            self._rest_s = LONGEST_REST_S  # another start would find the same
        except ValueError as error:
            why = f"the forecasting process said nonsense (master log: twin_ended): {error}"
        if process is self._process:
            await self.restart(why)

    def _rest(self, why: str, rest_s: float) -> None:
        self._ended = why
        self._not_before_s = self._clock.boottime_s() + rest_s


def _environment() -> dict[str, str]:
    """One thread: it is to be small, not fast."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
