"""A profile and its consequences, as plain values: the output of `dlq profile show`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlq_common.slowdown import PACKLIMIT
from dlq_profiler.prediction import LINKS, predict, skew_word
from dlq_profiler.results import JobProfile

_LARGEST_RESULT = 16 << 20  # bytes


def analyse(
    paths: Sequence[Path], *, world_size: int | None = None
) -> tuple[JobProfile, tuple[str, ...]]:
    """The job that recorded into these directories (one for each host), or one stored result.

    And a line for each file that was no use. Raises OSError, and ValueError for a file that is no
    result.
    """
    if len(paths) == 1 and not paths[0].is_dir():
        return stored(paths[0]), ()
    # Only this needs numpy.
    from dlq_profiler.directory import profile_directories

    profile, refused = profile_directories(paths, world_size=world_size)
    return profile, tuple(str(error) for error in refused)


def stored(path: Path) -> JobProfile:
    """A result that was written as JSON. Raises OSError, and ValueError for anything else."""
    with path.open("rb") as file:
        raw = file.read(_LARGEST_RESULT + 1)
    try:
        return parsed(raw)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is neither a directory of recordings nor a result: {error}"
        ) from None


def parsed(raw: bytes) -> JobProfile:
    """A result from its JSON. Raises KeyError, TypeError or ValueError for anything else."""
    if len(raw) > _LARGEST_RESULT:
        raise ValueError("it is too large")
    return JobProfile.of(json.loads(raw))


def facts(profile: JobProfile, links: Mapping[str, float] = LINKS) -> dict[str, Any]:
    """The profile, and for each link (bytes/s) rho and the slowdown that it foretells."""
    predicted = predict(profile, links) or {}
    return {
        **profile.facts(),
        "skew_word": skew_word(profile.skew),
        "packlimit": PACKLIMIT,
        "links": {
            name: {
                "bytes_per_s": links[name],
                "rho": found.rho,
                "slowdown": found.slowdown,
                "slowdown_low": found.bounds.low,
                "slowdown_high": found.bounds.high,
            }
            for name, found in predicted.items()
        },
    }
