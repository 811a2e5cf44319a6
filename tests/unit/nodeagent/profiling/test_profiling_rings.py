"""What a rank recorded: read as its user would, and whatever lies there, the agent is not hurt."""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_nodeagent.jobtree.user_rights import UserRights
from dlq_nodeagent.model.errands import ReadOrder
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import MOST_PROCESSES_BYTES, ProfileFound, ProfileOrder
from dlq_nodeagent.profiling.finding import found_of
from dlq_nodeagent.profiling.places import Before, Places, Station
from dlq_nodeagent.profiling.reading import (
    RingReader,
    RingReading,
    limits_of_process,
    reading_of,
)
from dlq_profiler import telling
from dlq_profiler.job import job_of
from dlq_profiler.records.control import read_control, write_control
from dlq_profiler.results import JobProfile, Method, ProcessProfile, TrafficReason
from support.agent_bench import a_launch
from support.fake_clock import FakeClock
from support.model_shapes import buckets, tensors
from support.traffic import ring_rank, write_file
from support.waiting import wait_until

LAUNCH = a_launch(profile=ProfileOrder(60.0))
ME = UserRights(os.geteuid(), os.getegid(), tuple(os.getgroups()))
SIZES = tensors("googlenet")
FILES_OPENED_AT = 20  # in `control`


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places.of(tmp_path)


def make(places: Places, key: RankKey = LAUNCH.key, *limits: str) -> Path:
    rings = places.make(key, ME, file_limit=12, ring_bytes=1 << 20)
    places.note(key, Before(True, tuple(TrafficReason(word) for word in limits)))
    return rings


def record(rings: Path, ranks: int = 2) -> None:
    for rank in range(ranks):
        tape = ring_rank([list(buckets(SIZES))] * 7, rank=rank, ranks=ranks)
        write_file(
            rings / f"{100 + rank}-1.dlqprof", tape, threads=3, pid=100 + rank,
            identity=f"RANK={rank}\nWORLD_SIZE={ranks}\n",
        )  # fmt: skip


def station(places: Places, reader: RingReader | None = None) -> Station:
    return Station(
        clock=FakeClock(),
        places=places,
        rights_of=lambda launch: ME,
        devices_of=lambda launch: (),
        drops=False,
        reader=reader or RingReader(),
    )


def read(places: Places, *, pid: int | None = None) -> ProfileFound:
    return station(places).read(ReadOrder(launch=LAUNCH, window_s=60.0, main_pid=pid))


def test_all_ranks_of_a_node_make_one_result(places: Places) -> None:
    rings = make(places)
    record(rings)
    found = read(places)
    assert read_control(rings).mode == 0
    assert (found.pattern, found.process_count, found.rank_count) == ("all-reduce", 2, 2)
    assert found.model_bytes == sum(SIZES)
    assert (found.largest_low_bytes or 0) <= max(SIZES) <= (found.largest_high_bytes or 0)
    assert (found.traffic.reason, found.sizes.reason, found.lost_count) == ("", "", 0)
    # Whoever has the processes of all nodes makes the same of them, and more.
    processes = [ProcessProfile.of(facts) for facts in json.loads(found.processes)]
    whole = job_of(processes)
    assert (whole.model_bytes, whole.period_s) == (found.model_bytes, found.period_s)


def test_a_rank_that_recorded_nothing_starts_no_program(places: Places) -> None:
    make(places)
    nobody = station(places, RingReader(python="/nonexistent"))
    found = nobody.read(ReadOrder(launch=LAUNCH, window_s=60.0))
    assert found.traffic.reason == found.sizes.reason == "nothing-recorded"
    assert (found.processes, found.node_count, found.gpu_count) == ("", 1, 1)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [(("plugin-taken", "static"), "static"), (("no-library",), "no-library"), (("io-uring",),) * 2],
)
def test_why_nothing_could_be_seen_goes_with_it(
    places: Places, limits: tuple[str, ...], reason: str | tuple[str, ...]
) -> None:
    make(places, LAUNCH.key, *limits)
    found = read(places)
    assert found.traffic.reason in reason
    assert found.traffic.confidence == "unknown"
    assert found.limits == limits


def test_programs_that_took_all_the_files_are_the_reason(places: Places) -> None:
    """Sixty of them each sent a byte, and then the training came."""
    rings = make(places)
    write_file(rings / "1-1.dlqprof", ring_rank([[100]], rank=0, ranks=2), threads=1, pid=1)
    with (rings / "control").open("r+b") as control:
        control.seek(FILES_OPENED_AT)
        control.write((12).to_bytes(4, "little"))
    assert read(places).traffic.reason not in ("", "too-many-processes"), "there was room for all"
    with (rings / "control").open("r+b") as control:
        control.seek(FILES_OPENED_AT)
        control.write((13).to_bytes(4, "little"))
    found = read(places)
    assert found.traffic.reason == "too-many-processes"
    assert found.limits == ("too-many-processes",)


