"""Slurm's commands through the user's server: as the slow way answers, and for nobody else."""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_compat.install import FRONT
from support.front import Front
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not FRONT.exists(), reason="the front is not compiled (make setup)"),
]
NOBODY = 65534
SLOW = {"DLQ_NO_HELPER": "1"}
LISTENER = """
import os, socket, sys, time
listening = socket.socket(socket.AF_UNIX)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
listening.bind(sys.argv[1]); listening.listen(); print("there", flush=True)
listening.accept(); print("caught", flush=True)
"""


@pytest.fixture(scope="module")
def daemons() -> Iterator[Daemons]:
    root = Path(tempfile.mkdtemp(prefix="dlqff", dir="/tmp"))
    try:
        with Daemons(root, agents=("n1",)).up() as running:
            yield running
    finally:
        shutil.rmtree(root)


@pytest.fixture
def front(daemons: Daemons) -> Iterator[Front]:
    # The address of a socket has 108 characters: not below pytest's own directories.
    root = Path(tempfile.mkdtemp(prefix="dlqf", dir="/tmp"))
    made = Front(daemons, root)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(root)


CALLS = (
    ("sbatch", "--version"),
    ("sbatch", "--gres=gpu:1", "--hold", "--wrap", "true"),
    ("sbatch", "--parsable", "--gres=gpu:1", "--hold"),
    ("sbatch", "--no-such-option", "--wrap", "true"),
    ("sbatch", "no-such-file"),
    ("sbatch", "--gres=gpu:99", "--wrap", "true"),
    ("squeue", "-h", "-j", "99999"),
    ("squeue", "-o", "%T", "-h", "-j", "1"),
    ("squeue", "--no-such-option"),
    ("scontrol", "show", "hostnames", "n[1-3]"),
    ("scontrol", "ping"),
    ("scontrol", "show", "job", "99999"),
    ("scancel", "99999"),
    ("sinfo", "-h", "-o", "%P %D"),
    ("sacct", "-n", "-X", "-j", "99999"),
)
SUBMIT = "sbatch --parsable --hold -G1 --wrap x"
SCRIPT = "#!/bin/sh\n#SBATCH -J from-stdin\ntrue\n"


def test_both_ways_answer_the_same(front: Front) -> None:
    def answers() -> list[tuple[tuple[str, ...], int, str, str]]:
        found: list[tuple[tuple[str, ...], int, str, str]] = []
        for words in CALLS:
            done = front.said(*words, given=SCRIPT)
            out, err = (re.sub(r"\b\d+\b", "N", text) for text in (done.stdout, done.stderr))
            found.append((words, done.returncode, out, err))
        return found

    front.serve()
    front.only_fast()
    fast = answers()
    front.also_slow()
    front.environment |= SLOW
    assert fast == answers()
    assert {code for _, code, *_ in fast} >= {0, 1}


def test_a_call_takes_along_what_its_caller_has(front: Front, daemons: Daemons) -> None:
    (front.root / "where").mkdir()

    def submitted(**more: str) -> job_pb2.JobSpec:
        done = subprocess.run(
            ["sh", "-c", f"ulimit -S -n 77; umask 027; cd where; {SUBMIT}"],
            env=front.environment | {"PROBE": "a b\n\u00e9", "LANG": "C.UTF-8"} | more,
            cwd=front.root, text=True, capture_output=True, check=True,
        )  # fmt: skip
        with daemons.connect() as line:
            spec = Jobs(line).get(done.stdout.strip()).spec
        spec.environment.pop("DLQ_NO_HELPER", None)
        return spec

    slow = submitted(**SLOW)
    front.serve()
    front.only_fast()
    fast = submitted()
    assert dict(fast.environment) == dict(slow.environment)
    assert fast == slow
    assert fast.environment["PROBE"] == "a b\n\u00e9"
    assert fast.working_directory == f"{front.root}/where"


def test_many_at_once_are_each_run_once(front: Front) -> None:
    front.serve()
    front.only_fast()

    def submit(number: int) -> str:
        done = front.said(*SUBMIT.split(), "-J", f"n{number}")
        return done.stdout.strip() or done.stderr

    with ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(submit, range(40)))
    assert len(set(ids)) == 40, ids
    assert all(each.isdigit() for each in ids), ids


def test_an_output_that_takes_nothing_ends_as_on_the_slow_way(front: Front) -> None:
    front.serve()
    command = 'squeue >/dev/full; echo "code $?"; squeue --help | true; echo "code $?"'

    def seen(**more: str) -> tuple[str, str]:
        done = subprocess.run(
            ["bash", "-c", command], env=front.environment | more, text=True, capture_output=True
        )
        return done.stdout, done.stderr

    slow = seen(**SLOW)
    front.only_fast()
    assert seen() == slow


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_it_as_on_the_slow_way(front: Front, number: signal.Signals) -> None:
    def ended(**more: str) -> int:
        process = front.start("sbatch", "--wait", "--hold", "-G1", "--wrap", "true", **more)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Submitted")
        process.send_signal(number)
        process.communicate(timeout=60)
        return process.returncode

    slow = ended(**SLOW)
    front.serve()
    front.only_fast()
    assert ended() == slow


