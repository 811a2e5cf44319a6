"""A training run as its script sees it: resume, beat, stop when asked, save, finish."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NoReturn, TypeVar

from dlq_train import checkpoint, clock, files, settings
from dlq_train.beat import BeatFile
from dlq_train.checkpoint import Checkpoint, CheckpointUnusable
from dlq_train.notice import Notice, SaveWatch, StopWatch
from dlq_train.settings import Settings

PREEMPTED = 99  # exit code: "I saved and left; run me again"
KEEP = 2

_log = logging.getLogger("dlq_train")
_State = TypeVar("_State")


def init(local_dir: str | Path = "checkpoints") -> "Run":
    """Join the attempt that dlq started, or train by itself outside dlq.

    Call it once, early, in the main thread: it takes over SIGTERM and SIGUSR1 (inside dlq only).
    Outside dlq, checkpoints go to `local_dir` and nothing ever asks the run to stop.
    """
    said = settings.read(os.environ, local_dir=Path(local_dir))
    watch = StopWatch(said.preempt_file)
    if said.job_id is not None:
        watch.install_handlers()
    return Run(said, watch)


class Run:
    """One process of one attempt. Steps are counted as done: after the first one, `step` is 1."""

    def __init__(self, said: Settings, watch: StopWatch) -> None:
        self.job_id = said.job_id
        self.attempt = said.attempt
        self.rank = said.rank
        self.nnodes = said.nnodes
        self.trial = said.trial  # dlq only measures how fast it is: nothing of this run is kept
        self.checkpoint_dir = said.checkpoint_dir
        self._settings = said
        self._watch = watch
        self._saves = SaveWatch(said.save_file)
        self._beats = BeatFile(said.beat_file if said.local_rank == 0 else None)
        self._step: int | None = None
        self._saved: Checkpoint | None = None

    def resume(self, load: Callable[[Path], _State]) -> _State | None:
        """`load(directory)` of the newest usable checkpoint; None when there is none to resume.

        Sizes and hashes are verified first. A damaged checkpoint is passed over, with a warning,
        for an older one. If dlq promised a checkpoint and none is usable, raises
        CheckpointUnusable; a silent start from zero would lose work. Exceptions of `load` pass
        through.
        """
        for candidate in self._candidates():
            try:
                checkpoint.verify(candidate)
            except CheckpointUnusable as damage:
                _log.warning("cannot resume from a damaged checkpoint, trying older: %s", damage)
                continue
            _log.info("resuming from %s", candidate.path)
            self._step = candidate.step
            return load(candidate.path)
        if self._settings.resume_from is not None:
            raise CheckpointUnusable(f"no usable checkpoint at {self._settings.resume_from}")
        return None

    def beat(self, step: int, *, loss: float | None = None, total: int | None = None) -> None:
        """Tell dlq that `step` steps of `total` are done; cheap enough for every step."""
        self._step = step
        self._beats.step(step, loss=loss, total=total)

    def waiting(self) -> AbstractContextManager[None]:
        """Around each wait for other ranks, such as a barrier or an all-reduce of every step.

        Then dlq knows the time that this rank itself works on a step, and finds slow nodes by it.
        """
        return self._beats.waiting()

    def should_stop(self) -> bool:
        """True once dlq asked this process to save and leave; then true for good.

        With several processes each may learn it at a different step: reduce `stop_flag()` instead.
        """
        return self._watch.should_stop()

    def stop_flag(self) -> int:
        """`should_stop()` as 0 or 1, to be max-reduced over all ranks by the job's own means.

        All ranks then stop after the same step, because a consistent checkpoint needs that.
        """
        return int(self._watch.should_stop())

    def should_save(self) -> bool:
        """True once for each `dlq checkpoint`: save at the end of this step, and go on.

        With several processes reduce `save_flag()`, as for stopping.
        """
        return self._saves.should_save()

    def save_flag(self) -> int:
        """`should_save()` as 0 or 1, to be max-reduced over all ranks by the job's own means."""
        return int(self._saves.should_save())

    def notice(self) -> Notice | None:
        """Why, and until when, dlq asked to stop; None as long as it did not."""
        return self._watch.notice()

    def save(self, step: int, write: Callable[[Path], object]) -> Checkpoint:
        """Commit a checkpoint: `write(directory)` puts its files into an empty directory.

        On return it is durable, and all but the newest two of this attempt are gone. Saving the
        same step again costs nothing. If anything fails, the error passes through and the older
        checkpoints remain. Only rank 0 of a job with several processes may save.
        """
        if self.rank != 0:
            raise ValueError(f"only rank 0 commits a checkpoint, and this is rank {self.rank}")
        if self._saved is not None and self._saved.step == step:
            return self._saved
        said = self._settings
        origin = {"job_id": said.job_id or "", "attempt": said.attempt, "fence": said.fence}
        started_s = clock.steady_s()
        saved = checkpoint.commit(self.checkpoint_dir, step, write, keep=KEEP, origin=origin)
        self._step, self._saved = step, saved
        self._beats.saved(save_s=clock.steady_s() - started_s, checkpoint=saved.path.name)
        return saved

    def leave(self) -> NoReturn:
        """Exit with the code that says: saved, and to be run again."""
        sys.exit(PREEMPTED)

    def done(self) -> None:
        """Say that the training is complete, so that an exit during a pause is not run again."""
        self._beats.write()
        if self._settings.done_file is not None:
            finished = {"v": 1, "step": self._step, "time_s": clock.wall_s()}
            files.write_json(self._settings.done_file, finished, durable=True)

    def _candidates(self) -> Iterator[Checkpoint]:
        """Checkpoints of this attempt (its launcher may have restarted it), then those of the
        past.
        """
        yield from checkpoint.committed(self.checkpoint_dir)
        if self._settings.resume_from is not None:
            yield from checkpoint.candidates(self._settings.resume_from)
