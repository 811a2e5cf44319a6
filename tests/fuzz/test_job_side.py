"""What a job's own processes say hurts that job at most: its agent, its shim, and other jobs go on.

`make fuzz MESSAGES=1000000 SEED=1` says a tenth of its messages to each of them.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from attack.extent import SEED
from dlq.v1 import agent_service_pb2 as wire
from dlq_nodeagent.jobtree.beats import parse_beat
from dlq_nodeagent.jobtree.checkpoints import CheckpointWatch, newest_checkpoint
from dlq_nodeagent.jobtree.steps import StepsRefused, parse_steps
from dlq_nodeagent.shim.binary import STDIN_NAME, ensure_program
from fuzz.job_words import JobWords, admitted, dialled
from fuzz.test_agent_process import facts
from fuzz.test_master import grew
from support.agent_process import AgentProcess
from support.extent import times
from support.proofs import proved
from support.stub_master import StubMaster, launch_command
from support.waiting import wait_until
from unit.compat.conftest import TwoNodes, job, programs

__all__ = ["job", "programs"]

MESSAGES = int(os.environ.get("MESSAGES", "1000000")) // 10
SHORT = 300
ROUNDS = 10
FOUL, OTHER = 17, 18
AT_ONCE = 40
MOST_FILES = 100
SLACK_KIB = 512
ODD: tuple[Callable[[Path], object], ...] = (
    os.mkfifo,
    os.mkdir,
    lambda path: os.symlink("/etc/shadow", path),
    lambda path: os.symlink("/dev/zero", path),
    lambda path: os.symlink(path, path),
    lambda path: os.mknod(path, 0o140600),
)
"""Things in the place of a file."""


def size_kib(pid: int) -> int:
    """The resident size of a process."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmRSS")).split()[1])


