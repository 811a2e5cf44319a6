"""Output as JSON lines: characters are whole, also for a reader who comes back between two."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dlq.v1 import job_service_pb2 as wire
from dlq_web.api.streams import _as_line

TEXT = "naïve 漢字\n".encode()


def lines(pieces: Sequence[bytes], offset: int = 0) -> list[dict[str, Any]]:
    form, told = _as_line(), []
    for number, data in enumerate(pieces, 1):
        piece = wire.ReadLogsResponse(offset=offset, data=data, end=number == len(pieces))
        told.append(json.loads(form(piece)))
        offset += len(data)
    return told


def test_a_character_in_two_pieces_is_one() -> None:
    for cut in range(len(TEXT) + 1):
        told = lines((TEXT[:cut], TEXT[cut:]))
        assert "".join(one["text"] for one in told).encode() == TEXT


def test_who_comes_back_between_two_pieces_reads_whole_characters() -> None:
    for cut in range(1, len(TEXT)):
        first = lines((TEXT[:cut], TEXT[cut:]))[0]
        rest = lines((TEXT[first["next_offset"] :],), first["next_offset"])[0]
        assert (first["text"] + rest["text"]).encode() == TEXT
