"""Durations and sizes as people write them, and the one way in which dlq prints them."""

from __future__ import annotations

import re
from functools import lru_cache

SECOND, MINUTE, HOUR, DAY, WEEK = 1, 60, 3600, 86400, 604800
# A century: beyond it a duration is a typing error, and sums of instants stay far from overflow.
LONGEST_DURATION_S = 100 * 366 * DAY

_SPAN_UNITS = {"ms": 0.001, "s": SECOND, "m": MINUTE, "min": MINUTE, "h": HOUR, "d": DAY, "w": WEEK}
_SPAN_PART = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(ms|min|[smhdw])", re.ASCII)
_SPAN = re.compile(rf"(?:{_SPAN_PART.pattern})+", re.ASCII)
_COLONS = re.compile(r"(?:(\d{1,9})-)?(\d{1,15})(?::(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)
_UNLIMITED_WORDS = frozenset({"0", "unlimited", "infinite"})

_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,6})?)\s*([A-Za-z]*)", re.ASCII)
_SIZE_STEPS = "KMGTPE"
_BINARY_UNITS = tuple(
    (f"{letter}iB", 1 << (10 * power)) for power, letter in enumerate(_SIZE_STEPS, start=1)
)
_SIZE_UNITS = (
    {"B": 1}
    | {f"{letter}B": 1000**power for power, letter in enumerate(_SIZE_STEPS, start=1)}
    | {name.upper(): size for name, size in _BINARY_UNITS}
    # Slurm's users type a lone letter, and there `G` has always been 2^30.
    | {name[0]: size for name, size in _BINARY_UNITS}
)
LARGEST_SIZE_BYTES = 2**63 - 1


def parse_span(text: str) -> float:
    """Seconds of a duration with units: `30s`, `250ms`, `1h30m`, `2d`. ValueError otherwise."""
    compact = text.strip()
    if not _SPAN.fullmatch(compact):
        raise ValueError(f"{text!r} is not a duration: write 30s, 90m, 1h30m or 2d")
    total = sum(float(number) * _SPAN_UNITS[unit] for number, unit in _SPAN_PART.findall(compact))
    return _within_a_century(total, text)


def parse_duration(text: str) -> int:
    """Seconds of a duration in Slurm's forms or with units; fractions are rounded.

    A bare number is minutes, as in Slurm; then `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`, or any
    form of `parse_span`. Programs write `0:300`, so no part has an upper end. ValueError names the
    forms.
    """
    compact = text.strip()
    if _SPAN.fullmatch(compact):
        return round(parse_span(compact))
    found = _COLONS.fullmatch(compact)
    if not found:
        raise ValueError(
            f"{text!r} is not a duration: write minutes (90), H:M:S, D-H:M:S, or 90m, 1h30m, 2d"
        )
    days, *rest = found.groups()
    numbers = [int(part) for part in rest if part is not None]
    seconds = _from_days(int(days), numbers) if days is not None else _from_minutes(numbers)
    return int(_within_a_century(seconds, text))


def whole_minutes(text: str) -> str:
    """The same duration in whole minutes, as Slurm rounds limits up: a job must not end before the
    limit that its commands show. Any other text stays as it is.
    """
    try:
        seconds = parse_duration(text)
    except ValueError:
        return text
    return text if seconds % MINUTE == 0 else str(-(-seconds // MINUTE))


def parse_time_limit(text: str) -> int | None:
    """A time limit in seconds, None without one (`0`, `unlimited`); otherwise `parse_duration`."""
    return None if text.strip().lower() in _UNLIMITED_WORDS else (parse_duration(text) or None)


def format_duration(seconds: float) -> str:
    """`D-HH:MM:SS`, or `HH:MM:SS` below a day, as Slurm prints it; fractions are cut off.

    `parse_duration` reads it back. Negative durations print as zero.
    """
    return _clock(max(0, int(seconds)))


@lru_cache(4_096)  # of thousands of jobs many have run equally long
def _clock(whole: int) -> str:
    days, rest = divmod(whole, DAY)
    clock = f"{rest // HOUR:02d}:{rest % HOUR // MINUTE:02d}:{rest % MINUTE:02d}"
    return f"{days}-{clock}" if days else clock


def format_span(seconds: float) -> str:
    """A duration with units, nothing lost down to the millisecond: `1h30m`, `2d`, `1.5s`, `0s`."""
    if seconds < 0:
        raise ValueError(f"a duration cannot be negative: {seconds}")
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    parts: list[str] = []
    for unit, size in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND)):
        count, whole = divmod(whole, size)
        parts += [f"{count}{unit}"] if count else []
    parts += [f"{milliseconds}ms"] if milliseconds else []
    return "".join(parts) or "0s"


