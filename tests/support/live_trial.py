"""A PyTorch job under torchrun is given a second node while it trains, and gives it back: its
torchrun stays.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dlq.v1 import job_pb2
from support.framework_trial import PLAIN, make_out
from support.step_log import runs_on, steps, worlds
from support.users_view import UsersView

from quick import quick  # isort: skip  # the examples are scripts, not packages

SILENCE = 'ttl = "6s"\nunreachable = "10s"'
SETTINGS = quick(lease=SILENCE, settings=', cooldown_s = "5"')
NODES = ("e2e-a", "e2e-b")
STEPS = 400
ELASTIC = ("-N", "1", "--gpus-per-node", "2", "--elastic", "2:4", "--elastic-mode", "live")
WIDE = ("--gpus", "14")
FOR_EVER = ("--", "/bin/sleep", "infinity")
TELL_PID = 'echo "$DLQ_NODE_RANK $$ $PET_NNODES" >> "$PIDS"; exec "$@"'


class LiveTraining:
    """Submitted beside another job that leaves it room for its base only. `options`: how each of
    them is submitted.
    """

    def __init__(self, user: UsersView, root: Path, *options: str, script: Path = PLAIN.script):
        self.user = user
        out, self.unhurried = make_out(root)
        self.log, self.pids = root / "steps", root / "pids"
        words = replace(PLAIN, script=script).command(
            out, "--global-batch", "64", "--step-log", str(self.log), "--save-every", "1000",
            "--unhurried-while", str(self.unhurried), "--if-stopped", "1",
            torchrun=("--redirects", "0"),
        )  # fmt: skip
        self.other = user.submit(*options, *WIDE, *FOR_EVER)
        user.wait(self.other, lambda now: bool(now.node_ids), "the other job runs")
        self.job = user.submit(
            *options, "-J", "live-ddp", *ELASTIC, "--env", f"PIDS={self.pids}",
            "--checkpoint-preset", "torchrun", "--checkpoint-dir", str(out),
            "--checkpoint-marker", "ckpt-*.pt", "-D", str(root),
            "--", "sh", "-c", TELL_PID, "sh", *words,
        )  # fmt: skip
        self.until(lambda now: runs_on(now, 2) and steps(self.log) != [], "it trains on its base")

    def until(self, true: Callable[[job_pb2.Job], bool], what: str) -> None:
        self.user.wait(self.job, true, what)

    def resized(self) -> list[tuple[str, str, str]]:
        events = (each for each in self.user.events(self.job) if each["kind"] == "job_resized")
        return [(it["data"]["from"], it["data"]["to"], it["data"]["mode"]) for it in events]

    def end(self, ranks: str = "01") -> None:
        """Each step was done once, by these torchruns: in one attempt for each of rank 0."""
        self.unhurried.unlink()
        state = self.user.wait_for_end(self.job).state
        assert state == job_pb2.JOB_STATE_COMPLETED, self.user.tale(self.job)
        assert steps(self.log) == list(range(1, STEPS + 1)), "each once, in order"
        shown = self.user.show(self.job)
        assert (shown["attempt_count"], shown["preemption_count"]) == (ranks.count("0"), 0)
        told = [line.split() for line in self.pids.read_text().splitlines()]
        assert "".join(rank for rank, *_ in told) == ranks, "none twice, however often asked"
        assert {nodes for *_, nodes in told} == {"1:2"}


def grow_and_shrink(
    user: UsersView, root: Path, *options: str, disturb: Callable[[], None] = lambda: None
) -> None:
    """`disturb`: done once it has begun to grow, and once it has begun to shrink, whether or not
    that is over.
    """
    training = LiveTraining(user, root, *options)
    log = training.log
    user.dlq("cancel", training.other)
    training.until(lambda now: bool(now.elastic.next_gpu_count) or runs_on(now, 4), "it grows")
    disturb()
    training.until(lambda now: runs_on(now, 4) and worlds(log) == [2, 4], "it has grown")
    assert len(set(user.show(training.job)["nodes"])) == 2

    second = user.submit(*options, *WIDE, *FOR_EVER)
    training.until(lambda now: bool(now.elastic.next_gpu_count) or runs_on(now, 2), "it shrinks")
    disturb()
    training.until(lambda now: runs_on(now, 2) and worlds(log) == [2, 4, 2], "it has shrunk")
    user.wait(second, lambda now: bool(now.node_ids), "the other has got its GPUs")
    training.end()  # the other stays meanwhile, lest it grow once more
    user.dlq("cancel", "--kill", second)
    user.wait_for_end(second)
    assert training.resized() == [("2", "4", "live"), ("4", "2", "live")]
    assert user.output(training.job).count("resumes") >= 2, "its workers have been started again"


FAILS_ELSEWHERE = """
import os, runpy, sys
if os.environ["DLQ_NODE_RANK"] != "0":
    sys.exit("this node is no good")
sys.path.insert(0, {directory!r})
runpy.run_path({script!r}, run_name="__main__")
"""


def grow_to_where_it_fails(user: UsersView, root: Path) -> None:
    script = root / "fails_elsewhere.py"
    real = PLAIN.script
    script.write_text(FAILS_ELSEWHERE.format(directory=str(real.parent), script=str(real)))
    training = LiveTraining(user, root, script=script)
    user.dlq("cancel", training.other)
    training.until(lambda now: runs_on(now, 4), "it has grown")
    training.until(lambda now: runs_on(now, 2) and now.attempt_count == 2, "it starts without it")
    done = len(steps(training.log))
    training.until(lambda _: len(steps(training.log)) > done + 3, "it trains on without it")
    training.end("010")
    assert training.resized() == [("2", "4", "live")], "and does not try that node again"
    assert "join_failed" in user.tale(training.job)
    assert set(worlds(training.log)) == {2}
