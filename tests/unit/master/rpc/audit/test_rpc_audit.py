"""The audit file: complete, chained, and readable after any end."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dlq_common.identity.pki import CertifiedIdentity, Role
from dlq_master.rpc.audit.audit import Audit
from dlq_master.rpc.audit.chain import Chain, segments
from dlq_master.rpc.audit.file import DiskFile
from dlq_master.rpc.audit.verify import Broken, _read, verify_all
from support.fake_clock import FakeClock

ALICE = CertifiedIdentity("alice", Role.USER, "lab", "a1", 1.0)


def verify(path: Path) -> list[int]:
    """Numbers (from 1) of the lines of one file that do not follow from the line before them."""
    return [number for number, follows, _, _ in _read(path, None) if not follows]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path, FakeClock())
    for number in range(5):
        audit.record(ALICE, "/dlq.v1.JobService/CancelJob", str(number), "OK", "ipv4:1.2.3.4:5")
    audit.close()
    return path


def test_every_line_says_who_did_what_to_what(written: Path) -> None:
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    assert [line["object"] for line in lines] == ["0", "1", "2", "3", "4"]
    assert {(line["who"], line["role"], line["certificate"]) for line in lines} == {
        ("alice", "user", "a1")
    }


def test_an_untouched_file_verifies_and_is_private(written: Path) -> None:
    assert verify(written) == []
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


def _change(lines: list[str]) -> None:
    lines[2] = lines[2].replace('"alice"', '"mallory"')


def _take_out(lines: list[str]) -> None:
    del lines[2]


def _put_in(lines: list[str]) -> None:
    lines.insert(2, lines[0])


def _swap(lines: list[str]) -> None:
    lines[1], lines[2] = lines[2], lines[1]


@pytest.mark.parametrize("tamper", [_change, _take_out, _put_in, _swap])
def test_a_line_that_was_tampered_with_is_found(
    written: Path, tamper: Callable[[list[str]], None]
) -> None:
    lines = written.read_text().splitlines()
    tamper(lines)
    written.write_text("\n".join(lines) + "\n")
    assert verify(written) != []


def test_the_chain_goes_on_after_a_restart(written: Path) -> None:
    audit = Audit(written, FakeClock())
    audit.record(None, "login", "uid 7", "PERMISSION_DENIED")
    audit.close()
    assert len(written.read_text().splitlines()) == 6
    assert verify(written) == []


def test_after_a_torn_line_new_lines_are_whole(written: Path) -> None:
    whole = written.read_bytes()
    written.write_bytes(whole[:-40])
    audit = Audit(written, FakeClock())
    audit.record(ALICE, "login", "", "OK")
    audit.close()
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    assert lines[-1]["method"] == "login"
    assert (lines[-2]["decision"], lines[-2]["torn_bytes"]) == ("HEALED", len(whole) // 5 - 40)
    assert verify(written) == [], "the healing line follows from the last whole one"


def test_a_name_cannot_forge_a_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path, FakeClock())
    audit.record(None, "login", 'x"}\n{"who":"admin', "OK")
    audit.close()
    assert len(path.read_text().splitlines()) == 1


# --- segments
#   ---------------------------------------------------------------------------------------


def _write_lines(path: Path, first: int, last: int, segment_bytes: int = 400) -> None:
    """About three lines in each file."""
    chain = Chain(path, segment_bytes)
    for number in range(first, last + 1):
        chain.append({"object": str(number)})
    chain.close()


def _objects(path: Path) -> list[str]:
    lines = [json.loads(text) for file in segments(path) for text in file.read_text().splitlines()]
    return [line["object"] for line in lines if "object" in line]


def test_a_long_audit_is_many_files_and_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    _write_lines(path, 1, 10)
    _write_lines(path, 11, 20)

    files = segments(path)
    assert [file.name for file in files[:2]] == ["audit.000001.jsonl", "audit.000002.jsonl"]
    assert len(files) >= 5
    assert _objects(path) == [str(number) for number in range(1, 21)]
    assert all(verify(file) == [] for file in files)
    verdict = verify_all(path)
    assert (verdict.lines, verdict.missing, verdict.broken) == (20 + len(files) - 1, 0, ())
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_what_is_left_is_verified_from_its_anchor_when_old_files_are_taken_away(
    tmp_path: Path,
) -> None:
    path = tmp_path / "audit.jsonl"
    _write_lines(path, 1, 20)
    gone = segments(path)[:2]
    lines = sum(len(file.read_text().splitlines()) for file in gone)
    for file in gone:
        file.unlink()
    assert verify_all(path).missing == lines
    assert verify_all(path).broken == ()


def test_numbers_of_files_are_not_given_again_when_all_old_ones_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    _write_lines(path, 1, 8)
    highest = segments(path)[-2].name
    for file in segments(path)[:-1]:
        file.unlink()
    _write_lines(path, 9, 20)
    assert segments(path)[0].name > highest
    assert verify_all(path).broken == ()


def test_a_file_that_is_taken_out_of_the_middle_is_found(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    _write_lines(path, 1, 20)
    files = segments(path)
    files[1].unlink()
    assert verify_all(path).broken == (
        Broken(files[2].name, 1, "does not follow from the last line of the file before it"),
    )


def test_a_changed_line_in_an_old_file_is_found_by_its_file_and_number(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    _write_lines(path, 1, 20)
    file = segments(path)[1]
    lines = file.read_text().splitlines(keepends=True)
    lines[1] = lines[1].replace('"object":"', '"object":"another ')
    file.write_text("".join(lines))
    (broken,) = verify_all(path).broken
    assert (broken.file, broken.line) == (file.name, 3)


def test_a_crash_between_two_files_breaks_no_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    _write_lines(path, 1, 4)
    newest = segments(path)[-1]
    newest.rename(path.with_name("audit.000099.jsonl"))  # and died before the next one was made
    _write_lines(path, 5, 6)
    assert verify_all(path).broken == ()
    assert _objects(path) == ["1", "2", "3", "4", "5", "6"]


def test_a_file_that_cannot_be_made_is_made_with_a_later_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    full: list[str] = []

    def open_file(path: Path) -> DiskFile:
        if full:
            raise OSError("no space")
        return DiskFile(path)

    chain = Chain(path, 50, open_file)
    chain.append({"object": "1"})
    full.append("the disk")
    for _ in range(2):
        with pytest.raises(OSError, match="no space"):
            chain.append({"object": "put in anew by who owns the chain"})
    full.clear()
    chain.append({"object": "2"})
    chain.close()
    assert _objects(path) == ["1", "2"]
    assert verify_all(path).broken == ()
