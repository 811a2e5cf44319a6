"""One call of a Python function inside a job: `python -m dlq_train.function DIRECTORY`.

`dlq.Executor` writes the directory, and reads the result. Both files are pickles, so each is read
only where it belongs to the user of the process. A result that is there is not computed again.
"""

from __future__ import annotations

import os
import pickle
import stat
import struct
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

CALLS = "calls"
RESULT = "result-{}"
OK, RAISED = b"dlq-function 1 ok\n", b"dlq-function 1 raised\n"
_COUNT = struct.Struct("<Q")


def dumps(value: object) -> bytes:
    """The pickle of a value. By cloudpickle where that is loaded: the function came by it then."""
    made: Callable[[object], bytes] = getattr(sys.modules.get("cloudpickle"), "dumps", pickle.dumps)
    return made(value)


def write_new(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file for its owner alone, whole or not at all. It takes the place of an older one."""
    made = path.with_name(f"{path.name}.{os.getpid()}")
    made.unlink(missing_ok=True)
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)


def write_calls(path: Path, payloads: list[bytes]) -> None:
    """Several pickles in one file, each found by its number."""
    sizes = [_COUNT.pack(len(each)) for each in payloads]
    write_new(path, [_COUNT.pack(len(payloads)), *sizes, *payloads])


def read_call(path: Path, number: int) -> bytes:
    """One of them. PermissionError as `open_own`."""
    with open_own(path) as file:
        (count,) = _COUNT.unpack(file.read(_COUNT.size))
        sizes = [size for (size,) in _COUNT.iter_unpack(file.read(_COUNT.size * count))]
        file.seek(sum(sizes[:number]), os.SEEK_CUR)
        content: bytes = file.read(sizes[number])
        return content


def open_own(path: Path) -> Any:
    """A regular file of this user, which no other user could have written. PermissionError for any
    other: a pickle may run code.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        os.close(descriptor)
        raise PermissionError(f"{path} is not a file of this user alone; it is not unpickled")
    return os.fdopen(descriptor, "rb")


def main(arguments: list[str]) -> int:
    """Compute one result; the exit code of the job. An exit of the function passes through: with
    dlq_train.PREEMPTED the job is queued again, and the function is called anew.
    """
    place = Path(arguments[0])
    number = int(os.environ.get("DLQ_ARRAY_TASK_ID") or 0)
    result = place / RESULT.format(number)
    if _is_done(result):
        return 0
    try:
        function = pickle.loads(read_call(place / CALLS, 0))
        given, named = pickle.loads(read_call(place / CALLS, number + 1))
        content = dumps(function(*given, **named))
    except Exception as error:  # noqa: BLE001 - it is raised again by the caller
        text = traceback.format_exc()
        sys.stderr.write(text)
        write_new(result, [RAISED, _COUNT.pack(len(text.encode())), text.encode(), _pickled(error)])
        return 1
    write_new(result, [OK, content])
    return 0


def _is_done(result: Path) -> bool:
    try:
        with open_own(result) as file:
            return bool(file.readline() == OK)
    except OSError:
        return False


def _pickled(error: Exception) -> bytes:
    """Empty where the exception cannot be rebuilt."""
    try:
        made = dumps(error)
        pickle.loads(made)
    except Exception:  # noqa: BLE001 - its text is told
        return b""
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
