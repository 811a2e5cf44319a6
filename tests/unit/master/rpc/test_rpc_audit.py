"""The audit file: complete, chained, and readable after any end."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dlq_common.clock import FakeClock
from dlq_common.pki import Identity, Role
from dlq_master.rpc.audit import Audit, verify

ALICE = Identity("alice", Role.USER, "lab", "a1", 0.0, 1.0)


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
    last = json.loads(written.read_text().splitlines()[-1])
    assert last["method"] == "login"
    assert verify(written) == [5], "the torn line, and only it"


def test_a_name_cannot_forge_a_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path, FakeClock())
    audit.record(None, "login", 'x"}\n{"who":"admin', "OK")
    audit.close()
    assert len(path.read_text().splitlines()) == 1
