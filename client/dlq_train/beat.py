"""The beat file: proof of life and progress that `dlq status` shows and learned grace needs."""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dlq_train import clock, files

WRITE_EVERY_S = 1.0
_WORK = ("work_steps", "work_log_sum", "work_log_square_sum")

_log = logging.getLogger("dlq_train")


class BeatFile:
    """Rewrites one small JSON file at most once a second; losing a beat never stops training."""

    def __init__(
        self, path: Path | None, *, steady_s: Callable[[], float] = clock.steady_s
    ) -> None:
        self._path = path
        self._steady_s = steady_s
        self._beat: dict[str, object] = {"v": 1}
        self._stepped_s: float | None = None
        self._longest_step_s = 0.0
        self._waited_s: float | None = None
        self._work = [0, 0.0, 0.0]
        self._written_s: float | None = None
        self._warned = False

    def step(self, step: int, *, loss: float | None, total: int | None) -> None:
        """Record that `step` steps are done. The first beat is written at once."""
        now_s = self._steady_s()
        if self._stepped_s is not None:
            step_s = now_s - self._stepped_s
            self._longest_step_s = max(self._longest_step_s, step_s)
            self._beat["step_s"] = round(self._longest_step_s, 6)
            self._worked(step_s)
        self._stepped_s, self._waited_s = now_s, None
        self._beat |= {"step": step, "total": total, "loss": _finite(loss)}
        if self._written_s is None or now_s - self._written_s >= WRITE_EVERY_S:
            self.write()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Its time counts as a wait of this step for other ranks."""
        begin_s = self._steady_s()
        try:
            yield
        finally:
            self._waited_s = (self._waited_s or 0.0) + self._steady_s() - begin_s

    def _worked(self, step_s: float) -> None:
        """Sum the logarithm of the step's time without its waits. A step that told none is left
        out.
        """
        if self._waited_s is None or step_s <= self._waited_s:
            return
        log = math.log(step_s - self._waited_s)
        self._work = [one + more for one, more in zip(self._work, (1, log, log * log), strict=True)]
        self._beat |= dict(zip(_WORK, self._work, strict=True))

    def saved(self, *, save_s: float, checkpoint: str) -> None:
        """Record a committed checkpoint, and write: the agent learns the grace from it."""
        self._beat |= {"last_save_s": round(save_s, 6), "checkpoint": checkpoint}
        self._stepped_s = None  # the time of a save is not the time of a step
        self.write()

    def write(self) -> None:
        """Write the present values at any rate."""
        if self._path is None:
            return
        self._written_s = self._steady_s()
        self._longest_step_s = 0.0
        try:
            files.write_json(self._path, self._beat | {"time_s": clock.wall_s()}, durable=False)
        except OSError as error:
            if not self._warned:
                _log.warning("cannot write the beat file %s: %s", self._path, error)
            self._warned = True


def _finite(loss: float | None) -> float | None:
    """JSON has no NaN and no infinity; a diverged loss is shown as unknown."""
    if loss is None or not math.isfinite(loss):
        return None
    return float(loss)
