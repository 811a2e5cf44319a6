"""`strigger`, `seff`, and variables that change what other programs say, against canned answers."""

from __future__ import annotations

import grpc
import pytest

from dlq.v1 import job_pb2, queue_pb2
from dlq_cli.output.render import OutputLook
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.wire_jobs import a_job, a_node

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--get", 0, ""),
        ("--get --noheader --jobid=3", 0, ""),
        ("", 1, "strigger: error: You must use exactly one of the following options: --set, "),
        ("--get --set", 1, "strigger: error: You must use exactly one of the following options: "),
        ("--bogus", 1, "strigger: unrecognized option '--bogus'"),
        ("--set", 1, "strigger: error: You must specify a trigger (--down, "),
        ("--set --fini", 1, "strigger: error: You must specify a --program value"),
        ("--set --fini -p x", 1, "strigger: error: You must specify a --jobid value"),
        ("--set -f -j 3 -p x", 1, "slurm_set_trigger: Access/permission denied"),
        ("--set --node --down -p x", 1, "slurm_set_trigger: Access/permission denied"),
        ("--clear", 1, "strigger: error: You must specify a --id, --jobid, or --user to clear"),
    ],
)
def test_there_are_no_triggers(words: str, code: int, said: str, dlq: Dlq) -> None:
    told = dlq("slurm", "strigger", *words.split())
    assert (told.code, told.out, told.err[: len(said)]) == (code, "", said)


@pytest.mark.parametrize(
    ("words", "way"),
    [
        ("--fini --jobid=3", "dlq notify add webhook"),
        ("--time --jobid=3", "sbatch --signal=B:USR1@300"),
        ("--node --drained", "dlq events -w --node NODE"),
        ("--reconfig", "deploy/monitoring"),
    ],
)
def test_another_way_is_named(words: str, way: str, dlq: Dlq) -> None:
    told = dlq("slurm", "strigger", "--set", *words.split(), "--program=/home/ann/x.sh")
    assert way in told.err


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("sbatch nofile", 77),
        ("sbatch -p nope --wrap=true", 77),
        ("sbatch --bogus --wrap=true", 255),
        ("sbatch -n x --wrap=true", 1),
        ("squeue -j x", 1),
    ],
)
def test_an_error_of_a_submission_has_the_code_that_was_asked_for(
    line: str, code: int, dlq: Dlq, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_EXIT_ERROR", "77")
    if "nope" in line:
        status = grpc.StatusCode.INVALID_ARGUMENT
        master.refuse_once("SubmitJob", status, "INVALID_REQUEST", field="spec.queue")
    assert dlq("slurm", *line.split()).code == code


def test_seff_of_a_job_that_is_not_there(dlq: Dlq) -> None:
    told = dlq("slurm", "seff", "999")
    assert (told.code, told.out, told.err) == (2, "", "Job not found.\n")
    assert dlq("slurm", "seff").out.startswith("Usage: seff [Options] <Jobid>")


def test_a_script_of_somebody_else_steers_no_terminal(
    dlq: Dlq, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "#!/bin/sh\n\x1b]0;root@master\x07\x1b[2Jecho hi\n"
    master.jobs = {"17": a_job(17, "running")}
    master.specs["17"] = job_pb2.JobSpec(script=hostile, compat="slurm")
    words = ("slurm", "scontrol", "write", "batch_script", "17", "-")
    assert "\x1b]0;root@master\x07" in dlq(*words).out
    look = OutputLook(tty=True, color=False, now_s=0.0)
    monkeypatch.setattr("dlq_cli.app.App.look", lambda _app: look)
    assert dlq(*words).out == "#!/bin/sh\necho hi\n"
    assert "\x1b" not in dlq("slurm", "sacct", "-B", "-j", "17").out


def test_the_partition_of_sinfo_may_be_a_variable(
    dlq: Dlq, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.queues = [queue_pb2.Queue(name=name) for name in ("cpu", "gpu")]
    monkeypatch.setenv("SINFO_PARTITION", "gpu")
    assert dlq("slurm", "sinfo", "-h", "-o", "%R").out == "gpu\n"
    assert dlq("slurm", "sinfo", "-h", "-o", "%R", "-p", "cpu").out == "cpu\n"


def test_the_order_of_sinfo_is_that_which_was_asked_for(
    dlq: Dlq, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.queues = [queue_pb2.Queue(name="gpu")]
    master.nodes = {"n1": a_node("n1", free=0, attempts=["7.1"]), "n2": a_node("n2")}
    words = ("slurm", "sinfo", "-N", "-h", "-o", "%N")
    assert dlq(*words).out == "n1\nn2\n"
    assert dlq(*words, "-S", "-N").out == "n2\nn1\n"
    monkeypatch.setenv("SINFO_SORT", "+t")
    assert dlq(*words).out == "n2\nn1\n"  # idle, then allocated


def test_another_cluster_may_be_a_variable(dlq: Dlq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    for line in ("sinfo", "squeue", "scancel 7", "scontrol show job 7"):
        told = dlq("slurm", *line.split())
        assert told.code == 1
        assert "No cluster 'other' known by database." in told.err


def test_a_format_of_instants_that_is_none_is_told(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_TIME_FORMAT", "bogus")
    assert dlq("slurm", "squeue").err == "squeue: error: invalid SLURM_TIME_FORMAT = 'bogus'\n"
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    assert dlq("slurm", "squeue").err == ""


def test_a_letter_that_sorts_nothing_is_refused(dlq: Dlq) -> None:
    told = dlq("slurm", "squeue", "-h", "-S", "K")
    assert (told.code, told.err) == (1, "squeue: error: Invalid sort specification: K\n")


def test_a_job_that_is_never_queued_again_is_not_requeued(dlq: Dlq, master: FakeMaster) -> None:
    master.jobs = {"17": a_job(17, "running")}
    master.specs["17"] = job_pb2.JobSpec(script="#!/bin/sh\n", no_requeue=True)
    told = dlq("slurm", "scontrol", "requeue", "17")
    assert (told.code, told.err) == (1, "Requested operation is presently disabled for job 17\n")
    assert not master.requests("RequeueJob")