def test_a_known_result_is_not_made_unknown_by_what_might_have_been_in_the_way(
    places: Places,
) -> None:
    record(make(places, LAUNCH.key, "plugin-taken"))
    found = read(places)
    assert (found.traffic.reason, found.limits) == ("", ("plugin-taken",))


def test_a_place_that_is_not_there_is_said(places: Places) -> None:
    assert read(places).traffic.reason == "no-directory"


def test_numpy_is_missed_by_name(places: Places, tmp_path: Path) -> None:
    record(make(places))
    (tmp_path / "python").write_text(f"#!/bin/sh\nexit {telling.NO_NUMPY}\n")
    (tmp_path / "python").chmod(0o755)
    reader = RingReader(python=str(tmp_path / "python"))
    found = station(places, reader).read(ReadOrder(launch=LAUNCH, window_s=60.0))
    assert found.traffic.reason == "no-numpy"


# ---- hostile jobs


def test_what_a_job_puts_there_costs_at_most_its_own_result(places: Places) -> None:
    rings = make(places)
    record(rings, ranks=3)
    os.mkfifo(rings / "1-1.dlqprof")
    (rings / "2-2.dlqprof").symlink_to("/dev/zero")
    (rings / "3-3.dlqprof").mkdir()
    (rings / "4-4.tensors.json").symlink_to("/dev/zero")
    with (rings / "100-1.dlqprof").open("r+b") as file:
        file.seek(32)
        file.write(b"\xff" * 64)
    with (rings / "101-1.dlqprof").open("r+b") as file:
        file.truncate(1 << 40)
    found = read(places)
    assert (found.process_count, found.traffic.reason) == (1, "")
    assert places.remove(LAUNCH.key)
    assert not rings.exists()


@pytest.mark.parametrize("trick", ["link", "device", "fifo", "directory", "short", "gone"])
def test_no_switch_is_touched_but_the_real_one(places: Places, tmp_path: Path, trick: str) -> None:
    control = make(places) / "control"
    other = tmp_path / "other"
    other.mkdir()
    write_control(other)
    control.unlink()
    match trick:
        case "link":
            control.symlink_to(other / "control")
        case "device":
            control.symlink_to("/dev/full")
        case "fifo":
            os.mkfifo(control)
        case "directory":
            control.mkdir()
        case "short":
            control.write_bytes(b"DLQPCTL\0")
    places.switch_off(LAUNCH.key, ME)
    assert read_control(other).mode == 1
    assert places.remove(LAUNCH.key)


def test_a_program_that_never_answers_is_given_up(places: Places, tmp_path: Path) -> None:
    record(make(places))
    (tmp_path / "python").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "python").chmod(0o755)
    reader = RingReader(python=str(tmp_path / "python"), timeout_s=0.05)
    found = station(places, reader).read(ReadOrder(launch=LAUNCH, window_s=60.0))
    assert found.traffic.reason == "analysis-failed"


def test_an_agent_that_stops_ends_the_program(places: Places, tmp_path: Path) -> None:
    record(make(places))
    begun = tmp_path / "begun"
    (tmp_path / "python").write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 60\n")
    (tmp_path / "python").chmod(0o755)
    reader = RingReader(python=str(tmp_path / "python"))
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(
            station(places, reader).read, ReadOrder(launch=LAUNCH, window_s=60.0)
        )
        wait_until(begun.exists, what="the program runs")
        reader.stop()
        assert reading.result(30.0).traffic.reason == "analysis-failed"


def test_a_program_that_says_too_much_is_given_up(places: Places, tmp_path: Path) -> None:
    record(make(places))
    (tmp_path / "python").write_text("#!/bin/sh\nexec cat /dev/zero\n")
    (tmp_path / "python").chmod(0o755)
    found = station(places, RingReader(python=str(tmp_path / "python"))).read(
        ReadOrder(launch=LAUNCH, window_s=60.0)
    )
    assert found.traffic.reason == "analysis-failed"


PROCESS = ProcessProfile(
    pid=1, start_ticks=1, comm="x", rank=0, world_size=1, role="", method=Method.NONE
)
GOOD: dict[str, Any] = {"job": job_of(()).facts(), "processes": [], "refused": 0, "turned_away": 0}


@pytest.mark.parametrize(
    "told",
    [
        b"", b"[]", b"{}", b'"' + b"x" * 100, b"[" * 100_000,
        json.dumps({**GOOD, "job": {**GOOD["job"], "period_s": float("inf")}}).encode(),
        json.dumps({**GOOD, "job": {**GOOD["job"], "bytes_per_iteration": -1}}).encode(),
        json.dumps({**GOOD, "job": {**GOOD["job"], "bytes_per_iteration": 10**4000}}).encode(),
        json.dumps({**GOOD, "job": {**GOOD["job"], "records": 1 << 70}}).encode(),
        json.dumps({**GOOD, "job": {**GOOD["job"], "skew": {"lower": 0, "upper": 2}}}).encode(),
        json.dumps({**GOOD, "job": {**GOOD["job"], "skew": {"lower": 0.6, "upper": 0.5}}}).encode(),
        json.dumps({**GOOD, "processes": [{}]}).encode(),
        json.dumps({**GOOD, "refused": 1}).encode(),
    ],
)  # fmt: skip
def test_no_output_is_believed_that_is_no_result(told: bytes) -> None:
    assert reading_of(told).failure == "analysis-failed"


