"""`dlq profile`: what it prints, what it refuses, and that a command goes on as without it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from dlq_cli.commands.profile import run as profile_run
from dlq_cli.output.render import OutputLook
from dlq_cli.text.profiles import WHY, amount, chart, profile_text
from dlq_profiler.injection import HOOK, LIBRARIES, built
from dlq_profiler.job import job_of
from dlq_profiler.process import profiles_of
from dlq_profiler.records.layout import Op, Side
from dlq_profiler.report import facts
from dlq_profiler.results import JobProfile, Tensors, TrafficReason
from support.cli_run import Dlq
from support.model_shapes import buckets, tensors
from support.traffic import Tape, collective_rank, ring_job, ring_rank, server_job, write_file

PIPE = OutputLook(tty=False, color=False, now_s=0.0)
RESNET = tensors("resnet50")
needs_library = pytest.mark.skipif(built() is None, reason="the profiler's library was not built")


@pytest.fixture
def dlq(tmp_path: Path) -> Dlq:
    return Dlq(tmp_path / "home")


def all_reduce(iterations: int = 8) -> JobProfile:
    layouts = [list(buckets(RESNET[::-1])), *[list(buckets(RESNET))] * (iterations - 1)]
    return job_of(profiles_of(ring_job(layouts, ranks=4)))


def exact() -> JobProfile:
    recordings = ring_job([list(buckets(RESNET))] * 6, ranks=2)
    told = Tensors(tuple(RESNET), 26_214_400, 1_048_576)
    return job_of(profiles_of(recordings, {100: [told]}))


def served() -> JobProfile:
    tapes = server_job(tensors("googlenet"))
    return job_of(
        profiles_of(tape.recording(pid=place) for place, tape in enumerate(tapes.values()))
    )


def sharded() -> JobProfile:
    tape = collective_rank([[(Op.ALL_GATHER, 500_000), (Op.REDUCE_SCATTER, 500_000)]] * 5)
    return job_of(profiles_of([tape.recording(identity={"RANK": "0", "WORLD_SIZE": "8"})]))


@pytest.mark.parametrize("profile", [all_reduce, exact, served, sharded])
def test_what_people_see(profile: object, snapshot: SnapshotAssertion) -> None:
    assert callable(profile)
    assert profile_text(facts(profile()), PIPE) == snapshot


def test_what_is_unknown_says_why(snapshot: SnapshotAssertion) -> None:
    assert profile_text(facts(all_reduce(iterations=2)), PIPE) == snapshot
    assert profile_text(facts(job_of(())), PIPE) == snapshot


def test_every_reason_has_its_words() -> None:
    assert set(WHY) == {reason.value for reason in TrafficReason}


def test_a_chart_is_as_tall_as_its_largest_amount() -> None:
    assert chart([0, 1, 4, 8]) == " ▂▅█"
    assert chart([5]) == "█"


def test_amounts_are_decimal() -> None:
    assert [amount(size) for size in (0, 999, 26_499_616, 1.5e10)] == [
        "0 B", "999 B", "26.5 MB", "15 GB",
    ]  # fmt: skip


def recorded(path: Path) -> Path:
    path.mkdir()
    for rank in range(2):
        tape = ring_rank([list(buckets(RESNET))] * 6, rank=rank, ranks=2)
        write_file(
            path / f"{100 + rank}-1.dlqprof", tape, pid=100 + rank,
            identity=f"RANK={rank}\nWORLD_SIZE=2\n",
        )  # fmt: skip
    return path


def test_a_directory_is_analysed_and_its_result_shown_again(dlq: Dlq, tmp_path: Path) -> None:
    said = dlq("profile", "show", "--json", str(recorded(tmp_path / "rec")))
    assert (said.code, said.err) == (0, "")
    result = json.loads(said.out)
    assert (result["schema"], result["model_bytes"]) == ("dlq.profile.v1", sum(RESNET))
    assert set(result["links"]) == {"10G", "25G", "100G", "200G", "400G"}
    stored = tmp_path / "profile.json"
    stored.write_text(said.out)
    again = dlq("profile", "show", "--link", "40", "--link", "0.8", str(stored))
    assert (again.code, again.err) == (0, "")
    assert "all-reduce, 2 ranks, processes with traffic: 2" in again.out
    assert [line.split()[0] for line in again.out.splitlines()[-3:]] == ["LINK", "40G", "0.8G"]


def test_without_numpy_a_result_is_shown_and_a_recording_refused(tmp_path: Path) -> None:
    stored = tmp_path / "profile.json"
    stored.write_text(all_reduce().json())
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "from dlq_cli.main import run; sys.exit(run(sys.argv[1:]))"
    )

    def dlq(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, "profile", *words],
            check=False, capture_output=True, text=True,
        )  # fmt: skip

    shown = dlq("show", str(stored))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "all-reduce, 4 ranks" in shown.stdout
    for refused in (dlq("show", str(tmp_path)), dlq("run", "--", "true")):
        assert refused.returncode == 1
        assert "pip install 'dlq[profile]'" in refused.stderr


def test_a_file_that_is_no_use_is_named(dlq: Dlq, tmp_path: Path) -> None:
    (recorded(tmp_path / "rec") / "9-9.dlqprof").write_bytes(b"?")
    said = dlq("profile", "show", str(tmp_path / "rec"))
    assert said.code == 0
    assert "9-9.dlqprof: it is no record file" in said.err


def test_what_is_not_there_or_no_result_is_refused(dlq: Dlq, tmp_path: Path) -> None:
    assert dlq("profile", "show", str(tmp_path / "no")).code == 3
    (tmp_path / "other.json").write_text('{"schema": "dlq.v1"}')
    said = dlq("profile", "show", str(tmp_path / "other.json"))
    assert said.code == 2
    assert "neither a directory of recordings nor a result" in said.err
    assert dlq("profile", "run", "--keep", str(tmp_path), "--", "true").code == 2


@needs_library
def test_a_command_has_its_own_exit_code_and_output(
    dlq: Dlq, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = "import sys; print('mine'); sys.exit(7)"
    said = dlq(
        "profile", "run", "--keep", str(tmp_path / "rec"), "--", sys.executable, "-c", program
    )
    assert said.code == 7
    assert capfd.readouterr().out == "mine\n"
    assert "no process recorded anything" in said.err
    assert said.out == ""


@needs_library
def test_an_installation_below_a_directory_with_a_blank_records_and_adds_no_word(
    dlq: Dlq, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader would look for each half of such a path, and say so into the job."""
    here = tmp_path / "my files"
    shutil.copytree(LIBRARIES, here / "lib")
    shutil.copytree(HOOK, here / "hook")
    monkeypatch.setattr(profile_run, "built", lambda: built(here / "lib", here / "hook"))
    rec = tmp_path / "rec"
    program = "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))"
    said = dlq("profile", "run", "--keep", str(rec), "--", sys.executable, "-c", program)
    assert said.code == 0
    assert capfd.readouterr().err == ""
    assert len(list(rec.glob("*.dlqprof"))) == 1


