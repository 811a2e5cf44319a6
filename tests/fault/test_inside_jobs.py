"""`dlq exec`, `attach` and `run` on real daemons, some of which die meanwhile."""

import os
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from fault.test_run_stdin import as_another, cut_often
from support.harness import BIN, Daemons
from support.process_box import is_alive
from support.terminal import Terminal
from support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long("integration/test_rpc_exec.py")]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master and one node with eight virtual GPUs."""
    made = Daemons(tmp_path_factory.mktemp("inside"), ("n1",))
    with made.up():
        yield made


def dlq(
    daemons: Daemons, *arguments: str, stdin: bytes = b"", timeout_s: float = 60.0
) -> subprocess.CompletedProcess[bytes]:
    return daemons.ran(str(BIN / "dlq"), *arguments, stdin=stdin, timeout_s=timeout_s)


def started(daemons: Daemons, *arguments: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A `dlq` that goes on; killed at the end of the block."""
    return daemons.begun(str(BIN / "dlq"), *arguments, stdin=subprocess.PIPE)


@contextmanager
def running_job(daemons: Daemons, script: str = "echo up; exec sleep 1000") -> Iterator[str]:
    """The number of a job that runs; cancelled at the end."""
    asked = ("submit", "--parsable", "-G", "1", "--env", "COLOUR=blue", "--", "sh", "-c", script)
    job_id = daemons.said(*asked).strip()
    daemons.said("wait", "--for", "running", "--timeout", "60s", job_id)
    try:
        yield job_id
    finally:
        daemons.dlq("cancel", "--kill", job_id)


def line_of(process: "subprocess.Popen[bytes]") -> bytes:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 60.0)
    assert ready, "it says nothing"
    line: bytes = process.stdout.readline()
    return line


def test_a_command_has_the_jobs_directory_environment_and_gpus(daemons: Daemons) -> None:
    with running_job(daemons) as job_id:
        script = "echo $DLQ_JOB_ID $COLOUR $DLQ_VIRTUAL_DEVICES; pwd; cat >&2; exit 5"
        done = dlq(daemons, "exec", job_id, "--", "sh", "-c", script, stdin=b"typed")
    first, where = done.stdout.decode().splitlines()
    number, colour, devices = first.split()
    assert (number, colour, where) == (job_id, "blue", "/tmp")
    assert devices
    assert done.stderr == b"typed"
    assert done.returncode == 5


def test_ten_megabytes_pass_and_none_is_lost(daemons: Daemons) -> None:
    data = os.urandom(10 << 20)
    with running_job(daemons) as job_id:
        done = dlq(daemons, "exec", job_id, "--", "cat", stdin=data)
    assert done.returncode == 0
    assert done.stdout == data


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["sh", "-c", "kill -USR1 $$"], 128 + signal.SIGUSR1, ""),
        (["no-such-program"], 127, "no-such-program"),
        (["/etc/passwd"], 126, "/etc/passwd"),
    ],
)
def test_how_a_command_ends_is_the_exit_code(
    daemons: Daemons, command: list[str], code: int, words: str
) -> None:
    with running_job(daemons) as job_id:
        done = daemons.dlq("exec", "-n", job_id, "--", *command)
    assert done.code == code
    assert words in done.err


def test_a_caller_that_is_killed_takes_its_command_along(daemons: Daemons) -> None:
    with running_job(daemons) as job_id:
        with started(daemons, "exec", job_id, "--", "sh", "-c", "echo $$; sleep 1000") as caller:
            pid = int(line_of(caller))
            assert is_alive(pid)
        wait_until(lambda: not is_alive(pid), what="the end of the command", timeout_s=90.0)
        assert "running" in daemons.said("status", job_id)


def test_ctrl_c_ends_the_command_and_not_the_job(daemons: Daemons) -> None:
    with running_job(daemons) as job_id:
        with started(daemons, "exec", job_id, "--", "sh", "-c", "echo $$; sleep 1000") as caller:
            pid = int(line_of(caller))
            caller.send_signal(signal.SIGINT)
            assert caller.wait(timeout=60.0) == 130
        wait_until(lambda: not is_alive(pid), what="the end of the command", timeout_s=90.0)
        assert "running" in daemons.said("status", job_id)


