"""Samples of stacks: a busy function has its share, a waiting thread has none, no value is told."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from dlq_common.daemon import stacks
from dlq_common.daemon.stacks import HERTZ, LOOP, StackProfile, StackSampler, relative_file
from support.fake_clock import FakeClock

SECOND_S = 1.0 / HERTZ


class Burner:
    """A clock of the CPU time of the main thread."""

    def __init__(self) -> None:
        self.cpu_s = 0.0

    def tell_s(self) -> float:
        return self.cpu_s


def _inner(secret: str) -> FrameType:
    return sys._getframe()


def _outer(secret: str) -> FrameType:
    return _inner(secret)


WAITING = """
import sys
class Event:
    def wait(self):
        return sys._getframe()
"""


def _waits() -> FrameType:
    """The frame of a thread that waits for work."""
    names: dict[str, Any] = {}
    exec(compile(WAITING, "/lib/threading.py", "exec"), names)
    frame: FrameType = names["Event"]().wait()
    return frame


def _profile_of(sampler: StackSampler) -> StackProfile:
    sampler._spent_s = 1.0
    sampler.learn_names()
    return sampler.profile()


def test_a_stack_is_told_from_outside_to_inside_with_files_and_lines() -> None:
    sampler = StackSampler(tell_s=FakeClock().boottime_s, frames=lambda: {threading.get_ident(): F})
    sampler.take(_outer("hunter2"))
    found = _profile_of(sampler)
    (stack,) = found.stacks
    assert (stack.thread, stack.samples, found.threads[0].name) == (LOOP, 1, LOOP)
    assert [place.name for place in stack.stack[-2:]] == ["_outer", "_inner"]
    assert stack.stack[-1].file.endswith("test_stacks.py")
    assert stack.stack[-1].line == _inner.__code__.co_firstlineno
    assert "hunter2" not in repr(found)


F = sys._getframe()  # the frame that `frames` tells of the main thread is the handler's own


def test_long_c_code_counts_by_its_cpu_time_and_a_starved_process_does_not() -> None:
    clock, burner = FakeClock(), Burner()
    sampler = StackSampler(
        tell_s=clock.boottime_s, tell_cpu_s=burner.tell_s,
        frames=lambda: {threading.get_ident(): F},
    )  # fmt: skip
    clock.advance(10 * SECOND_S)
    burner.cpu_s += 10 * SECOND_S  # ten moments in one call
    sampler.take(_outer(""))
    clock.advance(5 * SECOND_S)  # somebody else had the CPU
    sampler.take(_outer(""))
    found = _profile_of(sampler)
    assert (found.samples, found.missed) == (11, 4)
    assert [one.samples for one in found.stacks] == [11]


def test_a_thread_that_waits_is_idle() -> None:
    waiting = _waits()
    sampler = StackSampler(
        tell_s=FakeClock().boottime_s, frames=lambda: {threading.get_ident(): F, 1: waiting}
    )
    sampler.take(_outer(""))
    sampler._names[1] = "audit"
    found = {one.name: one for one in _profile_of(sampler).threads}
    assert (found["audit"].samples, found["audit"].idle) == (1, 1)
    assert (found[LOOP].samples, found[LOOP].idle) == (1, 0)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "MOST_STACKS", 1)
    sampler = StackSampler(tell_s=FakeClock().boottime_s, frames=lambda: {threading.get_ident(): F})
    for frame in (_outer(""), _inner(""), _outer("")):
        sampler.take(frame)
    found = _profile_of(sampler)
    assert (len(found.stacks), found.stacks[0].samples, found.left_out) == (1, 2, 1)


def test_a_stack_of_any_depth_is_cut() -> None:
    def deep(left: int) -> FrameType:
        return deep(left - 1) if left else sys._getframe()

    sampler = StackSampler(tell_s=FakeClock().boottime_s, frames=lambda: {threading.get_ident(): F})
    sampler.take(deep(stacks.DEEPEST + 50))
    (stack,) = _profile_of(sampler).stacks
    assert len(stack.stack) == stacks.DEEPEST


@pytest.fixture
def alarm() -> Iterator[None]:
    before = signal.getsignal(stacks.SIGNAL)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(stacks.SIGNAL, before)


@pytest.mark.usefixtures("alarm")
def test_the_kernel_interrupts_a_busy_function_and_a_late_signal_does_no_harm() -> None:
    sampler = StackSampler(tell_s=FakeClock().boottime_s)
    sampler.start()
    while sampler.samples < 3:
        _burn()
    sampler.stop()
    samples = sampler.samples
    os.kill(os.getpid(), stacks.SIGNAL)  # its default would end us
    _burn()
    sampler.stop()  # again
    found = sampler.profile()
    assert found.samples == samples
    assert any(place.name == "_burn" for one in found.stacks for place in one.stack)
    assert found.threads[0].name == LOOP


def _burn() -> int:
    return sum(number * number for number in range(20_000))


def test_files_are_relative_to_the_folder_of_their_import() -> None:
    assert relative_file(stacks.__file__) == "dlq_common/daemon/stacks.py"
    assert relative_file(threading.__file__) == "threading.py"
    assert relative_file("/home/alice/secret/thing.py") == "thing.py"
    assert relative_file("<string>") == "<string>"
