"""The answers of a twin: JSON, of which every number is checked. One that says nonsense is believed
nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dlq_master.model.ids import JobId
from dlq_master.planner.forecasts import Compared, Forecast, Range, StartEstimate


def forecast_words(forecast: Forecast) -> dict[str, Any]:
    """As JSON knows it: None for what is later than was looked ahead."""
    return {
        "at_s": forecast.at_s,
        "starts": [[job_id, *_words(range_)] for job_id, range_ in forecast.starts.items()],
        "complete_to_s": _word(forecast.complete_to_s),
        "worlds": forecast.worlds,
        "cpu_s": forecast.cpu_s,
        "ends": [[job_id, *_words(range_)] for job_id, range_ in forecast.ends.items()],
    }


def estimate_words(estimate: StartEstimate) -> dict[str, Any]:
    """Likewise."""
    start, end = estimate.start, estimate.end
    return {
        "at_s": estimate.at_s,
        "start": None if start is None else _words(start),
        "end": None if end is None else _words(end),
        "basis": estimate.basis,
        "judged": estimate.judged,
        "promised": estimate.promised,
    }


def answer(number: int, content: Mapping[str, Any]) -> bytes:
    return json.dumps({"number": number, **content}, allow_nan=False).encode()


class Nonsense(ValueError):
    """An answer that no twin of ours gives."""


def read_answer(data: bytes) -> tuple[int, Mapping[str, Any]]:
    """The number of its question, and the rest. Raises Nonsense."""
    try:
        content = json.loads(data)
        number = content.pop("number")
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise Nonsense(f"{type(error).__name__}: {error}"[:200]) from None
    if not isinstance(number, int):
        raise Nonsense("its number is none")
    return number, content


def read_forecast(content: Mapping[str, Any]) -> Forecast:
    """Raises Nonsense."""
    try:
        return Forecast(
            at_s=_finite(content["at_s"]),
            starts=_ranges(content["starts"]),
            complete_to_s=_late(content["complete_to_s"]),
            worlds=_whole(content["worlds"]),
            cpu_s=_finite(content["cpu_s"]),
            ends=_ranges(content["ends"]),
        )
    except (KeyError, TypeError, IndexError) as error:
        raise Nonsense(f"{type(error).__name__}: {error}"[:200]) from None


def read_estimate(content: Mapping[str, Any]) -> StartEstimate:
    """Raises Nonsense."""
    try:
        start, end, basis = content["start"], content["end"], content["basis"]
        if not isinstance(basis, str) or len(basis) > 32:
            raise Nonsense("its basis is no word")
        return StartEstimate(
            at_s=_finite(content["at_s"]),
            start=None if start is None else _range(start),
            end=None if end is None else _range(end),
            basis=basis,
            judged=content["judged"] is True,
            promised=None if content["promised"] is None else _whole(content["promised"]),
        )
    except (KeyError, TypeError) as error:
        raise Nonsense(f"{type(error).__name__}: {error}"[:200]) from None


def read_compared(content: Mapping[str, Any]) -> Compared:
    """Raises Nonsense."""
    try:
        return Compared(read_forecast(content["now"]), read_forecast(content["then"]))
    except (KeyError, TypeError) as error:
        raise Nonsense(f"{type(error).__name__}: {error}"[:200]) from None


def _words(range_: Range) -> list[float | None]:
    return [_word(at_s) for at_s in range_]


def _word(at_s: float) -> float | None:
    return None if math.isinf(at_s) else round(at_s, 3)


def _range(row: Sequence[Any]) -> Range:
    low_s, likely_s, high_s = (_late(value) for value in row) if len(row) == 3 else (0, 0, -1)
    if not low_s <= likely_s <= high_s:
        raise Nonsense(f"{str(row)[:100]} is no range")
    return Range(low_s, likely_s, high_s)


def _ranges(rows: Sequence[Any]) -> dict[JobId, Range]:
    return {JobId(_whole(row[0])): _range(row[1:]) for row in rows}


def _late(value: object) -> float:
    return math.inf if value is None else _finite(value)


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Nonsense(f"{str(value)[:100]} is no number")
    return float(value)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Nonsense(f"{str(value)[:100]} is no count")
    return value
