"""Signals as bytes in a pipe, so that a loop can wait for them and for other things at once."""

from __future__ import annotations

import os
import resource
import signal
from typing import Iterable

FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
)


def catch(numbers: Iterable[int]) -> int:
    """Turn these signals into bytes that can be read from the returned descriptor."""
    awake, raised = os.pipe()
    for descriptor in (awake, raised):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(raised, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return awake


def end_as(code: int) -> int:
    """The exit code of a program, as ours; a negative one ends this process by that signal."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.set_wakeup_fd(-1)
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code