def children_of(pid: int) -> list[int]:
    """The processes that it has started, and that have not ended."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def test_words_of_a_job_are_read_or_refused(tmp_path: Path) -> None:
    found = read_all(tmp_path, times(400, 20_000))
    assert min(found.values()) > 0, found


def read_all(root: Path, count: int) -> Counter[str]:
    """So many of each kind, as the agent reads them; how often each outcome came."""
    words, found = JobWords(f"{SEED}/read"), Counter[str]()
    place = root / "save"  # a number in its name would be its step
    place.mkdir()
    for _ in range(count):
        beat = parse_beat(words.beat())
        found["beats"] += beat is not None and beat.step is not None
        found["empty beats"] += beat is not None and beat.step is None
        try:
            parse_steps(words.steps())
            found["steps"] += 1
        except StepsRefused:
            found["refused steps"] += 1
    for _ in range(count // 20):
        (place / "COMMITTED").write_bytes(words.mark())
        seen = newest_checkpoint(CheckpointWatch(directory=str(root)), wall_s=0.0)
        assert seen is not None
        found["marks with a step" if seen.step is not None else "marks without"] += 1
    return found


# --- the files that an agent reads, and the pipe of a shim ------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[StubMaster, AgentProcess]]:
    with StubMaster() as master:
        agent = AgentProcess(tmp_path, master)
        assert agent.join(master.token()).returncode == 0
        yield master, agent
        agent.clean_up()


def put(path: Path, words: JobWords, content: bytes) -> None:
    """Sometimes in one piece, sometimes in two, and sometimes there is no file."""
    with suppress(OSError):
        path.rmdir()
    with suppress(OSError):
        path.unlink()
    kind = words.chance.random()
    if kind < 0.1:
        words.chance.choice(ODD)(path)
    elif kind < 0.15:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    else:
        path.write_bytes(content)


def order(pipe: Path, words: bytes) -> None:
    """All of it, in one piece, as soon as the shim has made room."""
    line = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    try:
        _, room, _ = select.select([], [line], [], 10.0)
        assert room, "the shim reads"
        assert os.write(line, words) == len(words)
    finally:
        os.close(line)


def foul(root: Path, master: StubMaster, agent: AgentProcess, messages: int) -> dict[str, Any]:
    """One job says everything that it can; another one beside it goes on."""
    saves = root / "saves"
    (saves / "step-1").mkdir(parents=True)
    for at, number in enumerate((FOUL, OTHER)):
        launch = launch_command(
            number, "/bin/sleep", "3600", epoch=1, checkpoint_directory=str(saves)
        )
        launch.gpu_indexes[:] = [at]
        launch.spec.compat = "slurm"
        master.wanted.append(launch)
    agent.start()
    for number in (FOUL, OTHER):
        master.report(str(number), wire.RANK_PHASE_STARTED)
    mine, other = (agent.state_dir / "attempts" / f"{number}.1.0" for number in (FOUL, OTHER))
    before = (other / "started.json").read_bytes()
    words, said, sizes, shim = JobWords(f"{SEED}/foul"), 0, list[dict[str, int]](), mine / "ctl"
    while said < messages:
        beats = len(master.heartbeats)
        for _ in range(AT_ONCE):
            put(mine / "job" / "beat", words, words.beat())
            put(mine / "job" / "steps", words, words.steps())
            put(saves / "step-1" / "COMMITTED", words, words.mark())
            order(shim, words.order())
            said += 4
        wait_until(lambda: len(master.heartbeats) > beats, what="the agent beats")  # noqa: B023
        if said * ROUNDS >= messages * len(sizes):
            sizes.append(facts(agent))
    assert agent.is_alive(), agent.output.read_text()[-3_000:]
    assert "Traceback" not in agent.output.read_text()
    assert (other / "started.json").read_bytes() == before
    assert not (other / "exit.json").exists()
    assert not (mine / "exit.json").exists(), "the shim has obeyed what was no order"
    return {
        "words_to_the_agent": said,
        "agent_sizes_mib": [each["mib"] for each in sizes],
        "agent_files_most": max(each["files"] for each in sizes),
    }


@pytest.mark.long("fuzz/test_job_side.py", "unit/nodeagent/shim/test_shim_commands.py")
def test_a_foul_job_hurts_no_agent_and_no_other_job(
    tmp_path: Path, site: tuple[StubMaster, AgentProcess]
) -> None:
    foul(tmp_path, *site, SHORT)


@pytest.mark.torture
def test_a_foul_job_makes_no_agent_grow(
    tmp_path: Path, site: tuple[StubMaster, AgentProcess]
) -> None:
    found = foul(tmp_path, *site, MESSAGES)
    assert not grew(found["agent_sizes_mib"])
    assert found["agent_files_most"] < MOST_FILES
    (tmp_path / "read").mkdir()
    outcomes = read_all(tmp_path / "read", MESSAGES)
    proved("words of a job", crashes=0, other_jobs_harmed=0, **found, **outcomes)


# --- the servers of a job's steps ---------------------------------------------------------------


class Record(threading.Thread):
    """Stands in front of the server of steps, and keeps what a real `srun` says first."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self.place, self.real = directory / "steps.sock", directory / "real.sock"
        self.said: list[bytes] = []
        os.rename(self.place, self.real)
        self.door = socket.socket(socket.AF_UNIX)
        self.door.bind(str(self.place))
        os.chmod(self.place, 0o600)
        self.door.listen(16)

    def run(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self.door.accept()
                threading.Thread(target=self._pass, args=(line,), daemon=True).start()

    def end(self) -> None:
        """The server is at its place again."""
        self.door.shutdown(socket.SHUT_RDWR)
        self.door.close()
        os.rename(self.real, self.place)

    def _pass(self, line: socket.socket) -> None:
        at = len(self.said)
        self.said.append(b"")
        with line, dialled(self.real) as to:
            back = threading.Thread(target=self._copy, args=(to, line), daemon=True)
            back.start()
            with suppress(OSError):
                while piece := line.recv(65_536):
                    self.said[at] += piece
                    to.sendall(piece)
                to.shutdown(socket.SHUT_WR)
            back.join(30.0)

    def _copy(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65_536):
                to.sendall(piece)


SCRIPT = """
until test -e {0}/record; do sleep 0.05; done
srun -l true && touch {0}/recorded
until test -e {0}/again; do sleep 0.05; done
srun -l echo fine > {0}/told; exec sleep 3600
"""


def at_steps(node: TwoNodes, messages: int) -> dict[str, Any]:
    """Lines to the servers of both ranks: raw, and with the job's own proof."""
    root = node.directory
    first = node.start(SCRIPT.format(root))
    batches = [process.pid for process in node.started]
    own = node.job_dir(0) / "steps.sock"
    wait_until(own.exists, what="the server of steps")
    record = Record(node.job_dir(0))
    record.start()
    (root / "record").touch()
    wait_until((root / "recorded").exists, what="a real step has run")
    record.end()
    wait_until(lambda: len(children_of(batches[0])) <= 1, what="the real step has ended")
    kids = [len(children_of(pid)) for pid in batches]
    real = tuple(said for said in record.said if said)
    assert len(real) > 1
    words, sizes = JobWords(f"{SEED}/steps", real), list[list[int]]()
    ports = [int(peer.split()[2]) for peer in node.shared["DLQ_STEP_PEERS"].split(";")]
    key = bytes.fromhex(node.shared["DLQ_STEP_KEY"])
    for number in range(messages):
        rank = number % 2
        with suppress(OSError):
            kind = words.chance.random()
            if kind < 0.3:
                with dialled(node.job_dir(rank) / "steps.sock") as line:
                    line.sendall(words.steps_line())
            elif kind < 0.5:
                with socket.create_connection(("127.0.0.1", ports[rank]), timeout=10.0) as line:
                    line.sendall(words.steps_line())
            else:
                with admitted(ports[rank], key, rank) as line:
                    line.sendall(words.steps_line())
        if number * ROUNDS >= messages * len(sizes):
            sizes.append([size_kib(pid) for pid in batches])
    assert [process.poll() for process in node.started] == [None, None]
    (root / "again").touch()
    wait_until(
        lambda: (root / "told").exists() and (root / "told").read_text().count("fine") == 4,
        what="a step still runs on both nodes",
    )
    assert first.poll() is None
    wait_until(
        lambda: [len(children_of(pid)) for pid in batches] <= kids,
        what="nothing is left of any line",
    )
    return {"lines_to_steps": messages, "steps_sizes_kib": [each[0] for each in sizes]}


@pytest.mark.long("unit/compat/test_steps.py")
def test_foul_words_leave_the_servers_of_steps_whole(job: TwoNodes) -> None:
    at_steps(job, SHORT)


@pytest.mark.torture
def test_foul_words_make_no_server_of_steps_grow(job: TwoNodes) -> None:
    found = at_steps(job, MESSAGES // 10)
    sizes = found["steps_sizes_kib"]
    assert sizes[-1] <= sizes[1] + SLACK_KIB
    proved("words to the servers of steps", crashes=0, hangs=0, **found)


# --- the server of a rank's stdin ---------------------------------------------------------------


class StdinRank:
    """The main process of a rank that reads a client's input, and what has become of it."""

    def __init__(self, root: Path) -> None:
        self.path, self.ended = root / "stdin", Counter[str]()
        self._words = [str(ensure_program(STDIN_NAME)), "pipe", str(self.path), "--"]
        self.process = self._start()

    def look(self) -> int:
        """Start it again when an input has come to its end. Its size in KiB."""
        code = self.process.poll()
        if code is not None:
            assert code == 0, f"it has ended with {code}"
            self.ended["inputs that ended"] += 1
            self.process = self._start()
        return size_kib(self.process.pid)

    def end(self) -> None:
        """It, and what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def greets(self) -> bool:
        """Whether a client that comes now is told how much was taken."""
        with suppress(OSError), dialled(self.path) as line:
            return line.recv(6) == b"taken "
        return False

    def _start(self) -> subprocess.Popen[bytes]:
        with suppress(FileNotFoundError):
            self.path.unlink()
        process = subprocess.Popen(
            [*self._words, "/bin/sh", "-c", "cat > /dev/null"], start_new_session=True
        )
        wait_until(self._answers, what="it listens")
        return process

    def _answers(self) -> bool:
        with suppress(OSError), dialled(self.path):
            return True
        return False


def at_stdin(root: Path, messages: int) -> dict[str, Any]:
    """Lines to it; then an honest client is heard."""
    rank, words, sizes = StdinRank(root), JobWords(f"{SEED}/stdin"), list[int]()
    try:
        for number in range(messages):
            with suppress(OSError), dialled(rank.path) as line:
                line.sendall(words.stdin_line())
            if number * ROUNDS >= messages * len(sizes):
                sizes.append(rank.look())
        rank.look()
        # The lines of before are in front of this one.
        wait_until(rank.greets, what="an honest client is heard")
    finally:
        rank.end()
    return {"lines_to_stdin": messages, "stdin_sizes_kib": sizes, **rank.ended}


@pytest.mark.long("integration/test_rank_stdin.py")
def test_foul_words_leave_the_server_of_stdin_whole(tmp_path: Path) -> None:
    at_stdin(tmp_path, SHORT)


@pytest.mark.torture
def test_foul_words_make_no_server_of_stdin_grow(tmp_path: Path) -> None:
    found = at_stdin(tmp_path, MESSAGES // 10)
    sizes = found["stdin_sizes_kib"]
    assert sizes[-1] <= sizes[1] + SLACK_KIB
    proved("words to the server of stdin", crashes=0, hangs=0, **found)