@given(st.binary(max_size=200))
def test_any_output_is_a_reading_or_a_failure(told: bytes) -> None:
    assert reading_of(told).failure == "analysis-failed"


def test_a_result_of_any_size_fits_the_line() -> None:
    process = json.loads(json.dumps(PROCESS.facts()))
    many = tuple(ProcessProfile.of({**process, "messages": [1 << 40] * 10_000}) for _ in range(9))
    job = JobProfile.of({**GOOD["job"], "processes": 1 << 60, "unseen": ["\x1b[2J" * 99] * 99})
    found = found_of(LAUNCH, RingReading(job, many), (), gpu_type="", window_s=1.0, ended_s=0.0)
    assert found.processes == ""
    assert found.process_count < 1 << 31
    assert len(found.unseen) <= 16
    assert all(len(word) <= 64 and word.isprintable() for word in found.unseen)
    few = found_of(LAUNCH, RingReading(job, many[:1]), (), gpu_type="", window_s=1.0, ended_s=0.0)
    assert 0 < len(few.processes) <= MOST_PROCESSES_BYTES


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads as another user")
def test_rings_are_read_with_no_more_rights_than_their_user_has() -> None:
    nobody = UserRights(65534, 65534)
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        places = Places.of(Path(name))
        rings = places.make(LAUNCH.key, nobody, file_limit=1, ring_bytes=1 << 20)
        record(rings, ranks=3)
        os.chown(rings / "101-1.dlqprof", nobody.uid, nobody.gid)
        for path in rings.glob("*.dlqprof"):
            path.chmod(0o600)
        reading = RingReader().read(rings, nobody, drop=True)
        assert [process.pid for process in reading.processes] == [101]
        assert rings.stat().st_uid == (rings / "control").stat().st_uid == nobody.uid


IMPORTS_WITH_THE_USERS_RIGHTS = """
import sys
from dlq_profiler import telling
at_that_time = set()
telling._confine = lambda ids: at_that_time.update(sys.modules)
code = telling.main([sys.argv[1]])
print()
print(code, *sorted(set(sys.modules) - at_that_time))
"""


def test_everything_is_imported_before_the_users_rights_are_taken(places: Places) -> None:
    # The user may not be able to read where it lies.
    rings = make(places)
    record(rings)
    asked = [sys.executable, "-c", IMPORTS_WITH_THE_USERS_RIGHTS, str(rings)]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == "0"


# ---- removal


def test_places_that_nobody_needs_any_more_are_removed(places: Places, tmp_path: Path) -> None:
    keys = [RankKey(str(job), 1, 0) for job in range(3)]
    for key in keys:
        record(make(places, key))
    (places.root / "notes").mkdir()
    places.keep_only(keys[1:2])
    assert sorted(os.listdir(places.root)) == ["1.1.0", "notes"]
    assert places.remove(keys[0])
    Places.of(tmp_path / "never").keep_only(())


def test_a_rank_that_is_made_ready_anew_begins_with_nothing(places: Places) -> None:
    rings = make(places)
    record(rings)
    assert make(places) == rings
    assert os.listdir(rings) == ["control"]
    assert (rings.stat().st_mode & 0o777, read_control(rings).mode) == (0o700, 1)


# ---- processes that run


def test_what_a_process_that_runs_has_started_is_looked_at_too(tmp_path: Path) -> None:
    for pid, children in ((10, "11 12 "), (11, ""), (12, "10 13 "), (13, "")):
        at = tmp_path / str(pid)
        (at / "task" / str(pid)).mkdir(parents=True)
        (at / "task" / str(pid) / "children").write_text(children)
        (at / "fd").mkdir()
        (at / "exe").symlink_to(sys.executable)
    assert limits_of_process(10, tmp_path) == ()
    (tmp_path / "13" / "fd" / "5").symlink_to("anon_inode:[io_uring]")
    assert limits_of_process(10, tmp_path) == ("io-uring",)
    assert limits_of_process(99, tmp_path) == ()


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_rings_of_a_user_are_removed_with_their_place() -> None:
    # Not in a directory of pytest's: another user must get there.
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        places, theirs = Places.of(Path(name)), UserRights(4711, 4711, ())
        rings = places.make(LAUNCH.key, theirs, file_limit=12, ring_bytes=1 << 20)
        inner = rings / "deeper"
        inner.mkdir()
        (inner / "ring").write_bytes(b"x")
        os.chown(inner, 4711, 4711)
        assert rings.stat().st_uid == 4711
        assert places.remove(LAUNCH.key)
        assert list(places.root.iterdir()) == []
