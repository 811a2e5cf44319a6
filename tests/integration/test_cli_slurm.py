"""`dlq slurm NAME`: what the stand-ins print, against a master of canned answers, and what tools
read of it.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from dlq.v1 import job_pb2, node_pb2, queue_pb2, resource_pb2
from dlq_common.text.wire import to_duration, to_timestamp
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.wire_jobs import EPOCH_S, a_job, a_node, an_event

pytestmark = pytest.mark.integration


def resources(gpus: int, **more: object) -> resource_pb2.ResourceRequest:
    return resource_pb2.ResourceRequest(gpu_count=gpus, **more)  # type: ignore[arg-type]


def a_cluster() -> FakeMaster:
    """Jobs that wait for each kind of reason, run, and have ended in each way."""
    master = FakeMaster()
    task = job_pb2.ArrayTask(array_id="39", index=4, task_count=8, concurrent_count=2)
    sized = resources(
        8, node_count=2, gpu_type="h100-80gb", cpu_limit=16, memory_limit_bytes=64 << 30
    )
    ended = {"end_time": to_timestamp(EPOCH_S + 120)}
    jobs = [
        a_job(
            17, "running", resources=sized, run_duration=to_duration(629),
            time_limit_duration=to_duration(86400), virtual_devices=True,
        ),
        a_job(18, wait_code="resources", resources=sized),
        a_job(19, wait_code="dependency", dependency="afterok:17"),
        a_job(20, "held", wait_code="held_user"),
        a_job(21, "held", hold_kind=job_pb2.HOLD_KIND_POISON, wait_code="poison"),
        a_job(22, wait_code="begin_time", begin_time=to_timestamp(EPOCH_S + 9000)),
        a_job(23, wait_code="head_of_line", nice=10),
        a_job(44, wait_code="array_limit", array_task=task),
        a_job(24, "running", run_duration=to_duration(93784), attempt_count=3),
        a_job(25, "pausing", stop_cause="preempt"),
        a_job(26, "preparing"),
        a_job(
            30, "completed", exit_code=0, end_reason="completed",
            start_time=to_timestamp(EPOCH_S + 60), end_time=to_timestamp(EPOCH_S + 120),
            run_duration=to_duration(60),
        ),
        a_job(31, "failed", exit_code=3, end_reason="user_error", **ended),
        a_job(32, "failed", exit_signal=9, end_reason="oom_host", **ended),
        a_job(33, "timed_out", end_reason="time_limit", **ended),
        a_job(34, "cancelled", end_reason="cancelled", **ended),
    ]  # fmt: skip
    master.jobs = {job.job_id: job for job in jobs}
    master.specs["17"] = job_pb2.JobSpec(
        script="#!/bin/sh\ntrue\n", working_directory="/data/run", tasks_per_node=4,
        labels={"comment": "third try"},
    )  # fmt: skip
    master.nodes = {
        "gpu01": a_node("gpu01", free=0, attempts=["17.1"]),
        "gpu02": a_node("gpu02", free=2, attempts=["17.1"]),
        "gpu03": a_node("gpu03", flags=["draining"], flag_reason="fan"),
        "gpu04": a_node("gpu04", state=node_pb2.NODE_STATE_UNREACHABLE),
        "gpu05": a_node("gpu05", labels={"rack": "r1"}),
    }
    master.queues = [
        queue_pb2.Queue(name="high", priority=5),
        queue_pb2.Queue(name="default", is_default=True),
    ]
    return master


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaster]:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("SQUEUE_FORMAT", raising=False)
    monkeypatch.delenv("SACCT_FORMAT", raising=False)
    monkeypatch.setattr("dlq_cli.slurm.job_words.uid", lambda user: 1000)
    time.tzset()
    running = a_cluster()
    yield running
    running.stop()
    monkeypatch.undo()
    time.tzset()


READS = [
    "squeue",
    "squeue --me -l",
    "squeue -r --start",
    "squeue -M all -j 17",
    "squeue -o '%i|%D|%C|%m|%b|%S|%K|%F|%A|%Q|%y|%E'",
    "squeue -O JobArrayID:8,StateCompact:4,Reason,tres-per-node:.24,TimeLeft --noheader",
    "squeue -h -t PD,CG -S -i -o '%i %r'",
    "squeue -j 17,9999 -h -o %i",
    "sacct",
    "sacct -b -j 30,31.batch,32",
    "sacct -X -P -j 17 -o JobID,AllocTRES,ReqMem,Elapsed,MaxRSS,DerivedExitCode,Cluster,NCPUS",
    "sacct -j 17 -o JobName%-12,JobID%4,Partition%3",
    "sacct -n -P -S 2020-01-01 -E now -s OOM,TO -o JobID,State,Reason",
    "sacct -j 17 -o ALL -P",
    "scontrol show job 17",
    "scontrol -o show job 18",
    "scontrol show config",
    "scontrol ping",
    "sinfo",
    "sinfo -N -o '%N %t %c %m %G %f'",
    "sinfo -R",
    "sinfo -p high -t idle,mix -h -o '%R %D %N'",
    "sinfo -h -o %P",
    "sinfo -O NodeList,CPUsState,GresUsed:30,StateComplete",
    "sinfo -l",
    "scontrol show node gpu03",
    "scontrol -o show partition default",
    "squeue -s",
    "squeue -o %z -j 17",
    "squeue --version",
]
REFUSED = [
    "squeue -j 9999",
    "squeue -t RUNING",
    "squeue -M elsewhere",
    "squeue --nosuch",
    "sacct -o Bogus",
    "sacct -S someday",
    "scancel",
    "scancel -s 99 17",
    "scontrol show job 9999",
    "scontrol delete 17",
    "scontrol update JobId=17 Bogus=1",
    "scontrol -M elsewhere hold 17",
    "sbatch --nosuch x",
    "sbatch --nodse 2 x",
    "sbatch -n1 : -n2 x",
]


@pytest.mark.parametrize("line", READS)
def test_text_of(line: str, dlq: Dlq, snapshot: SnapshotAssertion) -> None:
    said = dlq("slurm", *shlex.split(line))
    assert (said.code, said.err) == (0, "")
    assert _timeless(said.out) == snapshot


def _timeless(text: str) -> str:
    """Without the instants that depend on when the test runs."""
    text = re.sub(r"EndTime=2\d+\S+", "EndTime=T", text)
    text = re.sub(r"as of \S+", "as of T", text)
    text = re.sub(r"(SlurmctldPort|StoragePort)( +)= \d+", r"\1\2= N", text)
    return re.sub(r"^\w{3} \w{3} [ \d]\d [\d:]{8} \d{4}$", "NOW", text, flags=re.MULTILINE)


RECORDED = json.loads((Path(__file__).parent / "slurm_22_05_8.json").read_text())


@pytest.mark.parametrize("program", ["squeue", "sinfo"])
def test_every_letter_and_field_of_slurms_has_its_heading(program: str, dlq: Dlq) -> None:
    for letter, heading in RECORDED[program]["letters"].items():
        said = dlq("slurm", program, "-o", f"%{letter}")
        assert (letter, said.out.split("\n")[0], said.err) == (letter, heading, "")
    names = RECORDED[program]["names"]
    said = dlq("slurm", program, "-O", ",".join(f"{name}:40" for name in names))
    headings = said.out.split("\n")[0]
    told = [headings[at : at + 40].strip() for at in range(0, 40 * len(names), 40)]
    assert (dict(zip(names, told, strict=True)), said.err) == (names, "")


@pytest.mark.parametrize(("line", "kind"), [("squeue --json", "jobs"), ("sinfo --json", "nodes")])
def test_the_json_has_slurms_layout(line: str, kind: str, dlq: Dlq) -> None:
    page = json.loads(dlq("slurm", *line.split()).out)
    assert [*page] == ["meta", "errors", kind]
    assert page["meta"] == RECORDED["meta"]
    assert [*page[kind][0]] == RECORDED["keys"][kind]


def test_an_unknown_letter_stays_as_text_and_is_told(dlq: Dlq) -> None:
    said = dlq("slurm", "squeue", "-j", "17", "-h", "-o", "%~%i")
    assert (said.code, said.out) == (0, "%~17\n")
    assert said.err == "squeue: error: Invalid job format specification: ~\n"


@pytest.mark.parametrize("line", REFUSED)
def test_refusal_of(line: str, dlq: Dlq, snapshot: SnapshotAssertion) -> None:
    said = dlq("slurm", *shlex.split(line))
    misread = line.startswith(("sbatch --nosuch", "sbatch --nodse"))
    assert (said.code, said.out) == (255 if misread else 1, "")
    assert said.err == snapshot


def test_what_tools_call_is_answered_as_they_read_it(dlq: Dlq) -> None:
    calls = {
        # nextflow, SlurmExecutor: the queue's status, by user
        "squeue --noheader -o '%i %t' -t all -u alice": ("17 R", "30 CD", "39_[4%2] PD"),
        # submitit, SlurmInfoWatcher: one -j for each job
        "sacct -o JobID,State,NodeList --parsable2 -j 17 -j 30 -j 9999": (
            "JobID|State|NodeList", "17|RUNNING|gpu[01-02]", "30|COMPLETED|None assigned",
        ),
        # snakemake-executor-plugin-slurm: by the run's name
        "sacct -X --parsable2 --clusters all --noheader --format=JobIdRaw,State "
        "--starttime 2026-11-20T08:00 --endtime now --name train-31": ("31|FAILED",),
        "squeue '--format=%i|%T' --states=all --noheader --name train-33": ("33|TIMEOUT",),
        # parsl, SlurmProvider: an abbreviated option
        "squeue --noheader '--format=%i %t' --job 17,31": ("17 R",),
        "sacct -X --noheader --format=jobid,state --job 17,31": (
            "17              RUNNING", "31               FAILED",
        ),
        # psij
        "squeue -O JobArrayID,StateCompact,Reason --noheader --me": (
            "18                  PD                  Resources",
        ),
    }  # fmt: skip
    for line, expected in calls.items():
        said = dlq("slurm", *shlex.split(line))
        assert (said.code, said.err) == (0, ""), line
        told = [each.strip() for each in said.out.splitlines()]
        assert set(expected) <= set(told), (line, told)


@pytest.mark.parametrize(
    ("line", "method", "field", "value"),
    [
        ("scancel 17 --clusters=all", "CancelJob", "job_id", "17"),
        ("scancel -s 9 17", "CancelJob", "kill", True),
        ("scancel -s 10 17", "SignalJob", "signal", "USR1"),
        ("scancel --signal=sigterm 17", "SignalJob", "signal", "TERM"),
        ("scontrol update JobId=17 Name=other", "UpdateJob", "name", "other"),
        ("scontrol update job 17 Nice=5", "UpdateJob", "nice", 5),
        ("scontrol hold 17,18", "HoldJob", "job_id", "17"),
        ("scontrol uhold jobid=18", "HoldJob", "job_id", "18"),
        ("scontrol release 20", "ReleaseJob", "job_id", "20"),
        ("scontrol requeue 17", "RequeueJob", "job_id", "17"),
        ("scontrol requeuehold 17", "RequeueJob", "hold", True),
    ],
)
def test_what_changes_jobs_asks_for_the_same_as_ours(
    line: str, method: str, field: str, value: object, master: FakeMaster, dlq: Dlq
) -> None:
    said = dlq("slurm", *shlex.split(line))
    assert (said.code, said.out, said.err) == (0, "", "")
    assert getattr(master.requests(method)[0], field) == value


@pytest.mark.parametrize(
    ("change", "hours"),
    [
        ("TimeLimit=+60", 25),
        ("TimeLimit+=1:00:00", 25),
        ("timelimit-=120", 22),
        ("TimeLimit=60", 1),
    ],
)
def test_a_time_limit_may_be_changed_by_so_much(
    change: str, hours: int, master: FakeMaster, dlq: Dlq
) -> None:
    said = dlq("slurm", "scontrol", "update", "JobId=17", change)
    assert (said.code, said.out, said.err) == (0, "", "")
    assert master.requests("UpdateJob")[0].time_limit_duration.seconds == hours * 3_600


def test_a_time_limit_that_would_be_below_zero_is_refused(dlq: Dlq) -> None:
    said = dlq("slurm", "scontrol", "update", "JobId=17", "TimeLimit-=5-0")
    assert said.code == 1
    assert "Request aborted" in said.err


def test_scancel_by_state_takes_the_pending_ones_alone(master: FakeMaster, dlq: Dlq) -> None:
    assert dlq("slurm", "scancel", "--me", "-t", "CONFIGURING").code == 0
    assert [request.job_id for request in master.requests("CancelJob")] == ["26"]


# Measured on Slurm 22.05: a script has them of a variable that is not set.
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("-n", 0), ("-A", 0), ("-p", 0), ("-q", 0), ("-w", 0), ("-R", 0), ("-u", 1), ("-t", 1),
        ("--me -n", 0), ("", 1), ("17", 1),
    ],
)  # fmt: skip
def test_an_empty_word_cancels_nothing(words: str, code: int, master: FakeMaster, dlq: Dlq) -> None:
    assert dlq("slurm", "scancel", *words.split(), "").code == code
    assert not master.requests("CancelJob")
    assert not master.requests("CancelJobs")


@pytest.mark.parametrize("option", ["-n", "-A", "-p", "-u", "-t", "-q", "-j"])
def test_an_empty_word_lists_nothing(option: str, dlq: Dlq) -> None:
    said = dlq("slurm", "squeue", "-h", option, "")
    assert (said.code, said.out, said.err) == (0, "", "")


@pytest.mark.parametrize("option", ["-u", "-n", "-t"])
def test_an_empty_filter_is_refused(option: str, master: FakeMaster, dlq: Dlq) -> None:
    said = dlq("cancel", "-t", "running", option, "")
    assert (said.code, said.err) == (2, "dlq: the word behind -u, -n or -t is empty: which jobs?\n")
    assert not master.requests("ListJobs")


def test_formats_come_from_the_environment_too(master: FakeMaster, tmp_path: Path) -> None:
    home = master.home(tmp_path / "home")
    environ = {"SQUEUE_FORMAT": "%i", "SACCT_FORMAT": "JobID"}
    with_formats = Dlq(home, environ)
    assert with_formats("slurm", "squeue", "-h", "-j", "17").out == "17\n"
    assert with_formats("slurm", "sacct", "-nP", "-j", "17").out == "17\n"


def test_sacct_names_a_canceller_where_it_is_known(
    master: FakeMaster, dlq: Dlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator may have cancelled a job, and so may the master: it was not its owner."""
    numbers = {"alice": 1000, "root": 0}
    monkeypatch.setattr("dlq_cli.slurm.accounts.row.uid", lambda user: numbers[user])
    ended = {"end_reason": "cancelled", "end_time": to_timestamp(EPOCH_S + 120)}
    for number, actor in ((34, "user:alice"), (35, "user:root"), (36, "master")):
        master.jobs[str(number)] = a_job(number, "cancelled", **ended)
        master.events.append(an_event(number, "job_cancelled", number, actor=actor))
    said = dlq("slurm", "sacct", "-X", "-n", "-P", "-j", "34,35,36", "-o", "JobID,State")
    assert said.out.splitlines() == [
        "34|CANCELLED by 1000", "35|CANCELLED by 0", "36|CANCELLED",
    ]  # fmt: skip


def test_sacct_says_that_earlier_attempts_are_no_lines(master: FakeMaster, dlq: Dlq) -> None:
    master.attempts["17"] = [job_pb2.Attempt(attempt=1), job_pb2.Attempt(attempt=2)]
    words = ("slurm", "sacct", "-nP", "-j", "17", "-o", "JobID,Start")
    assert "dlq show JOB" in dlq(*words, "-D").err
    assert dlq(*words).err == ""
