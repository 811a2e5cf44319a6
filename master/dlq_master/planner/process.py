"""Keeps a planning process: starts it when it is first needed, and does without it when it is no
good.

One question at a time. The master kills a process that dies, hangs beyond its limit or sends
anything but an answer. The question is answered with a fault. Then there is no planner for a while
(`ready`), which doubles with each failure in a row. The master plans by itself then, more plainly.
So it does while the code on disk is other than its own (`planner.code`), until it is restarted.

Without a limit the master would wait for a hung planner as long as for the hardest plan. The answer
about a deadline would wait too. So a limit follows from how long such answers took. It doubles
after each timeout, so that a plan which does take long is made in the end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from dlq_master.model.late import load_numbers
from dlq_master.planner import code
from dlq_master.planner.frames import framed, greeted, message
from dlq_master.planner.plans import Answer, read_answer
from dlq_master.planner.snapshot import Unreadable, dumps
from dlq_master.planner.told import StateTold

FACTOR = 10.0  # of the longest of the last answers
LEAST_S = 2.0
START_S = 8.0  # more, for a process that has to start and import its libraries
KEPT = 20  # answers to questions of each kind


class PlannerPatience:
    """How long an answer is waited for, in seconds; `limit_s`: never longer. `least_s`: so long at
    least.
    """

    def __init__(self, limit_s: float, least_s: float = LEAST_S) -> None:
        self._limit_s, self._least_s = limit_s, least_s
        self._took: dict[str, deque[float]] = {}
        self._doubled = 0

    def of(self, stage: str, *, starting: bool) -> float:
        """For the next question of this kind; `starting`: it is the first that the process gets."""
        expected_s = FACTOR * max(self._took.get(stage, ()), default=0.0)
        patience_s = max(self._least_s, expected_s) + (START_S if starting else 0.0)
        return float(min(self._limit_s, patience_s * 2.0**self._doubled))

    def answered(self, stage: str, took_s: float, *, starting: bool) -> None:
        """The answer came in time. The start of the process says nothing about the next one."""
        self._doubled = 0
        if not starting:
            self._took.setdefault(stage, deque(maxlen=KEPT)).append(took_s)

    def exhausted(self) -> None:
        self._doubled = min(self._doubled + 1, 10)


IDLE_S = 600.0  # one that nobody asks for so long is ended
FIRST_REST_S = 1.0
LONGEST_REST_S = 300.0
# Writes a snapshot for a process that has been told this already.
Write = Callable[[StateTold], Iterator[bytes]]
COMMAND = (sys.executable, "-m", "dlq_master.planner.worker")
# One thread each: results do not depend on the machine, and the master keeps its cores.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


WORKING = frozenset({"off", "idle", "planning"})  # a question would have an answer


class Facts(NamedTuple):
    """The state of the process so far. Seconds; `rest_s`: until there is one again."""

    state: str  # off | idle | planning | resting | outdated
    pid: int | None
    answers: int
    failures: int
    starts: int
    last_plan_s: float
    longest_plan_s: float
    last_failure: str
    rest_s: float

    @property
    def outdated(self) -> bool:
        """There is none until the master is restarted: the code on disk is other than its own."""
        return self.state == "outdated"


class PlannerProcess:
    """Used from one event loop; `told` is called with every answer, faults included."""

    def __init__(
        self,
        told: Callable[[Answer], None],
        *,
        limit_s: float,
        least_s: float = LEAST_S,
        command: Sequence[str] = COMMAND,
        failed: Callable[[str], None] = lambda _why: None,
    ) -> None:
        """`limit_s`: a question takes no longer, the start of the process included. One that should
        be answered sooner is not waited for so long, but for `least_s` (`PlannerPatience`)."""
        self._told = told
        self._patience = PlannerPatience(limit_s, least_s)
        self._command = tuple(command)
        self._failed = failed
        self._process: asyncio.subprocess.Process | None = None
        self._known = StateTold()  # to the process
        self._code = code.digest()
        self._outdated = False
        self._asking: asyncio.Task[None] | None = None
        self._leaving: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._ending: asyncio.Task[int] | None = None  # a killed process, until it is gone
        self._in_a_row = 0
        self._rest_until_s = 0.0
        self._answers = self._failures = self._starts = 0
        self._last_s = self._longest_s = 0.0
        self._last_failure = ""

    @property
    def ready(self) -> bool:
        """A question would be answered, as far as anybody can know."""
        return self._asking is None and self._rest_s() == 0.0

    def ask(self, number: int, stage: str, write: Write) -> None:
        """Ask; the snapshot is of now, and written piece by piece. Only if `ready`."""
        self._stay()
        if self._process is None:
            self._known.forget()
        snapshot = write(self._known)
        pieces = [next(snapshot)]  # of this instant
        task = asyncio.create_task(self._ask(number, stage, pieces, snapshot))
        self._asking = task

    def facts(self) -> Facts:
        """For people."""
        pid = None if self._process is None else self._process.pid
        resting = self._rest_s()
        state = "planning" if self._asking else "idle" if pid else "off"
        if resting:
            state = "outdated" if self._outdated else "resting"
        return Facts(
            state=state,
            pid=pid,
            answers=self._answers,
            failures=self._failures,
            starts=self._starts,
            last_plan_s=self._last_s,
            longest_plan_s=self._longest_s,
            last_failure=self._last_failure,
            rest_s=resting,
        )

    async def close(self) -> None:
        self._stay()
        if self._asking is not None:
            self._asking.cancel()
            with suppress(asyncio.CancelledError):
                await self._asking
        await self._kill()

    async def _ask(
        self, number: int, stage: str, first: list[bytes], rest: Iterator[bytes]
    ) -> None:
        starting, began_s = self._process is None, asyncio.get_running_loop().time()
        patience_s = self._patience.of(stage, starting=starting)
        try:
            async with asyncio.timeout(patience_s):
                answer = await self._asked(number, stage, first, rest)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is no good
            if isinstance(error, TimeoutError):
                self._patience.exhausted()
            answer = Answer(number, fault=_words(error, patience_s))
            await self._fail(error, answer.fault)
        else:
            took_s = asyncio.get_running_loop().time() - began_s
            self._patience.answered(stage, took_s, starting=starting)
            if answer.fault:
                self._known.forget()
            self._in_a_row, self._outdated = 0, False
            self._answers += 1
            self._last_s = answer.plan_s
            self._longest_s = max(self._longest_s, answer.plan_s)
            self._leaving = asyncio.get_running_loop().call_later(IDLE_S, self._leave)
        self._asking = None
        self._told(answer)

    def _leave(self) -> None:
        """Nobody has asked it for long: the next question starts another one."""
        self._leaving = asyncio.create_task(self._kill())

    def _stay(self) -> None:
        if isinstance(self._leaving, asyncio.TimerHandle):
            self._leaving.cancel()

    async def _asked(
        self, number: int, stage: str, first: list[bytes], rest: Iterator[bytes]
    ) -> Answer:
        pieces = list(first)
        for data in rest:
            pieces.append(data)
            await asyncio.sleep(0)  # others come in between
        process = await self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        for data in (dumps((number, stage, len(pieces))), *pieces):
            process.stdin.write(framed(data))
            await process.stdin.drain()
        said = read_answer(await message(process.stdout))
        if said.number != number:
            raise Unreadable(f"an answer to question {said.number}, asked was {number}")
        return said

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            self._starts += 1
            await asyncio.to_thread(load_numbers)  # its answers are checked with them
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=_environment(),
                start_new_session=True,
                limit=1 << 20,
            )
            assert self._process.stdout is not None
            await greeted(self._process.stdout, self._code)
        return self._process

    async def _fail(self, error: Exception, why: str) -> None:
        self._failures += 1
        self._in_a_row += 1
        self._last_failure = why
        self._outdated = isinstance(error, code.OtherCode)
        pause_s = min(FIRST_REST_S * 2.0 ** (self._in_a_row - 1), LONGEST_REST_S)
        if self._outdated:  # only a restart of the master helps, or the old code
            pause_s = LONGEST_REST_S
        self._rest_until_s = asyncio.get_running_loop().time() + pause_s
        await self._kill()
        self._failed(why)

    async def _kill(self) -> None:
        """End it, and wait until it is gone. A caller that is cancelled meanwhile leaves the wait
        to the next one: `close` would else return before the process is reaped.
        """
        process, self._process = self._process, None
        self._known.forget()
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.stdin is not None:
                process.stdin.close()
            self._ending = asyncio.create_task(process.wait())
        if self._ending is not None:
            await asyncio.shield(self._ending)

    def _rest_s(self) -> float:
        if not self._rest_until_s:
            return 0.0
        return max(0.0, self._rest_until_s - asyncio.get_running_loop().time())


def _words(error: Exception, limit_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"it took longer than {limit_s:g} s"
    if isinstance(error, asyncio.IncompleteReadError | ConnectionError):
        return "it ended"
    if isinstance(error, code.OtherCode):
        return str(error)
    return f"{type(error).__name__}: {error}"[:500]


def _environment() -> Mapping[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "PYTHONPATH") if key in os.environ}
    return {**kept, **dict.fromkeys(THREADS, "1"), "PYTHONHASHSEED": "0"}
