"""The files of an attempt, their permitted users, and their deletion.

STATE_DIR/                     0711 when jobs run as their submitters (they pass, never list)
  contact                      last contact with the master (shim/contact.py)
  users.map                    root-owned: which uid may have which gid and groups (optional)
  attempts/                    0711
    JOB.ATTEMPT.NODE_RANK/     0711, root's: nothing in it can be made or renamed by the job
      plan            0600     what to run; locked by the shim as long as it lives
      ctl             0600     FIFO: commands to the shim
      started.json    0600     shim: the main process runs
      exit.json       0600     shim: how it ended (exit.tmp before that)
      log.head        0600     first bytes of stdout and stderr
      log.ring        0600     last bytes of them
      notice.json     0640     job may read it (its group): save and leave
      save.json       0640     job may read it (its group): save and go on
      job/            0700     the job's own: beat, done, steps; torchrun/, if it joined others
  leftover/                    0700: `job/` directories that held more than plain files
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dlq_nodeagent.jobtree.files import DIRECTORY, FILE, opened
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.model.port import JobFiles, StepsFile

ATTEMPTS = "attempts"
LEFTOVER = "leftover"
PLAN = "plan"
CTL = "ctl"
STARTED = "started.json"
EXIT = "exit.json"
EXIT_DRAFT = "exit.tmp"
EXIT_DAMAGED = "exit.json.damaged"  # put aside: the disk has changed it
LOG_HEAD = "log.head"
LOG_RING = "log.ring"
NOTICE = "notice.json"
SAVE = "save.json"
JOB = "job"
BEAT = "beat"
DONE = "done"
WORKERS_DONE = "workers_done"
FAILED_TASK = "failed_task"
STEPS = "steps"

# Everything we or the shim ever put into an attempt's directory, temporary names included. They are
# unlinked in this order. An agent that dies between two of them leaves an attempt that the next one
# can adopt, or one without a plan and an end. The next agent removes that.
_OUR_NAMES = (
    *(PLAN, EXIT, CTL, STARTED, EXIT_DAMAGED, LOG_HEAD, LOG_RING, NOTICE, SAVE),
    *("plan.tmp", "started.tmp", "exit.tmp", "notice.tmp", "save.tmp"),
)
_MAX_JOB_FILES = 10_000
_PIECE_BYTES = 1 << 14


def attempt_path(state_dir: Path, key: RankKey) -> Path:
    return state_dir / ATTEMPTS / str(key)


def job_files(state_dir: Path, key: RankKey) -> JobFiles:
    """The paths that go into a job's environment."""
    at = str(attempt_path(state_dir, key))
    return JobFiles(
        preempt_file=f"{at}/{NOTICE}",
        job_dir=f"{at}/{JOB}",
        beat_file=f"{at}/{JOB}/{BEAT}",
        done_file=f"{at}/{JOB}/{DONE}",
        save_file=f"{at}/{SAVE}",
    )


def open_attempts(state_dir: Path) -> int:
    """A descriptor of STATE_DIR/attempts, made when missing."""
    (state_dir / ATTEMPTS).mkdir(mode=0o711, parents=True, exist_ok=True)
    return os.open(state_dir / ATTEMPTS, DIRECTORY)


def list_keys(attempts_fd: int) -> list[RankKey]:
    """The attempts that have a directory, in order; foreign names are left alone."""
    keys: list[RankKey] = []
    for name in os.listdir(attempts_fd):
        with suppress(LaunchRefused):
            keys.append(RankKey.parse(name))
    return sorted(keys, key=RankKey.numbers)


def make_attempt(attempts_fd: int, key: RankKey, *, uid: int, gid: int) -> int:
    """Make an attempt's directory with its FIFO and the job's own directory.

    Returns a descriptor of it. FileExistsError when there is one already.
    """
    os.mkdir(str(key), mode=0o711, dir_fd=attempts_fd)
    at = open_attempt(attempts_fd, key)
    os.fchmod(at, 0o711)  # at any umask
    make_fifo(at)
    os.mkdir(JOB, mode=0o700, dir_fd=at)
    if os.geteuid() == 0:
        os.chown(JOB, uid, gid, dir_fd=at, follow_symlinks=False)
    return at


