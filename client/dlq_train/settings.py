"""The settings that the agent gives a training process through its environment; only this module
reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One process's view of its attempt. A path of None switches its feature off."""

    job_id: str | None  # None: not started by dlq
    attempt: str
    fence: str
    rank: int  # among all processes of the job; rank 0 commits
    local_rank: int  # among the processes on this node; local rank 0 beats
    nnodes: int
    checkpoint_dir: Path
    resume_from: Path | None
    preempt_file: Path | None
    beat_file: Path | None
    done_file: Path | None
    save_file: Path | None = None
    trial: bool = False


def read(environ: Mapping[str, str], *, local_dir: Path) -> Settings:
    """Settings from `environ`; `local_dir` is the checkpoint directory outside dlq.

    A launcher inside the job (torchrun) numbers more processes than there are nodes. Its RANK and
    LOCAL_RANK count where they are present, the node's rank otherwise. Raises ValueError when dlq
    started the process but named no checkpoint directory.
    """
    job_id = environ.get("DLQ_JOB_ID") or None
    checkpoint_dir = _path(environ, "DLQ_CHECKPOINT_DIR")
    if checkpoint_dir is None:
        if job_id is not None:
            raise ValueError("DLQ_JOB_ID is set but DLQ_CHECKPOINT_DIR is not")
        checkpoint_dir = local_dir
    return Settings(
        job_id=job_id,
        attempt=environ.get("DLQ_ATTEMPT", ""),
        fence=environ.get("DLQ_FENCE", ""),
        rank=int(environ.get("RANK") or environ.get("DLQ_NODE_RANK") or "0"),
        local_rank=int(environ.get("LOCAL_RANK") or "0"),
        nnodes=int(environ.get("DLQ_NNODES") or "1"),
        checkpoint_dir=checkpoint_dir,
        resume_from=_path(environ, "DLQ_RESUME_FROM"),
        preempt_file=_path(environ, "DLQ_PREEMPT_FILE"),
        beat_file=_path(environ, "DLQ_BEAT_FILE"),
        done_file=_path(environ, "DLQ_DONE_FILE"),
        save_file=_path(environ, "DLQ_SAVE_FILE"),
        trial=environ.get("DLQ_TRIAL") == "1",
    )


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    text = environ.get(name)
    return Path(text) if text else None
