"""Record files: what is written is read; what is torn, cut or foreign is told."""

import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path
from random import Random
from shutil import which

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlq_profiler.records import layout
from dlq_profiler.records.layout import (
    CONN,
    HEADER,
    HEADER_BYTES,
    RECORD,
    THREAD,
    Op,
    RecordSource,
    Side,
)
from dlq_profiler.records.recording import RecordingError, peer_of, read_recording
from support.traffic import Tape, write_file

HEADERS = Path(__file__).resolve().parents[4] / "profiler" / "include"


def a_tape(calls: int = 200) -> Tape:
    tape = Tape(Random(1))
    conn = tape.connection("10.0.0.2", 5000, Side.CONNECTED)
    for number in range(calls):
        tape.call(Op.SEND, conn, 100 + number, address=number)
    return tape


def test_what_two_threads_wrote_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    tape = a_tape()
    path = write_file(
        tmp_path / "1-1.dlqprof", tape, threads=2, identity="RANK=1\nWORLD_SIZE=4\nbad\n"
    )
    found = read_recording(path)
    assert found.records["bytes"].tolist() == [100 + number for number in range(200)]
    assert (found.pid, found.comm, found.exe) == (100, "python", "/usr/bin/python")
    assert found.identity == {"RANK": "1", "WORLD_SIZE": "4"}
    assert (found.lost, found.whole_from_ns, found.source) == (0, 0, RecordSource.PRELOAD)
    assert [peer_of(conn) for conn in found.conns] == ["10.0.0.2:5000"]


def test_a_ring_that_wrapped_has_its_newest_records_and_tells_the_loss(tmp_path: Path) -> None:
    path = write_file(tmp_path / "1-1.dlqprof", a_tape(200), heads={0: 128}, lost_threads=5)
    found = read_recording(path)
    assert found.records["bytes"].tolist() == [100 + number for number in range(72, 200)]
    assert found.lost == 72 + 5
    assert found.whole_from_ns == found.records["ts_ns"][0]


def test_a_record_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    path = write_file(tmp_path / "1-1.dlqprof", a_tape(10))
    raw = bytearray(path.read_bytes())
    header = np.frombuffer(bytes(raw[:HEADER_BYTES]), HEADER)[0]
    third = int(header["chunk_offset"]) + 3 * RECORD.itemsize
    raw[third : third + 8] = (0).to_bytes(8, "little")
    path.write_bytes(raw)
    found = read_recording(path)
    assert found.records["bytes"].tolist() == [100, 101, 102, 104, 105, 106, 107, 108, 109]
    assert found.lost == 1


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"magic": b"ELF"}, "no record file"),
        ({"version": 2}, "version 2 of the format, this reads 1"),
        ({"source": 9}, "source 9 is not known"),
        ({"record_bytes": 48}, "contradicts itself"),
        ({"chunk_records": 0}, "contradicts itself"),
        ({"chunk_offset": 1 << 40}, "contradicts itself"),
        ({"conn_offset": 0}, "contradicts itself"),
        ({"thread_slots": 1 << 31}, "contradicts itself"),
        ({"file_bytes": 1 << 40}, "larger than any"),
        ({"file_bytes": 200_000_000}, "is cut short"),
    ],
)
def test_a_header_that_is_wrong_is_refused(
    wrong: dict[str, object], why: str, tmp_path: Path
) -> None:
    path = write_file(tmp_path / "1-1.dlqprof", a_tape())
    raw = bytearray(path.read_bytes())
    header = np.frombuffer(bytes(raw[:HEADER_BYTES]), HEADER).copy()
    for name, value in wrong.items():
        header[name] = value
    raw[:HEADER_BYTES] = header.tobytes()
    path.write_bytes(raw)
    with pytest.raises(RecordingError, match=why):
        read_recording(path)


def test_a_ring_outside_of_the_file_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path / "1-1.dlqprof", a_tape())
    raw = bytearray(path.read_bytes())
    raw[HEADER_BYTES + THREAD.itemsize : HEADER_BYTES + THREAD.itemsize + 2] = b"\xff\xff"
    path.write_bytes(raw)
    with pytest.raises(RecordingError, match="outside of the file"):
        read_recording(path)


def test_what_is_cut_short_is_no_file_or_not_there_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path / "1-1.dlqprof", a_tape())
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(RecordingError, match="cut short"):
        read_recording(path)
    os.truncate(path, 100)
    with pytest.raises(RecordingError, match="not ready yet"):
        read_recording(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RecordingError, match="not a file"):
        read_recording(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(RecordingError, match="symbolic links"):
        read_recording(tmp_path / "link")
    with pytest.raises(RecordingError, match="no such file"):
        read_recording(tmp_path / "nothing")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=st.lists(st.tuples(st.integers(0, 8191), st.integers(0, 255)), max_size=40))
def test_no_damage_does_worse_than_a_refusal(damage: list[tuple[int, int]], tmp_path: Path) -> None:
    path = write_file(tmp_path / "1-1.dlqprof", a_tape(), threads=2, chunks=8)
    raw = bytearray(path.read_bytes())
    for place, value in damage:
        raw[place] = value
    path.write_bytes(raw)
    with suppress(RecordingError):
        found = read_recording(path)
        assert np.all(np.diff(found.records["ts_ns"]) >= 0)
        assert np.all(found.records["conn"] <= len(found.conns))


@pytest.mark.skipif(which("cc") is None, reason="needs a C compiler")
@pytest.mark.skipif(not (HEADERS / "dlqprof.h").exists(), reason="the libraries are not here")
def test_every_field_lies_where_the_c_header_has_it(tmp_path: Path) -> None:
    kinds = {"header": HEADER, "thread": THREAD, "conn": CONN, "record": RECORD}
    lines = [
        f'printf("%zu %zu\\n", offsetof(struct dlqprof_{what}, {name}),'
        f" sizeof(((struct dlqprof_{what} *)0)->{name}));"
        for what, kind in kinds.items()
        for name in kind.names or ()
    ]
    source = tmp_path / "offsets.c"
    source.write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "dlqprof.h"\n'
        f"int main(void) {{ {' '.join(lines)} return 0; }}\n"
    )
    subprocess.run(["cc", "-I", HEADERS, "-o", tmp_path / "offsets", source], check=True)
    told = subprocess.run([tmp_path / "offsets"], check=True, capture_output=True, text=True).stdout
    ours = [
        f"{place[1]} {place[0].itemsize}"
        for kind in kinds.values()
        for place in (kind.fields or {}).values()
    ]
    assert told.splitlines() == ours


@pytest.mark.skipif(not (HEADERS / "dlqprof.h").exists(), reason="the libraries are not here")
def test_the_words_are_those_of_the_c_header() -> None:
    text = (HEADERS / "dlqprof.h").read_text()
    named = {
        name: 1 << int(shift) if shift else int(value)
        for name, value, shift in re.findall(r"DLQPROF_(\w+) = (\d+)u?(?: << (\d+))?", text)
    }
    for words in (layout.Op, layout.Unseen, layout.RecordFlag):
        assert {word.name: word.value for word in words}.items() <= named.items()
    assert {
        f"SIDE_{layout.Side.UNKNOWN.name}": 0,
        "CONNECTED": 1,
        "ACCEPTED": 2,
    }.items() <= named.items()