def make_fifo(at: int) -> None:
    """The FIFO of commands to the shim, if there is none."""
    with suppress(FileExistsError):
        os.mkfifo(CTL, mode=0o600, dir_fd=at)


def open_attempt(attempts_fd: int, key: RankKey) -> int:
    return os.open(str(key), DIRECTORY, dir_fd=attempts_fd)


def exists(at: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def read(at: int, name: str, limit: int = 1 << 23) -> bytes | None:
    """One of our own files; None when it is not there."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    except FileNotFoundError:
        return None
    # A file object would ask the kernel for a buffer of the whole limit.
    pieces = []
    try:
        while limit > 0 and (piece := os.read(descriptor, min(limit, _PIECE_BYTES))):
            pieces.append(piece)
            limit -= len(piece)
    finally:
        os.close(descriptor)
    return b"".join(pieces)


def write(at: int, name: str, data: bytes, *, durable: bool, readable_by_gid: int | None) -> None:
    """Replace one of our own files in one step; with `durable` it is on the disk on return.

    `readable_by_gid` lets the job's group read it (only root can give it away).
    """
    tmp = f"{name.removesuffix('.json')}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(tmp, flags, 0o600, dir_fd=at), "wb") as file:
        file.write(data)
        file.flush()
        if readable_by_gid is not None:
            if os.geteuid() == 0:
                os.fchown(file.fileno(), -1, readable_by_gid)
            os.fchmod(file.fileno(), 0o640)
        if durable:
            os.fsync(file.fileno())
    os.rename(tmp, name, src_dir_fd=at, dst_dir_fd=at)
    if durable:
        os.fsync(at)


def read_job_file(at: int, name: str, *, uid: int, limit: int) -> bytes | None:
    """A file the job wrote into its own directory, read so that no trick of the job can matter.

    None when it is missing or not a plain file of that user (a link, a FIFO, another's file).
    """
    try:
        with _opened_job_file(at, name, uid) as file:
            return None if file is None else os.read(file[0], limit)
    except OSError:
        return None


def read_steps(at: int, mark: str, *, uid: int, limit: int) -> StepsFile | None:
    """The job's list of its steps, as `read_job_file`; None also when it still has this mark."""
    try:
        with _opened_job_file(at, STEPS, uid) as file:
            if file is None:
                return None
            info = file[1]
            present = f"{info.st_ino}.{info.st_mtime_ns}.{info.st_ctime_ns}.{info.st_size}"
            return None if present == mark else StepsFile(present, os.read(file[0], limit))
    except OSError:
        return None


@contextmanager
def _opened_job_file(at: int, name: str, uid: int) -> Iterator[tuple[int, os.stat_result] | None]:
    with opened(JOB, at=at) as job, opened(name, FILE, at=job) as descriptor:
        info = os.fstat(descriptor)
        own = stat.S_ISREG(info.st_mode) and info.st_uid == uid
        yield (descriptor, info) if own else None


def remove_attempt(state_dir: Path, attempts_fd: int, key: RankKey) -> None:
    """Delete an attempt's directory: our names, and the plain files of the job's own directory.

    Everything is unlinked by descriptor and nothing is followed or descended into. A job that left
    directories (or too many files) finds its `job/` moved to STATE_DIR/leftover, for its owner or
    the operator. Repeating it is fine.
    """
    with suppress(FileNotFoundError), opened(str(key), at=attempts_fd) as at:
        if not _remove_job_dir(at):
            _keep_leftover(state_dir, at, key)
        for name in _OUR_NAMES:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=at)
        os.rmdir(str(key), dir_fd=attempts_fd)


def _remove_job_dir(at: int) -> bool:
    with suppress(FileNotFoundError), opened(JOB, at=at) as job:
        try:
            with os.scandir(job) as entries:
                for count, entry in enumerate(entries):
                    if count >= _MAX_JOB_FILES or entry.is_dir(follow_symlinks=False):
                        return False
                    os.unlink(entry.name, dir_fd=job)
            os.rmdir(JOB, dir_fd=at)
        except OSError:
            return False
    return True


def _keep_leftover(state_dir: Path, at: int, key: RankKey) -> None:
    kept = state_dir / LEFTOVER
    kept.mkdir(mode=0o700, exist_ok=True)
    with opened(kept) as kept_fd:
        os.rename(JOB, str(key), src_dir_fd=at, dst_dir_fd=kept_fd)
