"""A profile of this process by samples of the stacks of its threads, while it goes on working.

A timer of the kernel interrupts the main thread HERTZ times a second, between two instructions of
Python. A sampling thread would not do. It gets the interpreter's lock where others let it go, and
finds little but system calls. Long C code is interrupted at its end. Its sample then counts as
often as the CPU time of the main thread says.

A sample tells functions, files and lines, and never the value of a variable. Memory is bounded:
beyond MOST_STACKS different stacks only their number is counted. Other threads are seen where they
wait for the interpreter's lock, or in the function that called C code. So the main thread's shares
are exact, those of others are rough, and the CPU time of each thread is right.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, NamedTuple

HERTZ: Final = 47  # a prime: no timer of the process ticks in step with it
DEEPEST: Final = 128  # functions of a stack, the innermost ones
MOST_STACKS: Final = 10_000
LOOP: Final = "loop"  # the main thread of a daemon
SIGNAL: Final = signal.SIGALRM
_TASKS: Final = Path("/proc/self/task")
# The innermost functions of threads that wait for work, by the end of their file.
_WAITS: Final = frozenset(
    {
        ("selectors.py", "EpollSelector.select"),
        ("selectors.py", "SelectSelector.select"),
        ("threading.py", "Condition.wait"),
        ("threading.py", "Event.wait"),
        ("threading.py", "Thread._wait_for_tstate_lock"),
        ("threading.py", "Thread.join"),
        ("threading.py", "Thread.run"),  # it runs C code, such as gRPC's: CPU time tells whether
        ("queue.py", "Queue.get"),
        ("thread.py", "_worker"),
        ("socket.py", "socket.accept"),
    }
)
_NUMBER = re.compile(r"^(Thread|Dummy)-\d+")


class FunctionPlace(NamedTuple):
    """A function, and the line at which it begins."""

    name: str
    file: str  # relative to its package
    line: int


class ThreadTime(NamedTuple):
    """A thread, or all threads of one name."""

    name: str
    samples: int
    idle: int  # of these: it waited for work
    cpu_s: float


class StackCount(NamedTuple):
    """The number of samples that found a thread in a stack, outermost function first."""

    thread: str
    stack: tuple[FunctionPlace, ...]
    samples: int


class StackProfile(NamedTuple):
    """The result of sampling."""

    seconds: float
    samples: int
    missed: int  # moments at which the process was kept from working
    cpu_s: float  # of the whole process
    own_cpu_s: float  # of the sampling
    threads: Sequence[ThreadTime]  # the loop's first, then by CPU time
    stacks: Sequence[StackCount]  # the most frequent first
    left_out: int  # samples with a stack beyond MOST_STACKS


class StackSampler:
    """Takes samples of all threads of the process. Used by the main thread, which alone hears
    signals; `profile` may be called by any.
    """

    def __init__(
        self,
        *,
        tell_s: Callable[[], float],
        tell_cpu_s: Callable[[], float] = time.thread_time,
        frames: Callable[[], Mapping[int, FrameType]] = sys._current_frames,
    ) -> None:
        self.samples = 0
        self._missed = 0
        self._tell_s, self._tell_cpu_s, self._frames = tell_s, tell_cpu_s, frames
        self._main = threading.get_ident()
        self._names: dict[int, str] = {}
        self._waits: dict[CodeType, bool] = {}
        self._stacks: Counter[tuple[int, tuple[CodeType, ...]]] = Counter()
        self._seen: Counter[int] = Counter()
        self._idle: Counter[int] = Counter()
        self._left_out = 0
        self._tasks = _cpu_of_tasks()
        self._cpu_s: dict[str, float] = defaultdict(float)
        self._began_s = self._last_s = tell_s()
        self._last_cpu_s = tell_cpu_s()
        self._process_s = time.process_time()
        self._spent_s = self._own_s = 0.0
        self._on = False

    def start(self) -> None:
        """Let the kernel interrupt the main thread from now on."""
        self.learn_names()
        self._on = True
        signal.signal(SIGNAL, self._signalled)
        signal.siginterrupt(SIGNAL, False)
        signal.setitimer(signal.ITIMER_REAL, 1 / HERTZ, 1 / HERTZ)

    def stop(self) -> None:
        """Take no further sample. May be called again. A signal on its way does no harm."""
        if not self._on:
            return
        self._on = False
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(SIGNAL, _ignore)
        self._spent_s = self._tell_s() - self._began_s
        self._process_s = time.process_time() - self._process_s
        self.learn_names()
        self._add_cpu()

    def learn_names(self) -> None:
        """Of threads that are there now. Never in a handler: it takes a lock."""
        self._names |= {one.ident or 0: _plain(one.name) for one in threading.enumerate()}
        self._names[self._main] = LOOP

    def take(self, frame: FrameType | None) -> None:
        """One sample; the frame is that of the main thread."""
        now_s, cpu_s = self._tell_s(), self._tell_cpu_s()
        passed = max(1, round((now_s - self._last_s) * HERTZ))
        times = min(passed, max(1, round((cpu_s - self._last_cpu_s) * HERTZ)))
        for ident, other in self._frames().items():
            top = frame if ident == self._main else other
            if top is not None:
                self._count(ident, top, times)
        self.samples += times
        self._missed += passed - times
        self._last_s, self._last_cpu_s = now_s, cpu_s
        self._own_s += self._tell_cpu_s() - cpu_s

    def _signalled(self, _signal: int, frame: FrameType | None) -> None:
        try:
            self.take(frame)
        except Exception:  # noqa: BLE001 - it would reach the code that was interrupted
            self._missed += 1

    def profile(self) -> StackProfile:
        """All that was found, after `stop`."""
        places: dict[CodeType, FunctionPlace] = {}
        seen, idle = self._by_name(self._seen), self._by_name(self._idle)
        threads = [
            ThreadTime(name, seen[name], idle[name], self._cpu_s.get(name, 0.0))
            for name in {**seen, **self._cpu_s}
        ]
        threads.sort(key=lambda one: (one.name != LOOP, -one.cpu_s, one.name))
        return StackProfile(
            seconds=self._spent_s,
            samples=self.samples,
            missed=self._missed,
            cpu_s=self._process_s,
            own_cpu_s=self._own_s,
            threads=threads,
            stacks=[
                StackCount(self._name(ident), tuple(_place(code, places) for code in stack), times)
                for (ident, stack), times in self._stacks.most_common()
            ],
            left_out=self._left_out,
        )

    def _by_name(self, counted: Counter[int]) -> Counter[str]:
        found: Counter[str] = Counter()
        for ident, times in counted.items():
            found[self._name(ident)] += times
        return found

    def _name(self, ident: int) -> str:
        return self._names.get(ident, "unnamed")

    def _count(self, ident: int, frame: FrameType, times: int) -> None:
        self._seen[ident] += times
        if self._waiting(frame.f_code):
            self._idle[ident] += times
            return
        key = ident, tuple(reversed([*_codes(frame)]))
        if key in self._stacks or len(self._stacks) < MOST_STACKS:
            self._stacks[key] += times
        else:
            self._left_out += times

    def _waiting(self, code: CodeType) -> bool:
        known = self._waits.get(code)
        if known is None:
            file, name = code.co_filename, code.co_qualname
            known = any(name == wait and file.endswith(f"/{end}") for end, wait in _WAITS)
            self._waits[code] = known
        return known

    def _add_cpu(self) -> None:
        """The CPU time of each thread; threads without Python count by their names."""
        names = {
            one.native_id: self._name(one.ident or 0)
            for one in threading.enumerate()
            if one.native_id is not None
        }
        for task, cpu_s in _cpu_of_tasks().items():
            spent_s = cpu_s - self._tasks.get(task, 0.0)
            if task in names or spent_s > 0.0:
                self._cpu_s[names.get(task) or _native_name(task)] += spent_s


def _ignore(_signal: int, _frame: FrameType | None) -> None:
    """A late signal. Its default would end the process."""


def _place(code: CodeType, places: dict[CodeType, FunctionPlace]) -> FunctionPlace:
    place = places.get(code)
    if place is None:
        file = relative_file(code.co_filename)
        place = places[code] = FunctionPlace(code.co_qualname, file, code.co_firstlineno)
    return place


def relative_file(path: str) -> str:
    """The file below the folder that Python imports it from; elsewhere its bare name."""
    for folder in _folders():
        if path.startswith(folder):
            return path[len(folder) :]
    return path if path.startswith("<") else os.path.basename(path)


def _folders() -> list[str]:
    """Folders of imports, the longest first."""
    found = {os.path.join(os.path.abspath(folder), "") for folder in sys.path if folder}
    return sorted(found - {os.sep}, key=len, reverse=True)


def _codes(frame: FrameType | None) -> Iterator[CodeType]:
    """The functions of a stack, the innermost first."""
    for _ in range(DEEPEST):
        if frame is None:
            return
        yield frame.f_code
        frame = frame.f_back


def _plain(name: str) -> str:
    """Threads that are made for one task each have numbers; they are one line of the profile."""
    return _NUMBER.sub(r"\1", name)


def _cpu_of_tasks() -> dict[int, float]:
    """The CPU time of each thread of this process, by the kernel's number."""
    ticks, found = os.sysconf("SC_CLK_TCK"), {}
    for task in _TASKS.iterdir():
        try:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        found[int(task.name)] = (int(fields[11]) + int(fields[12])) / ticks
    return found


def _native_name(task: int) -> str:
    try:
        return f"native {(_TASKS / str(task) / 'comm').read_text().strip()}"
    except OSError:
        return "native"