@needs_library
def test_why_a_command_is_not_watched_is_told_before_it_runs(dlq: Dlq, tmp_path: Path) -> None:
    script = tmp_path / "job"
    script.write_text("no program")
    script.chmod(0o755)
    said = dlq("profile", "run", "--", str(script))
    assert said.code == 126
    assert "neither an ELF program nor a script" in said.err


@needs_library
def test_a_command_that_is_not_there_is_told_as_by_a_shell(dlq: Dlq, tmp_path: Path) -> None:
    said = dlq("profile", "run", "--", str(tmp_path / "no-such-program"))
    assert said.code == 127
    assert "there is no such command" in said.err


@needs_library
def test_messages_over_a_socket_are_recorded_and_understood(dlq: Dlq, tmp_path: Path) -> None:
    """A worker pushes four tensors to its server, in a process of its own."""
    program = tmp_path / "worker.py"
    program.write_text(
        "import socket, threading\n"
        "here = socket.create_server(('127.0.0.1', 0))\n"
        "def serve():\n"
        "    conn, _ = here.accept()\n"
        "    while conn.recv(1 << 20): pass\n"
        "server = threading.Thread(target=serve); server.start()\n"
        "there = socket.create_connection(here.getsockname())\n"
        "tensors = [bytearray(n) for n in (40_000, 400, 200_000, 1_000)]\n"
        "for _ in range(6):\n"
        "    for tensor in tensors: there.sendall(tensor)\n"
        "there.close(); server.join()\n"
    )
    said = dlq(
        "profile", "run", "--keep", str(tmp_path / "rec"), "--json", "--",
        "env", "DLQ_ROLE=worker", sys.executable, str(program),
    )  # fmt: skip
    found = json.loads(said.err)
    assert said.code == 0
    assert (found["pattern"], found["iterations"]) == ("parameter-server", 6)
    assert found["tensors"] == [200_000, 40_000, 1_000, 400]
    assert found["skew"] == {"lower": 200_000 / 241_400, "upper": 200_000 / 241_400}


def test_a_tape_without_connections_is_no_traffic() -> None:
    tape = Tape(ring_rank([[4096]]).draw)
    tape.connection("10.0.0.2", 1, Side.CONNECTED)
    assert job_of(profiles_of([tape.recording()])).traffic.reason is TrafficReason.NO_TRAFFIC