def test_a_caller_goes_away_while_its_command_reads_nothing(daemons: Daemons) -> None:
    with running_job(daemons) as job_id:
        with started(daemons, "exec", job_id, "--", "sh", "-c", "echo $$; sleep 1000") as caller:
            pid = int(line_of(caller))
            assert caller.stdin is not None
            os.set_blocking(caller.stdin.fileno(), False)
            with suppress(BlockingIOError):
                while True:
                    os.write(caller.stdin.fileno(), b"x" * 65_536)
        wait_until(lambda: not is_alive(pid), what="the end of the command", timeout_s=90.0)


def test_the_end_of_the_job_ends_its_commands_and_is_not_held_up(daemons: Daemons) -> None:
    with (
        running_job(daemons) as job_id,
        started(
            daemons, "exec", job_id, "--", "sh", "-c", "trap '' TERM; echo $$; sleep 1000"
        ) as caller,
    ):
        pid = int(line_of(caller))
        assert daemons.dlq("cancel", "--kill", job_id).code == 0
        assert caller.wait(timeout=60.0) == 128 + signal.SIGKILL
        assert caller.stderr is not None
        assert b"the job's rank has ended" in caller.stderr.read()
        assert not is_alive(pid)
        assert daemons.dlq("wait", "--timeout", "60s", job_id).code == 1


def test_a_job_that_has_ended_has_no_inside(daemons: Daemons) -> None:
    with running_job(daemons) as job_id:
        pass
    daemons.dlq("wait", job_id)
    done = daemons.dlq("exec", job_id, "--", "true")
    assert done.code == 1
    assert "nothing of it runs" in done.err


def test_a_terminal_is_passed_through(daemons: Daemons) -> None:
    with running_job(daemons) as job_id:
        said, code = at_terminal(
            daemons, ["exec", "-t", job_id, "--", "sh"], "tty && stty size && exit 4\n"
        )
    assert "/dev/pts/" in said
    assert re.search(r"\n\d+ \d+\n", said)
    assert code == 4


def test_ctrl_c_at_a_terminal_is_the_commands(daemons: Daemons) -> None:
    with running_job(daemons) as job_id:
        said, code = at_terminal(
            daemons,
            [
                "exec",
                "-t",
                job_id,
                "--",
                "sh",
                "-c",
                "trap 'echo caught; exit 6' INT; echo ok; sleep 99 & wait",
            ],
            "\x03",
            after="ok\n",
        )
    assert "caught" in said
    assert code == 6


def test_a_terminal_is_not_given_where_there_is_none(daemons: Daemons) -> None:
    with running_job(daemons) as job_id:
        done = daemons.dlq("exec", "-t", job_id, "--", "sh")
    assert done.code == 2
    assert "needs a terminal" in done.err


def at_terminal(
    daemons: Daemons, arguments: list[str], typed: str, *, after: str = ""
) -> tuple[str, int]:
    """What is seen of a `dlq` at a terminal, where this is typed once `after` was said."""
    with Terminal([str(BIN / "dlq"), *arguments], daemons.environment()) as terminal:
        terminal.expect(after)
        terminal.press(typed)
        code = terminal.end()
        return terminal.shown, code


def test_attach_shows_what_comes_and_leaves_the_job_alone(daemons: Daemons) -> None:
    with (
        running_job(
            daemons, "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.1; done"
        ) as job_id,
        started(daemons, "attach", job_id) as watcher,
    ):
        assert line_of(watcher).startswith(b"line ")
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(timeout=60.0) == 130
        assert watcher.stderr is not None
        assert f"dlq cancel {job_id}".encode() in watcher.stderr.read()
        assert "running" in daemons.said("status", job_id)


def test_attach_exits_as_the_job_does(daemons: Daemons) -> None:
    go = daemons.root / "bye"
    script = f"until [ -e {go} ]; do echo up; sleep 0.1; done; echo bye; exit 9"
    with running_job(daemons, script) as job_id, started(daemons, "attach", job_id) as watcher:
        assert line_of(watcher) == b"up\n"
        go.touch()
        said, _ = watcher.communicate(timeout=60.0)
    assert (watcher.returncode, said.splitlines()[-1]) == (9, b"bye")


def test_attach_says_where_nothing_can_be_typed_into_a_job(daemons: Daemons) -> None:
    done = daemons.dlq("attach", "--stdin", "1")
    assert done.code == 2
    assert "the stdin of job 1 is empty" in done.err
    assert "dlq shell 1" in done.err


