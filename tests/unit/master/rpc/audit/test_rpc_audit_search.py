"""A search of the audit finds what a look at each line finds, page by page, also while it grows."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dlq_common.errors import InvalidRequest
from dlq_common.text.instants import format_instant
from dlq_master.rpc.audit import search as module
from dlq_master.rpc.audit.chain import ANCHOR, Chain, segments
from dlq_master.rpc.audit.search import AuditFound, AuditWanted, looked

PEOPLE, DECISIONS = ("alice", "bob", "gpu01"), ("OK", "PERMISSION_DENIED", "HIDDEN")
METHODS = ("/dlq.v1.JobService/SubmitJob", "/dlq.v1.AdminService/SetUser")
OBJECTS = ("1", "12", "1,12,13", "Zoë", 'a"b')


def a_line(draw: Random, number: int) -> dict[str, str]:
    return {
        "time": format_instant(1.7e9 + number // 3),
        "who": draw.choice(PEOPLE),
        "by": draw.choice(("", "portal")),
        "method": draw.choice(METHODS),
        "object": draw.choice(OBJECTS),
        "decision": draw.choice(DECISIONS),
        "more": "x" * draw.randint(0, 300),
    }


def written(path: Path, count: int, segment_bytes: int = 8_000) -> list[dict[str, Any]]:
    """A chain of several files; its lines."""
    draw, chain = Random(5), Chain(path, segment_bytes)
    lines = [a_line(draw, number) for number in range(count)]
    for line in lines:
        chain.append(line)
    chain.sync()
    chain.close()
    return lines


def search(path: Path, wanted: AuditWanted, place: str = "", most: int = 1_000) -> AuditFound:
    return next(filter(None, looked(path, wanted, place, most)))


def all_pages(path: Path, wanted: AuditWanted, most: int) -> list[str]:
    found, place = [], ""
    while True:
        page = search(path, wanted, place, most)
        assert len(page.lines) <= most
        found += [_told(line) for line in page.lines]
        if not (place := page.following):
            return found


def _told(line: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in line.items() if key != "before"})


WANTED = (
    AuditWanted(),
    AuditWanted(user="Alice"),
    AuditWanted(user="portal"),
    AuditWanted(method="submitjob"),
    AuditWanted(about="12"),
    AuditWanted(about="zoë"),
    AuditWanted(about='a"b', user="bob"),
    AuditWanted(decision="hidden", words=("gpu01", "setuser")),
    AuditWanted(words=("ë",)),
    AuditWanted(user="carol"),
    AuditWanted(from_time=format_instant(1.7e9 + 50), until_time=format_instant(1.7e9 + 60)),
    AuditWanted(from_time=format_instant(1.7e9 + 95.5), user="bob"),
    AuditWanted(until_time=format_instant(1.7e9)),
    AuditWanted(until_time=format_instant(1.7e9 + 20), words=("denied",)),
)


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize(("most", "bounds"), [(1_000, None), (7, None), (1_000, (700, 6_000))])
def test_all_pages_together_are_the_wanted_lines(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wanted: AuditWanted,
    most: int,
    bounds: tuple[int, int] | None,
) -> None:
    """Also where pieces are small and a page ends before it is full."""
    if bounds is not None:
        monkeypatch.setattr(module, "PIECE_BYTES", bounds[0])
        monkeypatch.setattr(module, "MOST_BYTES", bounds[1])
        monkeypatch.setattr(module, "LONGEST_LINE", 700)
    path = tmp_path / "audit.jsonl"
    lines = written(path, 300)
    assert len(segments(path)) > 5
    expected = [
        _told(line)
        for line in reversed(lines)
        if wanted.has(line)
        and line["time"] >= wanted.from_time
        and (not wanted.until_time or line["time"] < wanted.until_time)
    ]
    assert all_pages(path, wanted, most) == expected


def test_a_page_goes_on_where_it_ended_though_another_file_has_begun(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    lines = written(path, 30)
    first = search(path, AuditWanted(), most=3)
    chain = Chain(path, 1)  # the next line begins a new file
    chain.append({"time": format_instant(2e9), "who": "late"})
    chain.sync()
    chain.close()
    rest = search(path, AuditWanted(), first.following)
    assert [_told(line) for line in first.lines + rest.lines] == [
        _told(line) for line in reversed(lines)
    ]


def test_files_in_an_archive_end_the_search(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, 100)
    page = search(path, AuditWanted(), most=50)
    for old in segments(path)[:-1]:
        old.unlink()
    assert search(path, AuditWanted(), page.following) == AuditFound([], "", "")
    told = search(path, AuditWanted())
    assert told.lines
    assert told.back_to == told.lines[-1]["time"]
    assert not any(ANCHOR in line for line in told.lines)


def test_a_torn_line_a_damaged_one_and_no_file_are_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    assert search(path, AuditWanted()) == AuditFound([], "", "")
    lines = written(path, 3)
    with path.open("ab") as file:
        file.write(b"\x00garbage\n[1]\n" + b'{"time":"2026')
    assert len(search(path, AuditWanted()).lines) == len(lines)


@pytest.mark.parametrize("place", ["x", "1", "1-", "-1-2", "1-2-3", "9" * 9 + "-1", "\u0661-1"])
def test_a_place_that_nobody_gave_out_is_refused(tmp_path: Path, place: str) -> None:
    written(tmp_path / "audit.jsonl", 3)
    with pytest.raises(InvalidRequest, match="page token"):
        search(tmp_path / "audit.jsonl", AuditWanted(), place)


@pytest.mark.parametrize("place", ["1-0", "7-12", "1-999999999999", "99999999-5"])
def test_a_made_up_place_finds_lines_or_none(tmp_path: Path, place: str) -> None:
    written(tmp_path / "audit.jsonl", 3)
    search(tmp_path / "audit.jsonl", AuditWanted(), place)