def test_with_its_caller_a_command_dies(front: Front) -> None:
    front.serve()
    front.only_fast()
    wait_until(lambda: len(front.servers()) == 4, what="two spares", timeout_s=30)
    before = set(front.servers())
    process = front.start("sbatch", "--wait", "--hold", "-G1", "--wrap", "true")
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.communicate(timeout=60)
    wait_until(
        lambda: len(front.servers()) == 4 and set(front.servers()) != before,
        what="another has its place", timeout_s=30,
    )  # fmt: skip
    assert len(before & set(front.servers())) == 3, "one spare has been used up, no more"


def test_a_server_inherits_nothing_and_keeps_nothing_between_calls(front: Front) -> None:
    reading, writing = os.pipe()
    try:
        os.set_inheritable(writing, True)
        front.environment |= {"SECRET": "of the first caller"}
        process = subprocess.run(
            [front.bin / "squeue"], env=front.environment, pass_fds=[writing], capture_output=True
        )
        assert process.returncode == 0
        front.serve()
    finally:
        os.close(writing)
    assert os.read(reading, 1) == b"", "nobody else holds the other end"
    os.close(reading)
    del front.environment["SECRET"]
    front.only_fast()
    held = []
    for _ in range(3):
        assert front.said("squeue", ANOTHER="of another caller").returncode == 0
        wait_until(lambda: len(front.servers()) == 4, what="two spares", timeout_s=30)
        descriptors = {
            pid: sorted(os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir())
            for pid in front.servers()
        }
        held.append(len(descriptors[front.server()]))
        for pid in front.servers():
            assert b"caller" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert len(set(held)) == 1, "a descriptor stays behind with each call"


def test_one_process_takes_call_after_call(front: Front) -> None:
    front.serve()
    front.only_fast()
    wait_until(lambda: len(front.servers()) == 4, what="two spares", timeout_s=30)
    before = front.servers()
    for number in range(12):
        # A refusal and a reader that leaves early are no reason to end.
        assert front.said("squeue", "-h").returncode == 0
        assert front.said("sbatch", f"no-such-file-{number}").returncode == 1
    assert set(before) <= set(front.servers())


def test_a_call_finds_nothing_of_the_call_before_it(front: Front, daemons: Daemons) -> None:
    """Each call in turn with all that its caller has, through the same two processes."""
    shells = [
        (f"cd {front.root}; umask {mask}; ulimit -S -n {files}; ulimit -S -t {cpu}; {SUBMIT}", more)
        for mask, files, cpu, more in (
            ("027", "77", "1", {"ONE": "1", "DLQ_UTC": "1"}),
            ("077", "99", "unlimited", {"TWO": "2", "TZ": "Asia/Tokyo"}),
            ("002", "1024", "unlimited", {}),
        )
    ]

    def specs(**extra: str) -> list[job_pb2.JobSpec]:
        found = []
        for shell, more in shells * 3:
            done = subprocess.run(
                ["sh", "-c", shell], env=front.environment | {"LANG": "C.UTF-8"} | more | extra,
                text=True, capture_output=True, check=True,
            )  # fmt: skip
            with daemons.connect() as line:
                found.append(Jobs(line).get(done.stdout.strip()).spec)
            found[-1].environment.pop("DLQ_NO_HELPER", None)
        return found

    slow = specs(**SLOW)
    front.serve()
    front.only_fast()
    assert specs() == slow


def test_between_calls_a_process_holds_nothing_of_its_caller(front: Front) -> None:
    front.serve()
    front.only_fast()
    place = front.root / "gone"
    place.mkdir()
    for _ in range(4):
        done = subprocess.run(
            ["sh", "-c", f"cd {place}; squeue | cat; sbatch no-such-file 2>&1 | cat"],
            env=front.environment, text=True, capture_output=True, timeout=60,
        )  # fmt: skip
        assert "no-such-file" in done.stdout
    for pid in front.servers():
        held = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert held[:3] == ["/dev/null"] * 3
        assert not [each for each in held if str(place) in each]


def test_output_that_found_no_room_comes_out_nowhere_else(front: Front) -> None:
    front.serve()
    front.only_fast()
    for _ in range(6):
        failed = subprocess.run(
            ["bash", "-c", "scontrol show hostnames n[1-3] >/dev/full"],
            env=front.environment, text=True, capture_output=True, timeout=60,
        )  # fmt: skip
        assert failed.returncode == 120
        assert "n1" not in front.said("scontrol", "show", "hostnames", "m[1-3]").stdout