def approximate_span(seconds: float) -> str:
    """A duration for sentences, in its two largest units: `3 s`, `12 min 5 s`, `3 h 12 min`, `2 d 4
    h`.
    """
    whole = max(0, int(seconds))
    units = (("d", DAY), ("h", HOUR), ("min", MINUTE), ("s", SECOND))
    first = next((i for i, (_, size) in enumerate(units) if whole >= size), len(units) - 1)
    parts: list[str] = []
    for unit, size in units[first : first + 2]:
        count, whole = divmod(whole, size)
        parts += [f"{count} {unit}"] if count or not parts else []
    return " ".join(parts)


def parse_size(text: str) -> int:
    """Bytes of a size: `80GB` = 80*10^9, `80GiB` and Slurm's `80G` = 80*2^30.

    The unit is required (a bare number would be bytes to some and megabytes to Slurm) and its case
    does not matter. ValueError otherwise.
    """
    from decimal import Decimal

    found = _SIZE.fullmatch(text.strip())
    unit = _SIZE_UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None:
        raise ValueError(f"{text!r} is not a size: write 80GB (10^9) or 80GiB (2^30)")
    size = int(Decimal(found[1]) * unit)
    if size > LARGEST_SIZE_BYTES:
        raise ValueError(f"{text!r} is larger than any machine")
    return size


def format_size(size_bytes: int) -> str:
    """Bytes in the largest binary unit that is exact to a tenth, `B` if none: reads back equal.

    1.5GiB, 80GiB, 1000B. Use `approximate_size` where room matters more than exactness.
    """
    for name, unit in reversed(_BINARY_UNITS):
        tenths, rest = divmod(size_bytes * 10, unit)
        if size_bytes >= unit and not rest:
            return f"{_tenths(tenths)}{name}"
    return f"{size_bytes}B"


def approximate_size(size_bytes: int) -> str:
    """Bytes rounded to a tenth of the largest binary unit: `79.6GiB`; for tables."""
    for name, unit in reversed(_BINARY_UNITS):
        if size_bytes >= unit:
            return f"{_tenths((size_bytes * 10 + unit // 2) // unit)}{name}"
    return f"{size_bytes}B"


def _from_days(days: int, numbers: list[int]) -> int:
    """D-H, D-H:M, D-H:M:S."""
    hours, minutes, seconds = (*numbers, 0, 0)[:3]
    return days * DAY + hours * HOUR + minutes * MINUTE + seconds


def _from_minutes(numbers: list[int]) -> int:
    """M, M:S, H:M:S."""
    hours, minutes, seconds = {1: (0, *numbers, 0), 2: (0, *numbers), 3: (*numbers,)}[len(numbers)]
    return hours * HOUR + minutes * MINUTE + seconds


def _within_a_century(seconds: float, text: str) -> float:
    if seconds > LONGEST_DURATION_S:
        raise ValueError(f"{text!r} is longer than a century")
    return seconds


def _tenths(tenths: int) -> str:
    whole, tenth = divmod(tenths, 10)
    return f"{whole}.{tenth}" if tenth else str(whole)
