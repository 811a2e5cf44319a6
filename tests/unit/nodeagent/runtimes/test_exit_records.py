"""An exit record that the disk has changed is no exit record: a wrong code would be believed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.port import ExitRecord, ExitWhy
from dlq_nodeagent.runtimes.process import records

KEY = RankKey("5", 1, 0)
RECORD = ExitRecord(key=KEY, epoch=7, why=ExitWhy.EXITED, code=1, signal=None, boot_id="b")


@pytest.fixture
def data(tmp_path: Path) -> bytes:
    at = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    records.write_exit(at, RECORD)
    os.close(at)
    return (tmp_path / "exit.json").read_bytes()


def test_a_record_is_read_as_it_was_written(data: bytes) -> None:
    assert records.parse_exit(data, KEY, 7) == RECORD


def test_no_turned_bit_is_believed(data: bytes) -> None:
    for at in range(len(data)):
        for bit in range(8):
            other = bytearray(data)
            other[at] ^= 1 << bit
            try:
                found = records.parse_exit(bytes(other), KEY, 7)
            except ValueError:
                continue
            assert found == RECORD, (at, bit)


def test_a_record_of_a_shim_of_before_has_no_sum_and_is_read(data: bytes) -> None:
    said = json.loads(data)
    del said["crc"]
    old = json.dumps(said, separators=(",", ":")).encode() + b"\n"
    assert records.parse_exit(old, KEY, 7) == RECORD
