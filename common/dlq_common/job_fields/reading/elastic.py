"""How the sizes of an elastic job are read."""

from __future__ import annotations

from dlq_common.job_fields.reading.words import read_text
from dlq_common.live_resize import LIVE
from dlq_common.text.names import shown
from dlq_common.text.sizes import SizeRange, parse_range, parse_sizes

RESIZES = ("restart", LIVE)


def read_range(raw: object) -> SizeRange:
    """`2:8`."""
    if not isinstance(raw, str):
        raise ValueError(f'{shown(str(raw))} is not a range of GPUs: write "2:8", in quotes')
    return parse_range(raw)


def read_sizes(raw: object) -> tuple[int, ...]:
    """`2,4,8`, or a list."""
    return parse_sizes(raw if isinstance(raw, list) else str(raw).split(","))


def read_resize(raw: object) -> str:
    """`restart` or `live`."""
    word = read_text(raw).strip().lower()
    if word not in RESIZES:
        raise ValueError(f"{shown(word)} is not one of {', '.join(RESIZES)}")
    return word