def test_soft_limits_of_one_call_bind_no_other(front: Front) -> None:
    front.serve()
    front.only_fast()
    for _ in range(4):
        subprocess.run(
            ["sh", "-c", "ulimit -S -n 12; squeue"], env=front.environment, capture_output=True
        )
        assert front.said("squeue", "-h").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_for_one_call_never_reaches_the_next(front: Front, number: signal.Signals) -> None:
    front.serve()
    front.only_fast()
    for _ in range(10):
        interrupted = front.start("squeue", "-h")
        interrupted.send_signal(number)
        interrupted.communicate(timeout=60)
        assert front.said("squeue", "-h").returncode == 0


def test_many_long_calls_leave_two_spares(front: Front) -> None:
    front.serve()
    front.only_fast()
    waiting = [front.start("sbatch", "--wait", "--hold", "-G1", "--wrap", "true") for _ in range(6)]
    for process in waiting:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Submitted")
    assert front.said("squeue", "-h").returncode == 0
    for process in waiting:
        process.terminate()
        process.communicate(timeout=60)
    # Besides them one may wait for a single call.
    wait_until(lambda: len(front.servers()) in (4, 5), what="the others end", timeout_s=30)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_socket_of_another_user_gets_no_call(front: Front) -> None:
    path = front.serve()
    front.end()
    wait_until(lambda: not front.servers(), what="the server is gone", timeout_s=30)
    path.unlink()
    os.chmod(front.root, 0o755)
    os.chmod(front.runtime, 0o711)
    os.chmod(front.run_dir, 0o777)
    with subprocess.Popen(
        ["/usr/bin/python3", "-Ic", LISTENER, str(path)], stdout=subprocess.PIPE, text=True
    ) as thief:
        assert thief.stdout is not None
        assert thief.stdout.readline() == "there\n"
        os.chmod(front.run_dir, 0o700)
        assert front.said("squeue").returncode == 0
        # It was connected to, but told nothing: the client saw whose socket it is.
        assert thief.stdout.readline() == "caught\n"
        assert front.said("squeue").returncode == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("what", ["open", "foreign", "link"])
def test_a_directory_that_is_not_ours_alone_gets_no_server(front: Front, what: str) -> None:
    if what == "link":
        (front.root / "elsewhere").mkdir(mode=0o700)
        front.run_dir.symlink_to(front.root / "elsewhere")
    else:
        front.run_dir.mkdir()
        front.run_dir.chmod(0o750 if what == "open" else 0o700)
        os.chown(front.run_dir, NOBODY if what == "foreign" else 0, 0)
    front.environment["HOME"] = "/nonexistent"
    assert front.said("squeue").returncode == 0
    assert list(front.run_dir.iterdir()) == []
    assert front.servers() == []


def test_a_dead_servers_socket_is_no_obstacle(front: Front) -> None:
    front.serve()
    front.end()
    wait_until(lambda: not front.servers(), what="the server is gone", timeout_s=30)
    assert front.socket() is not None
    assert front.said("squeue").returncode == 0
    front.serve()
    front.only_fast()
    wait_until(lambda: front.said("squeue").returncode == 0, what="it serves", timeout_s=60)


def test_a_server_ends_with_its_directory(front: Front) -> None:
    front.serve()
    shutil.rmtree(front.run_dir)
    wait_until(lambda: not front.servers(), what="it ends", timeout_s=60)


def test_noise_on_the_socket_costs_a_spare_and_no_more(front: Front) -> None:
    path = front.serve()
    front.only_fast()
    for noise in (b"", b"x", b"GET / HTTP/1.1\r\n\r\n", b"DLFQ" * 400, os.urandom(5000)):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(path))
            with suppress(BrokenPipeError, ConnectionResetError):
                line.sendall(noise)
    assert front.said("squeue").returncode == 0


@pytest.mark.parametrize(
    "more", [{"DLQ_JOB_ID": "7"}, {"PYTHONUTF8": "0"}, {"LC_ALL": "de_DE.ISO-8859-1"}, SLOW]
)
def test_what_a_server_cannot_take_over_goes_the_slow_way(
    front: Front, more: dict[str, str]
) -> None:
    front.serve()
    front.only_fast()
    assert front.said("squeue").returncode == 0
    assert front.said("squeue", **more).returncode == 127, "there is no slow way now"


def test_a_descriptor_of_the_shell_reaches_the_command(front: Front) -> None:
    front.serve()
    done = subprocess.run(
        ["bash", "-c", f"sbatch --hold -G1 <(printf '{SCRIPT.replace(chr(10), chr(92) + 'n')}')"],
        env=front.environment, text=True, capture_output=True,
    )  # fmt: skip
    assert done.stdout.startswith("Submitted batch job"), done.stderr


def test_nothing_of_a_server_is_left_when_it_was_killed(front: Front) -> None:
    front.serve()
    wait_until(lambda: len(front.servers()) >= 4, what="its spares wait", timeout_s=60)
    os.kill(front.server(), signal.SIGKILL)
    wait_until(lambda: not front.servers(), what="its spares and its keeper end", timeout_s=60)