def test_run_prints_the_output_alone_and_exits_as_the_job_does(daemons: Daemons) -> None:
    done = dlq(daemons, "run", "-G", "1", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert sorted(done.stdout.splitlines()) == [b"err", b"out"]
    assert b"is queued" in done.stderr
    assert done.returncode == 7


def test_the_first_ctrl_c_of_run_goes_to_the_job(daemons: Daemons) -> None:
    script = "trap 'echo caught; exit 3' INT; echo up; while :; do sleep 0.1; done"
    with started(daemons, "run", "-G", "1", "--", "sh", "-c", script) as runner:
        assert line_of(runner) == b"up\n"
        runner.send_signal(signal.SIGINT)
        assert line_of(runner) == b"caught\n"
        assert runner.wait(timeout=60.0) == 3


def test_the_second_ctrl_c_of_run_cancels_the_job(daemons: Daemons) -> None:
    script = "trap '' INT; echo up; while :; do sleep 0.1; done"
    with started(daemons, "run", "-G", "1", "--", "sh", "-c", script) as runner:
        assert line_of(runner) == b"up\n"
        runner.send_signal(signal.SIGINT)
        runner.send_signal(signal.SIGINT)
        # Two signals at once may be one: a third press within the two seconds makes sure.
        assert runner.stderr is not None
        said = b""
        while b"being cancelled" not in said:
            line = runner.stderr.readline()
            assert line, said
            said += line
            if b"press again within" in line:
                runner.send_signal(signal.SIGINT)
        job_id = re.search(rb"job (\d+) is being", said)
        assert job_id
        assert runner.wait(timeout=60.0) in (1, 130, 128 + signal.SIGTERM)


COUNTING = "n=0; while read line; do n=$((n+1)); echo $n $line; echo err-$n >&2; done; exit 9"


@pytest.mark.parametrize("in_order", [False, True], ids=["killed", "stopped"])
def test_a_command_goes_on_when_the_master_is_restarted(daemons: Daemons, in_order: bool) -> None:
    """No line is lost and none comes twice, in both directions, nor while nobody serves."""
    with (
        running_job(daemons) as job_id,
        started(daemons, "exec", job_id, "--", "sh", "-c", COUNTING) as caller,
    ):
        assert caller.stdin is not None
        caller.stdin.write(b"before\n")
        caller.stdin.flush()
        assert line_of(caller) == b"1 before\n"
        (daemons.stop if in_order else daemons.kill)("master")
        caller.stdin.write(b"".join(b"during %d\n" % number for number in range(2_000)))
        caller.stdin.flush()
        daemons.start("master")
        daemons.wait_for("master")
        out, err = caller.communicate(b"after\n", timeout=60.0)
        assert caller.returncode == 9
        lines = [b"during %d" % number for number in range(2_000)] + [b"after"]
        assert out.splitlines() == [b"%d %s" % (n, line) for n, line in enumerate(lines, 2)]
        told = [line for line in err.splitlines() if line.startswith(b"err-")]
        assert told == [b"err-%d" % n for n in range(1, 2_003)]


def test_output_that_nobody_hears_waits_for_the_caller(daemons: Daemons) -> None:
    """More than the agent keeps: the command stands still meanwhile."""
    script = "echo up; seq 400000; exit 4"
    with (
        running_job(daemons) as job_id,
        started(daemons, "exec", "-n", job_id, "--", "sh", "-c", script) as caller,
    ):
        assert line_of(caller) == b"up\n"
        daemons.kill("master")
        daemons.start("master")
        daemons.wait_for("master")
        out, _ = caller.communicate(timeout=60.0)
        assert caller.returncode == 4
        assert out == b"".join(b"%d\n" % number for number in range(1, 400_001))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_output_over_a_line_that_is_cut_often_is_whole(daemons: Daemons, seed: int) -> None:
    data = os.urandom(8 << 20)
    source = daemons.root / "source"
    source.write_bytes(data)
    with running_job(daemons) as job_id, cut_often(daemons, seed) as (proxy, home):
        words = ("exec", "-n", job_id, "--", "cat", str(source))
        done = as_another(daemons, home, *words, stdin=b"")
        assert proxy.cuts > 0
    assert done.returncode == 0, done.stderr
    assert done.stdout == data


def test_an_end_that_nobody_heard_is_told_to_the_caller_who_comes_back(daemons: Daemons) -> None:
    flag = daemons.root / "end"
    script = f"echo up; until [ -e {flag} ]; do sleep 0.1; done; echo last; exit 6"
    with (
        running_job(daemons) as job_id,
        started(daemons, "exec", "-n", job_id, "--", "sh", "-c", script) as caller,
    ):
        assert line_of(caller) == b"up\n"
        daemons.kill("master")
        flag.touch()
        daemons.start("master")
        daemons.wait_for("master")
        assert caller.communicate(timeout=60.0)[0] == b"last\n"
        assert caller.returncode == 6


@pytest.mark.long("integration/test_rpc_exec.py")
def test_a_caller_who_dies_with_the_master_leaves_no_command(daemons: Daemons) -> None:
    with (
        running_job(daemons) as job_id,
        started(daemons, "exec", job_id, "--", "sh", "-c", "echo $$; sleep 1000") as caller,
    ):
        pid = int(line_of(caller))
        daemons.kill("master")
        caller.kill()
        caller.communicate(timeout=60.0)
        daemons.start("master")
        daemons.wait_for("master")
        wait_until(lambda: not is_alive(pid), what="the end of the command", timeout_s=90.0)


@pytest.mark.long("integration/test_rpc_exec.py")
def test_an_agent_that_dies_takes_its_commands_along_and_no_job(daemons: Daemons) -> None:
    with running_job(daemons) as job_id:
        with started(daemons, "exec", job_id, "--", "sh", "-c", "echo $$; sleep 1000") as caller:
            pid = int(line_of(caller))
            daemons.kill("n1")
            wait_until(lambda: not is_alive(pid), what="the end of the command", timeout_s=90.0)
            daemons.start("n1")
            daemons.wait_for("n1")
            assert caller.wait(timeout=60.0) == 69
            assert caller.stderr is not None
            assert b"does not run on node n1 any more" in caller.stderr.read()
        wait_until(
            lambda: daemons.dlq("exec", "-n", job_id, "--", "true").code == 0,
            what="a command by the new agent",
            timeout_s=60.0,
        )


@pytest.mark.long("integration/test_rpc_exec.py")
def test_a_line_that_goes_silent_ends_the_command_on_the_node(daemons: Daemons) -> None:
    with (
        running_job(daemons) as job_id,
        started(daemons, "exec", job_id, "--", "sh", "-c", "echo $$; sleep 1000") as caller,
    ):
        pid = int(line_of(caller))
        daemons.freeze("master")
        try:
            # By keepalive, and not by gRPC's own patience of a minute.
            wait_until(lambda: not is_alive(pid), what="its end on the node", timeout_s=90.0)
            assert caller.wait(timeout=90.0) == 69
        finally:
            daemons.thaw("master")


def test_every_command_is_in_the_audit(daemons: Daemons) -> None:
    with running_job(daemons) as job_id:
        daemons.dlq("exec", "-n", job_id, "--", "true", "secret-argument")
        audit = Path(daemons.root / "master" / "audit.jsonl")

        def lines() -> list[str]:
            return [line for line in audit.read_text().splitlines() if "ExecJob" in line]

        wait_until(
            lambda: any(f'"{job_id}.1 rank 0: true"' in line for line in lines()), what="a line"
        )
        assert not any("secret-argument" in line for line in lines())


def test_a_label_decides_where_a_job_runs_and_why_it_waits(daemons: Daemons) -> None:
    assert daemons.dlq("admin", "node", "label", "n1", "rack=r1", "disk=fast").code == 0
    assert "disk=fast,rack=r1" in daemons.said("nodes")
    done = dlq(daemons, "run", "-C", "rack=r1&disk=fast", "-w", "n1", "--", "echo", "here")
    assert (done.returncode, done.stdout) == (0, b"here\n")
    refused = daemons.dlq("submit", "-C", "rack=r2", "--", "true")
    assert refused.code == 5
    assert "rack=r2" in refused.err
    assert daemons.dlq("submit", "-x", "n1", "--", "true").code == 5
    with running_job(daemons):
        job_id = daemons.said(
            "submit", "--parsable", "-C", "rack=r1", "-G", "8", "--", "true"
        ).strip()
        assert daemons.dlq("admin", "node", "label", "n1", "rack-").code == 0
        wait_until(
            lambda: "that is true of none of the 1 nodes" in daemons.said("why", job_id),
            what="the reason",
        )
        assert "rack=r1" in daemons.said("why", job_id)
        daemons.dlq("cancel", job_id)
