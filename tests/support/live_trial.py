"""A PyTorch job under torchrun is given a second node while it trains, and gives it back: its torchrun stays."""

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


def train_live(user: UsersView, tmp_path: Path, *options: str) -> None:
    """`options`: how each of its jobs is submitted."""
    out, unhurried = make_out(tmp_path)
    log, pids = tmp_path / "steps", tmp_path / "pids"
    words = PLAIN.command(
        out, "--global-batch", "64", "--step-log", str(log), "--save-every", "1000",
        "--unhurried-while", str(unhurried), "--if-stopped", "1", torchrun=("--redirects", "0"),
    )  # fmt: skip
    first = user.submit(*options, *WIDE, *FOR_EVER)
    user.wait(first, lambda now: bool(now.node_ids), "the other job runs")
    job = user.submit(
        *options, "-J", "live-ddp", *ELASTIC, "--env", f"PIDS={pids}",
        "--checkpoint-preset", "torchrun", "--checkpoint-dir", str(out),
        "--checkpoint-marker", "ckpt-*.pt", "-D", str(tmp_path),
        "--", "sh", "-c", TELL_PID, "sh", *words,
    )  # fmt: skip
    user.wait(job, lambda now: runs_on(now, 2) and steps(log) != [], "it trains on its base")

    user.dlq("cancel", first)
    user.wait(job, lambda now: runs_on(now, 4) and worlds(log) == [2, 4], "it has grown")
    assert len(set(user.show(job)["nodes"])) == 2

    second = user.submit(*options, *WIDE, *FOR_EVER)
    user.wait(job, lambda now: runs_on(now, 2) and worlds(log) == [2, 4, 2], "it has shrunk")
    user.wait(second, lambda now: bool(now.node_ids), "the other has got its GPUs")
    unhurried.unlink()  # and the other stays, lest it grow once more while it ends

    state = user.wait_for_end(job).state
    user.dlq("cancel", "--kill", second)
    user.wait_for_end(second)
    assert state == job_pb2.JOB_STATE_COMPLETED, user.tale(job)
    assert steps(log) == list(range(1, STEPS + 1)), "each once, in order"
    shown = user.show(job)
    assert (shown["attempt_count"], shown["preemption_count"]) == (1, 0)
    resized = [each["data"] for each in user.events(job) if each["kind"] == "job_resized"]
    assert [(it["from"], it["to"], it["mode"]) for it in resized] == [
        ("2", "4", "live"),
        ("4", "2", "live"),
    ]
    told = [line.split() for line in pids.read_text().splitlines()]
    assert [rank for rank, *_ in told] == ["0", "1"], "one torchrun on each, however often asked"
    assert {nodes for *_, nodes in told} == {"1:2"}
    assert user.output(job).count("resumes") >= 2, "its workers have been started again"
