"""How each kind of value is read, from text (flags, YAML) or a TOML value; ValueError says why
not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from dlq_common.text.names import (
    check_job_name,
    check_relative_path,
    check_word,
    shown,
)
from dlq_common.text.output_patterns import check_output_pattern
from dlq_common.text.signals import signal_name
from dlq_common.text.suggest import did_you_mean
from dlq_common.text.units import parse_duration, parse_size, parse_span, parse_time_limit

MOST_GPUS = 1_000_000
MOST_GPU_TYPES = 16
MOST_CORES = 1_000_000
MOST_NODES = 100_000
MOST_RESTARTS = 1_000_000
SIGNALS = ("TERM", "USR1", "USR2", "INT")
SAVE_SIGNALS = ("USR1", "USR2", "INT")
MOST_NICE = 100
MOST_UMASK = 0o777
USUAL_UMASK = 0o022
AUTO = "auto"
COMPATS = ("slurm", "none")
PER_GPU = "per-gpu"
SIGNALS_TO = ("main", "ranks", "script")
EXIT_ZERO_WORDS = ("completed", "requeued")
TIME_LIMIT_SCOPES = (JOB_SCOPE, ATTEMPT_SCOPE) = ("job", "attempt")
OPEN_MODES = ("append", "truncate")
STDINS = (PIPE, TERMINAL) = ("pipe", "terminal")
LAUNCHES = ("per-node", PER_GPU)
MOST_ROLES = 10_000
PRESETS = ("sigterm", "torchrun", "hf", "lightning", "submitit")
MOST_TASKS_OF_A_NODE = 1024
MOST_TASKS = 1_000_000

RESTART_CAUSES = ("error", "memory", "node", "gpu", "preemption", "start")

_MODE = re.compile(r"[0-7]{1,4}", re.ASCII)
_INTEGER = re.compile(r"[0-9]{1,9}", re.ASCII)
_GPUS = re.compile(r"(?:([A-Za-z][A-Za-z0-9_-]{0,62}):)?([0-9]{1,9})", re.ASCII)
_SIGNAL = re.compile(r"(?:B:)?(?:SIG)?([A-Z0-9]+)(?:@([0-9]{1,6}))?", re.ASCII)
_TRUE, _FALSE = frozenset({"true", "yes", "on"}), frozenset({"false", "no", "off"})


class Gpus(NamedTuple):
    """A number of GPUs, perhaps of one type."""

    number: int
    gpu_type: str  # empty: any


class RestartsAllowed(NamedTuple):
    """The most restarts: after all failures of the program, and after single causes."""

    own: int | None = None
    by_cause: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        causes = (f"{cause}={most}" for cause, most in self.by_cause)
        return ", ".join((str(self.own or 0), *causes))

    def with_also(self, other: RestartsAllowed) -> RestartsAllowed:
        """Both, where a cause that is said twice has the number of `other`."""
        own = self.own if other.own is None else other.own
        return RestartsAllowed(
            own, tuple(sorted({**dict(self.by_cause), **dict(other.by_cause)}.items()))
        )


class SignalAhead(NamedTuple):
    """A signal, and how many seconds before the end it is wanted (0: as the grace says)."""

    name: str
    ahead_s: int


def read_text(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError(f"{shown(str(raw))} is not text: put it in quotes")
    return raw


def word(what: str) -> Callable[[object], str]:
    """A reader of a name without spaces; its error names it `what`."""
    return lambda raw: check_word(read_text(raw), what)


def one_of(known: tuple[str, ...]) -> Callable[[object], str]:
    """A reader of one of a few words, in small letters."""

    def read(raw: object) -> str:
        word = read_text(raw).strip().lower()
        if word not in known:
            told = f"{', '.join(known)}{did_you_mean(word, known)}"
            raise ValueError(f"{shown(word)} is not one of {told}")
        return word

    return read


def at_least_one(what: str, most: int) -> Callable[[object], int]:
    """A reader of a whole number from 1 to `most`."""

    def read(raw: object) -> int:
        number = read_integer(raw, most)
        if number < 1:
            raise ValueError(f"a job needs at least one {what}")
        return number

    return read


def up_to(most: int) -> Callable[[object], int]:
    """A reader of a whole number from 0 to `most`."""
    return lambda raw: read_integer(raw, most)


def read_name(raw: object) -> str:
    return check_job_name(_one_word(raw))


def read_compat(raw: object) -> str:
    """`slurm`, or `none` (empty)."""
    return one_of(COMPATS)(raw).removesuffix("none")


def read_integer(raw: object, most: int) -> int:
    """A whole number from 0 to `most`."""
    text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw
    if not isinstance(text, str) or not _INTEGER.fullmatch(text.strip()):
        raise ValueError(f"{shown(str(raw))} is not a whole number")
    number = int(text)
    if number > most:
        raise ValueError(f"{number} is too large: {most} at most")
    return number


def read_umask(raw: object) -> int:
    """Octal digits, as text: `027`."""
    text = read_text(raw).strip()
    if not _MODE.fullmatch(text) or int(text, 8) > MOST_UMASK:
        raise ValueError(f"{shown(text)} is not a umask: write octal digits such as 027")
    return int(text, 8)


def read_nodes(raw: object) -> int:
    """A number of nodes; a range is that of an elastic job."""
    if isinstance(raw, str) and re.fullmatch(r"\s*\d+\s*-\s*\d+\s*", raw):
        raise ValueError(
            f"{raw!r}: write the fewest nodes, and the range of GPUs as --elastic 8:32"
        )
    return at_least_one("node", MOST_NODES)(raw)


def read_gpus(raw: object) -> Gpus:
    """`8`, or `h100:8` for a type; `0` for a job without GPUs."""
    text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw
    found = _GPUS.fullmatch(text.strip()) if isinstance(text, str) else None
    if not found:
        raise ValueError(f"{shown(str(raw))} is not a number of GPUs: write 8 or h100:8")
    count, gpu_type = read_integer(found[2], MOST_GPUS), (found[1] or "").lower()
    if not count and gpu_type:
        raise ValueError(f"no GPU at all is of no type: write 0, not {shown(str(raw))}")
    return Gpus(count, gpu_type)


def read_gpu_types(raw: object) -> tuple[str, ...]:
    """GPU types as `dlq nodes` shows them, the one that is liked best first: `h100,a100`, or a list
    of those.
    """
    words = raw if isinstance(raw, list | tuple) else re.split(r"[,|]", read_text(raw))
    types = tuple([check_word(read_text(word).strip().lower(), "GPU type") for word in words])
    if not types:
        raise ValueError("no GPU type is named")
    if len(types) > MOST_GPU_TYPES:
        raise ValueError(f"{len(types)} GPU types are too many: {MOST_GPU_TYPES} at most")
    if twice := next((word for word in types if types.count(word) > 1), ""):
        raise ValueError(f"GPU type {twice} is named twice")
    return types


def read_cores(raw: object) -> int:
    """Whole cores."""
    return at_least_one("core", MOST_CORES)(raw)


def read_cpus(raw: object) -> float:
    """Cores, perhaps a fraction."""
    try:
        cores = float(str(raw))
    except ValueError:
        raise ValueError(f"{shown(str(raw))} is not a number of cores") from None
    if isinstance(raw, bool) or not math.isfinite(cores) or not 0 < cores <= 1e6:
        raise ValueError(f"{shown(str(raw))} is not a number of cores")
    return cores


def read_memory(raw: object) -> int:
    """Bytes of a size with a unit."""
    size = parse_size(worded(raw))
    if size == 0:
        raise ValueError("a limit of 0 would let nothing run")
    return size


def read_time_limit(raw: object) -> int | None:
    """Seconds, None for no limit; a bare number is minutes, as in Slurm."""
    return parse_time_limit(worded(raw))


def read_duration(raw: object) -> int:
    """Seconds, more than none; a bare number is minutes, as in Slurm."""
    seconds = parse_duration(worded(raw))
    if seconds == 0:
        raise ValueError("a duration of 0 is not allowed here")
    return seconds


def read_settle(raw: object) -> float:
    """Seconds of a duration with a unit."""
    return parse_span(worded(raw))


def read_grace(raw: object) -> int | str:
    """Seconds, or `auto` for learned from observed saves."""
    text = worded(raw)
    return AUTO if text.strip().lower() == AUTO else read_duration(text)


def read_signal(raw: object) -> SignalAhead:
    """`USR1`, or `USR1@300` for at least 300 seconds ahead; always sent to the main process."""
    found = _SIGNAL.fullmatch(read_text(raw).strip().upper())
    name = _name_of(found[1]) if found else ""
    if not found or name not in SIGNALS:
        raise ValueError(
            f"{shown(str(raw))} is not a signal to save on: write {', '.join(SIGNALS)}, "
            "perhaps with @SECONDS"
        )
    return SignalAhead(name, int(found[2] or 0))


def _name_of(signal: str) -> str:
    """The name of a signal, also of a number; unchanged if it is none."""
    try:
        return signal_name(signal)
    except ValueError:
        return signal


def read_save_signal(raw: object) -> str:
    """`USR1`, on which a script saves and goes on."""
    name = _name_of(read_text(raw).strip().upper())
    if name not in SAVE_SIGNALS:
        raise ValueError(f"{shown(str(raw))} is not one of {', '.join(SAVE_SIGNALS)}")
    return name


def read_nice(raw: object) -> int:
    """A whole number from -100 to 100."""
    text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw
    sign, digits = (-1, text[1:]) if isinstance(text, str) and text[:1] == "-" else (1, text)
    return sign * read_integer(digits, MOST_NICE)


def read_exit_codes(raw: object) -> tuple[int, ...]:
    """`99,85` or a list; 0 and the codes of signals are not codes of a save."""
    parts = raw if isinstance(raw, list) else str(raw).split(",")
    codes = tuple(dict.fromkeys(read_integer(_stripped(part), 255) for part in parts))
    if 0 in codes:
        raise ValueError("exit code 0 means finished; it cannot ask for a restart")
    return codes


def read_restarts(raw: object) -> RestartsAllowed:
    """`3`, `node=5`, or several of them: `3,node=5`, a list, or a table of causes."""
    if isinstance(raw, Mapping):
        raw = [f"{cause}={most}" for cause, most in raw.items()]
    parts = raw if isinstance(raw, list) else worded(raw).split(",")
    own: int | None = None
    by_cause: dict[str, int] = {}
    for part in parts:
        cause, equals, most = worded(part).partition("=")
        if equals:
            by_cause[one_of(RESTART_CAUSES)(cause)] = _most_restarts(most, cause.strip())
        else:
            own = read_integer(cause, MOST_RESTARTS)
    return RestartsAllowed(own, tuple(sorted(by_cause.items())))


def _most_restarts(text: str, cause: str) -> int:
    try:
        return read_integer(text, MOST_RESTARTS)
    except ValueError as error:
        raise ValueError(f"{cause}: {error}") from None


def read_bool(raw: object) -> bool:
    """true or false."""
    if isinstance(raw, bool):
        return raw
    word = raw.strip().lower() if isinstance(raw, str) else ""
    if word not in _TRUE | _FALSE:
        raise ValueError(f"{shown(str(raw))} is neither true nor false")
    return word in _TRUE


def read_path(raw: object) -> str:
    """A path as written; whether it is allowed is decided when all is known."""
    return _one_word(raw)


def read_output_pattern(raw: object) -> str:
    """Slurm's pattern of a file name."""
    return check_output_pattern(_one_word(raw), "the output file")


def read_marker(raw: object) -> str:
    """A glob below the checkpoint directory."""
    return check_relative_path(_one_word(raw), "checkpoint marker")


def _one_word(raw: object) -> str:
    text = worded(raw)
    if not text:
        raise ValueError("it is empty")
    return text


def worded(raw: object) -> str:
    """Text, or a number as its text."""
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise ValueError(f"{shown(str(raw))} is not text")
    return str(raw)


def _stripped(part: object) -> object:
    return part.strip() if isinstance(part, str) else part
