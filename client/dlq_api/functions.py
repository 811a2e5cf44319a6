"""Calls of functions in files of the user, and their results: written here, run by dlq_train.

The master never reads these files, and no other user may. A directory of its own holds each call
or array. It is removed once all its results have been read, and kept where one is an exception.
"""

from __future__ import annotations

import os
import pickle
import shutil
import stat
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from dlq_api.ends import FunctionFailed, FunctionLost
from dlq_common.errors import InvalidRequest
from dlq_train.function import CALLS, OK, RAISED, RESULT, dumps, open_own, write_calls

Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]

PLACE_VARIABLE = "DLQ_FUNCTIONS"
LARGEST_CALL_BYTES = 64 * 1024 * 1024
LARGEST_CALLS_BYTES = 1024 * 1024 * 1024
LARGEST_RESULT_BYTES = 256 * 1024 * 1024
LAG_S = 5.0  # a shared file system may show a new file late
_LOOK_EVERY_S = 0.2
_HEADER = 8


class RemoteTraceback(Exception):
    """The traceback of a function in its job, as the cause of the exception that it raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def default_place() -> Path:
    """$DLQ_FUNCTIONS, else ~/.dlq/functions."""
    found = os.environ.get(PLACE_VARIABLE)
    return Path(found) if found else Path("~/.dlq/functions").expanduser()


class FunctionFiles:
    """The files of one job, or of the tasks of one array."""

    def __init__(self, root: Path, key: str, *, keep: bool, largest_result: int) -> None:
        self.place = root / key
        self._keep = keep
        self._largest = largest_result
        self._left = 0
        self._lags = True

    def write(self, function: Callable[..., Any], calls: Sequence[Call]) -> None:
        """Write the function once, and the arguments of each call. InvalidRequest for what cannot
        be pickled, or is too large.
        """
        payloads = [
            _pickled(function, "function"),
            *(_pickled(each, "arguments") for each in calls),
        ]
        if sum(map(len, payloads)) > LARGEST_CALLS_BYTES:
            raise InvalidRequest(
                f"arguments: more than {LARGEST_CALLS_BYTES >> 20} MiB in all", field="arguments",
                hint="pass the names of files",
            )  # fmt: skip
        _make_own(self.place)
        write_calls(self.place / CALLS, payloads)
        self._left = len(calls)

    def value(self, number: int, *, is_well: bool) -> Any:
        """The value of a call whose job has ended. Raises the exception of the function, or
        FunctionLost: there is no result, or one that may not be trusted.
        """
        path = self.place / RESULT.format(number)
        if is_well:
            self._await(path)
        with self._opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > self._largest:
                raise FunctionLost(f"{path}: a result of {size} bytes, {self._largest} at most")
            head = file.readline(len(RAISED))
            if head == RAISED:
                raise _raised(file)
            if head == OK and is_well:
                return pickle.load(file)
        raise FunctionLost(f"{path}: no result of a function")

    def taken(self) -> None:
        """One result has been read; the last one takes the directory away."""
        self._left -= 1
        if not self._left and not self._keep:
            self.remove()

    def remove(self) -> None:
        """Take the directory away."""
        shutil.rmtree(self.place, ignore_errors=True)

    def _opened(self, path: Path) -> Any:
        try:
            return open_own(path)
        except FileNotFoundError:
            raise FunctionLost(
                f"there is no result in {path}",
                hint="the function has ended its process, or its node does not see this directory",
            ) from None
        except OSError as error:
            raise FunctionLost(str(error)) from None

    def _await(self, path: Path) -> None:
        """Give a shared file system time to show the file; once for each directory."""
        looks = round(LAG_S / _LOOK_EVERY_S) if self._lags else 0
        for _ in range(looks):
            if path.name in os.listdir(path.parent):
                return
            threading.Event().wait(_LOOK_EVERY_S)
        self._lags = False


def _raised(file: Any) -> Exception:
    size = int.from_bytes(file.read(_HEADER), "little")
    text = file.read(size).decode("utf-8", "replace")
    content = file.read()
    try:
        error = pickle.loads(content) if content else None
    except Exception:  # noqa: BLE001 - its class may not be there
        error = None
    if not isinstance(error, Exception):
        return FunctionFailed(text)
    error.__cause__ = RemoteTraceback(text)
    return error


def _pickled(value: object, field: str) -> bytes:
    with suppress(ImportError):  # the extra; without it, only functions of modules travel
        import_module("cloudpickle")
    try:
        made = dumps(value)
    except Exception as error:
        raise InvalidRequest(
            f"{field}: cannot be pickled: {error}", field=field,
            hint="pip install 'dlq[functions]' for functions of notebooks, and lambdas",
        ) from error  # fmt: skip
    if len(made) > LARGEST_CALL_BYTES:
        raise InvalidRequest(
            f"{field}: {len(made)} bytes, {LARGEST_CALL_BYTES} at most", field=field,
            hint="pass the name of a file",
        )  # fmt: skip
    return made


def _make_own(place: Path) -> None:
    """A directory for its owner alone, below another one of the same owner."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    above = os.stat(place.parent)
    if above.st_uid != os.geteuid() or stat.S_IMODE(above.st_mode) & 0o022:
        raise InvalidRequest(
            f"directory: others may write to {place.parent}", field="directory",
            hint=f"chmod go-w {place.parent}, or name a directory of yours",
        )  # fmt: skip
    place.mkdir(mode=0o700)
