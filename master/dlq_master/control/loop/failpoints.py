"""Named places at which a test may have the process killed, a crash that runs no `finally`, or a
handler fail.
"""

import os
import random
import signal
from collections.abc import Callable, Sequence
from typing import Final

from dlq_common.errors import ConfigError
from dlq_common.text.suggest import did_you_mean
from dlq_master.model.event import JournalEvent

NAMES: Final = ("before_commit", "after_commit", "before_send", "after_send")
RAISE: Final = "raise"
STUMBLE: Final = "stumble"
STAGGER: Final = "stagger"
BEFORE, AFTER = "before", "after"


class OnPurpose(RuntimeError):
    """A failpoint has raised it."""


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Failpoints:
    """Counts passages of one armed place; every other passage costs one comparison."""

    def __init__(self, setting: str = "", die: Callable[[], object] = _die) -> None:
        """`NAME` or `NAME:N`: the N-th passage kills; `NAME@KIND`: the first with an event of that
        kind. `raise@KIND/SENDER`: every stimulus of that kind by that sender fails, as by a fault
        of its handler. `stumble:N@SENDER,SENDER`: about every N-th stimulus of these senders fails,
        before its handler or after it. `stagger` in its place: so do their calls outside of the
        loop. These senders are not refused for it, nor does the master end when it fails often.
        Raises ConfigError for an unknown name."""
        place, _, self._kind = setting.partition("@")
        name, _, count = place.partition(":")
        if name and name not in (*NAMES, RAISE, STUMBLE, STAGGER):
            raise ConfigError(f"debug.failpoint: no place {name!r}{did_you_mean(name, NAMES)}")
        if count and not count.isdecimal():
            raise ConfigError(f"debug.failpoint: {count!r} is not a number of passages")
        self._armed = name
        self._left = int(count) if count else 1
        self._die = die
        self.stumbles = name in (STUMBLE, STAGGER)
        self.staggers = name == STAGGER
        self._chance = random.Random(setting)

    def stumble(self, sender: str, when: str = BEFORE) -> None:
        """Say that a stimulus is about to be handled, or has been, while the draft holds its
        changes. Raises OnPurpose for one that is to fail now. Only needed if `stumbles`.
        """
        if sender in self._kind.split(",") and self._chance.random() * 2.0 * self._left < 1.0:
            raise OnPurpose(f"the failpoint {self._armed}, {when} the handler")

    def forgives(self, sender: str) -> bool:
        """Whether this sender is heard again, whatever has failed. Only needed if `stumbles`."""
        return self.staggers and sender in self._kind.split(",")

    def met(self, kind: str, sender: str) -> None:
        """Say that a stimulus is about to be handled. Raises OnPurpose if it is to fail now."""
        if self._armed == RAISE and self._kind == f"{kind}/{sender}":
            raise OnPurpose(f"the failpoint {self._kind}")
        if self.stumbles:
            self.stumble(sender)

    def passed(self, name: str, events: Sequence[JournalEvent] = ()) -> None:
        """Say that the turn is here, with what it has decided. Kills the process with SIGKILL
        (`die`) when it is time.
        """
        if name != self._armed:
            return
        if self._kind and all(event.kind != self._kind for event in events):
            return
        self._left -= 1
        if self._left <= 0:
            self._die()
