"""How a training process learns that it should save and leave: a notice file, or a signal."""

import json
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from dlq_train import clock

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
LOOK_EVERY_S = 0.1  # a stat on a network file system is not free, and steps can be fast

_Handler = Callable[[int, FrameType | None], object]


@dataclass(frozen=True, slots=True)
class Notice:
    """The agent's reason to stop this process, as far as it is known."""

    kind: str  # preempt, time_limit, reclaim, maintenance, user_pause, hold_expired; or "signal"
    reason: str
    deadline_s: float | None  # epoch seconds after which the process is killed


class _FileWatch:
    """Looks for a file of the agent's now and then."""

    def __init__(
        self, file: Path | None, *, steady_s: Callable[[], float] = clock.steady_s
    ) -> None:
        self._file = file
        self._steady_s = steady_s
        self._looked_s: float | None = None

    def _may_look(self) -> bool:
        now_s = self._steady_s()
        if self._looked_s is not None and now_s - self._looked_s < LOOK_EVERY_S:
            return False
        self._looked_s = now_s
        return True


class StopWatch(_FileWatch):
    """Remembers a request to stop; once asked, it stays asked."""

    _seen = False
    _signalled: int | None = None

    def install_handlers(self) -> None:
        """Let SIGTERM and SIGUSR1 mean "stop soon"; a handler that was there still runs.

        Python delivers signals to the main thread only. In any other thread this does nothing, and
        the notice file is the only notice.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        for number in STOP_SIGNALS:
            signal.signal(number, self._handler(signal.getsignal(number)))

    def should_stop(self) -> bool:
        """True from the first look after the notice or the signal arrived; costs about 1 us."""
        if self._seen or self._signalled is not None:
            return True
        if self._file is not None and self._may_look():
            self._seen = self._file.exists()
        return self._seen

    def notice(self) -> Notice | None:
        """The notice as the agent wrote it; None without a request to stop."""
        if self._file is not None and self._file.exists():
            return _read_notice(self._file)
        if self._signalled is not None:
            return Notice("signal", signal.Signals(self._signalled).name, None)
        return None

    def _handler(self, previous: _Handler | int | None) -> _Handler:
        def note(number: int, frame: FrameType | None) -> None:
            self._signalled = number
            if callable(previous):
                previous(number, frame)

        return note


class SaveWatch(_FileWatch):
    """Tells of requests to save and go on (`dlq checkpoint`), each once."""

    _told = 0

    def should_save(self) -> bool:
        """True once for each request, at the first look after it; costs about 1 us."""
        if self._file is None or not self._may_look():
            return False
        number = _read_number(self._file)
        asked = number > self._told
        self._told = max(number, self._told)
        return asked


def _read_object(path: Path) -> Mapping[str, object] | None:
    """The agent's JSON object; None for anything else."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) else None


def _read_number(path: Path) -> int:
    number = (_read_object(path) or {}).get("number")
    return number if isinstance(number, int) else 0


def _read_notice(path: Path) -> Notice:
    said = _read_object(path)
    if said is None:  # an empty file, as made by `touch`, asks just as well
        return Notice("preempt", "", None)
    deadline = said.get("deadline_s")
    return Notice(
        kind=str(said.get("kind", "preempt")),
        reason=str(said.get("reason", "")),
        deadline_s=float(deadline) if isinstance(deadline, int | float) else None,
    )
