"""Steps in sacct, sstat, squeue -s, scontrol and `dlq show`, from a master with a known job.

The job is one that ran on a real Slurm 22.05 with its accounting; lines of that run stand here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dlq.v1 import job_pb2, resource_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_common.text.wire import to_duration, to_timestamp
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.wire_jobs import EPOCH_S, a_job, an_attempt

pytestmark = pytest.mark.integration

RUNNING = job_pb2.STEP_STATE_RUNNING
COMPLETED = job_pb2.STEP_STATE_COMPLETED
FAILED = job_pb2.STEP_STATE_FAILED
BEGIN_S = EPOCH_S + 60


def a_step(
    number: int,
    name: str,
    state: job_pb2.StepState.ValueType,
    *,
    start: float,
    end: float | None,
    **more: Any,
) -> job_pb2.JobStep:
    """Of one task on the first node, unless more is said; times count from the job's start."""
    fields: dict[str, Any] = {"node_count": 1, "task_count": 1, "node_ids": ["gpu01"], **more}
    cpu_s = fields.pop("cpu_s", 0.0)
    return job_pb2.JobStep(
        number=number,
        name=name,
        state=state,
        start_time=to_timestamp(BEGIN_S + start),
        end_time=None if end is None else to_timestamp(BEGIN_S + end),
        cpu_duration=to_duration(cpu_s),
        **fields,
    )


BOTH = {"node_count": 2, "node_ids": ["gpu01", "gpu02"]}
STEPS = [
    a_step(0, "hostname", COMPLETED, start=0, end=0, task_count=4, cpu_s=0.007,
           peak_memory_bytes=3016 << 10, **BOTH),
    a_step(1, "named", FAILED, start=0, end=1, exit_code=3, task_count=2, cpu_s=0.004,
           peak_memory_bytes=3036 << 10, **BOTH),
    a_step(2, "sh", FAILED, start=1, end=1, exit_code=137, cpu_s=0.001,
           peak_memory_bytes=2904 << 10),
    a_step(3, "sh", FAILED, start=1, end=1, exit_code=143, cpu_s=0.001,
           peak_memory_bytes=2784 << 10),
    a_step(7, "sleep", RUNNING, start=4, end=None, task_count=2, cpu_s=3.0,
           peak_memory_bytes=3012 << 10, **BOTH),
]  # fmt: skip


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaster]:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("SACCT_FORMAT", raising=False)
    monkeypatch.setattr("dlq_cli.slurm.job_words.uid", lambda user: 0)
    time.tzset()
    made = FakeMaster()
    resources = resource_pb2.ResourceRequest(gpu_count=2, node_count=2)
    made.jobs = {
        "1": a_job(1, "running", name="job.sh", team="lab", resources=resources),
        "2": a_job(2),
        "5": a_job(5, "failed", exit_code=5, resources=resources, name="e.sh"),
    }
    made.jobs["5"].end_time.CopyFrom(to_timestamp(BEGIN_S + 9))
    made.specs = {
        number: job_pb2.JobSpec(script="#!/bin/sh\n", compat="slurm", tasks_per_node=2)
        for number in made.jobs
    }
    ended = an_attempt(5, 2, "failed")
    ended.end_time.CopyFrom(to_timestamp(BEGIN_S + 9))
    ended.ranks[0].exit_code = 5
    made.attempts = {"1": [an_attempt(1, 1)], "5": [ended]}
    made.steps = [
        wire.AttemptSteps(job_id="1", attempt=1, steps=STEPS, tell_time=to_timestamp(BEGIN_S + 10)),
        wire.AttemptSteps(job_id="5", attempt=1, steps=STEPS, tell_time=to_timestamp(BEGIN_S + 1)),
    ]
    yield made
    made.stop()
    monkeypatch.undo()
    time.tzset()


def lines(dlq: Dlq, *words: str) -> list[str]:
    """What one of Slurm's programs prints; it must not fail."""
    said = dlq("slurm", *words)
    assert said.code == 0, said.err
    return said.out.splitlines()


def test_sacct_tells_states_and_codes_as_slurm_does(dlq: Dlq) -> None:
    assert lines(dlq, "sacct", "-nPj", "1", "-o", "JobID,JobName,Account,State,ExitCode") == [
        "1|job.sh|lab|RUNNING|0:0",
        "1.batch|batch|lab|RUNNING|0:0",
        "1.0|hostname|lab|COMPLETED|0:0",
        "1.1|named|lab|FAILED|3:0",
        "1.2|sh|lab|CANCELLED|0:9",
        "1.3|sh|lab|CANCELLED|0:15",
        "1.7|sleep|lab|RUNNING|0:0",
    ]


def test_sacct_tells_times_sizes_and_measures_as_slurm_does(dlq: Dlq) -> None:
    fields = (
        "JobIDRaw,Partition,User,Elapsed,Start,End,NTasks,NNodes,NodeList,MaxRSS,AveRSS,TotalCPU,"
        "DerivedExitCode,ReqMem"
    )
    found = lines(dlq, "sacct", "-nP", "-j", "1.0,1.1,1.2", "-o", fields)
    assert found == [
        "1.0|||00:00:00|2026-11-20T08:01:00|2026-11-20T08:01:00|4|2|gpu[01-02]|3016K||00:00.007||",
        "1.1|||00:00:01|2026-11-20T08:01:00|2026-11-20T08:01:01|2|2|gpu[01-02]|3036K||00:00.004||",
        "1.2|||00:00:00|2026-11-20T08:01:01|2026-11-20T08:01:01|1|1|gpu01|2904K|2904K|00:00.001||",
    ]
    running = lines(dlq, "sacct", "-nP", "-j", "1.7", "-o", "End,MaxRSS,AveCPU,AllocTRES")
    assert running == ["Unknown|||cpu=2,gres/gpu=2,mem=0,node=2"]
    summed = lines(dlq, "sacct", "-nP", "-j", "1", "-X", "-o", "JobID,TotalCPU,DerivedExitCode")
    assert summed == ["1|00:03.013|0:0"], "its derived code is known at its end"


def test_sacct_shows_the_steps_that_are_asked_for_alone(dlq: Dlq, master: FakeMaster) -> None:
    assert lines(dlq, "sacct", "-nP", "-j", "1.batch", "-o", "JobID") == ["1.batch"]
    assert lines(dlq, "sacct", "-nP", "-j", "1.99", "-o", "JobID") == []
    assert lines(dlq, "sacct", "-nPX", "-j", "1", "-o", "JobID") == ["1"]
    master.asked.clear()
    assert lines(dlq, "sacct", "-nPX", "-j", "1", "-o", "JobID,State") == ["1|RUNNING"]
    assert lines(dlq, "sacct", "-nP", "-j", "2", "-o", "JobID") == ["2"]
    assert "ListSteps" not in [name for name, _, _ in master.asked], "nothing of steps is asked for"


def test_steps_of_an_earlier_attempt_are_not_the_last_ones(dlq: Dlq) -> None:
    """Job 5 ran twice; its second attempt has told of no step."""
    found = lines(dlq, "sacct", "-nP", "-j", "5", "-o", "JobID,State,ExitCode,Elapsed,NNodes")
    assert found[1:] == ["5.batch|FAILED|5:0|00:00:09|1"]


def test_an_allocation_has_no_script(dlq: Dlq, master: FakeMaster) -> None:
    """salloc, and srun outside a job: their client starts all steps."""
    master.specs["1"].interactive.SetInParent()
    found = lines(dlq, "sacct", "-nP", "-j", "1", "-o", "JobID")
    assert found[:2] == ["1", "1.0"]
    assert lines(dlq, "squeue", "-hs", "-o", "%i") == ["1.7"]
    master.specs["5"].ClearField("script")
    assert lines(dlq, "sacct", "-nP", "-j", "5", "-o", "JobID")[1:] == ["5.batch"], "one command"


def test_a_script_is_measured_after_its_end(dlq: Dlq, master: FakeMaster) -> None:
    """Job 5: a script without steps, whose program used all."""
    measured = wire.AttemptSteps(job_id="5", attempt=2, script_peak_memory_bytes=300 << 20)
    measured.script_cpu_duration.CopyFrom(to_duration(75.5))
    master.steps.append(measured)
    assert lines(dlq, "sacct", "-nPX", "-j", "5.0", "-o", "JobID,DerivedExitCode") == ["5|0:0"]
    found = lines(dlq, "sacct", "-nP", "-j", "5", "-o", "JobID,MaxRSS,AveRSS,TotalCPU")
    assert found == ["5|||01:15.500", "5.batch|300M|300M|01:15.500"]
    said = "batch script of attempt 2: 300MiB in one process, 00:01:15 of CPU\n"
    assert said in dlq("show", "5").out
    assert "steps of" not in dlq("show", "5").out
    measured.steps.append(a_step(0, "bad", FAILED, start=0, end=1, exit_code=7))
    assert lines(dlq, "sacct", "-nPX", "-j", "5", "-o", "JobID,DerivedExitCode") == ["5|7:0"]


def test_squeue_lists_the_steps_that_run(dlq: Dlq, master: FakeMaster) -> None:
    head, *found = lines(dlq, "squeue", "-s", "-o", "%i|%j|%P|%u|%N|%A|%l|%S")
    assert head == "STEPID|NAME|PARTITION|USER|NODELIST|TASKS|TIME_LIMIT|START_TIME"
    assert found == [
        "1.7|sleep|default|alice|gpu[01-02]|2|UNLIMITED|2026-11-20T08:01:04",
        "1.batch|batch|default|alice|gpu01|1|UNLIMITED|2026-11-20T08:01:00",
    ]
    (listed,) = [request for name, _, request in master.asked if name == "ListJobs"]
    assert "running" in listed.states
    assert "queued" not in listed.states, "not the thousands that wait"
    assert lines(dlq, "squeue", "-h", "-s", "1.7", "-o", "%i") == ["1.7"]
    assert lines(dlq, "squeue", "-h", "-s", "1.0", "-o", "%i") == []


def test_scontrol_shows_a_step_as_slurm_does(dlq: Dlq) -> None:
    assert dlq("slurm", "scontrol", "show", "step", "1.7").out == (
        "StepId=1.7 UserId=0 StartTime=2026-11-20T08:01:04 TimeLimit=UNLIMITED\n"
        "   State=RUNNING Partition=default NodeList=gpu[01-02]\n"
        "   Nodes=2 CPUs=2 Tasks=2 Name=sleep Network=(null)\n"
        "   TRES=cpu=2,gres/gpu=2,mem=0,node=2\n"
        "   ResvPorts=(null)\n"
        "   CPUFreqReq=Default\n"
        "   SrunHost:Pid=(null):0\n\n"
    )
    both = dlq("slurm", "scontrol", "-o", "show", "step", "1").out.splitlines()
    assert [line.split()[0] for line in both] == ["StepId=1.batch", "StepId=1.7"]
    assert "Nodes=1 CPUs=0 Tasks=1 Name=batch Network=(null) TRES=(null)" in both[0]


@pytest.mark.parametrize(
    ("word", "out", "err"),
    [
        ("1.77", "Job step 1.77 not found\n", ""),
        ("5", "Job step 5. not found\n", ""),
        ("99", "", "slurm_get_job_steps error: Invalid job id specified\n"),
    ],
)
def test_scontrol_fails_for_a_step_that_is_not_there(
    dlq: Dlq, word: str, out: str, err: str
) -> None:
    said = dlq("slurm", "scontrol", "show", "step", word)
    assert (said.code, said.out, said.err) == (1, out, err)


def test_sstat_tells_of_the_first_step_that_runs_or_of_all(dlq: Dlq) -> None:
    words = ("-nP", "-o", "JobID,MaxRSS,AveCPU,NTasks,Nodelist")
    first = "1.7|3012K|00:00:01|2|gpu[01-02]"
    assert lines(dlq, "sstat", "-j", "1", *words) == [first]
    assert lines(dlq, "sstat", "1", *words) == [first]
    assert lines(dlq, "sstat", "-a", "-j", "1", *words) == ["1.batch|||1|gpu01", first]
    assert lines(dlq, "sstat", "-j", "1.7,1.batch", *words) == [first, "1.batch|||1|gpu01"]


def test_sstat_has_slurms_columns(dlq: Dlq) -> None:
    head, dashes, row = lines(dlq, "sstat", "-j", "1.7")
    assert head.startswith(
        "JobID         MaxVMSize  MaxVMSizeNode  MaxVMSizeTask  AveVMSize     MaxRSS MaxRSSNode "
    )
    assert head.endswith("TRESUsageOutTot ")
    assert dashes.startswith("------------ ---------- -------------- -------------- ----------")
    assert row.startswith("1.7         ")
    assert lines(dlq, "sstat", "-n", "-o", "jobid%30,ntasks", "-j", "1") == [
        "                           1.7        2 "
    ]
    assert lines(dlq, "sstat", "-i", "-n", "-p", "-j", "1.7") == ["1.7|gpu[01-02]||"]
    listed = lines(dlq, "sstat", "-e")
    assert listed[0].startswith("AveCPU              AveCPUFreq          AveDiskRead         ")
    assert listed[0].endswith("AveDiskWrite       ")
    assert listed[-1] == "TRESUsageOutMinNode TRESUsageOutMinTask TRESUsageOutTot    "


@pytest.mark.parametrize(
    ("words", "code", "err"),
    [
        ("", 1, "sstat: error: You didn't give me any jobs to stat."),
        ("-j x", 1, "sstat: fatal: Bad job/step specified: x"),
        ("-o nosuch -j 1", 1, 'sstat: error: Invalid field requested: "nosuch"'),
        ("-j 99", 0, "sstat: error: couldn't get steps for job 99"),
        ("-j 1.99", 0, "sstat: error: StepId=1.99 not found running."),
        ("-j 5", 0, "sstat: error: No steps running for job 5"),
    ],
)
def test_sstat_says_what_slurms_says(dlq: Dlq, words: str, code: int, err: str) -> None:
    said = dlq("slurm", "sstat", *words.split())
    assert (said.code, said.err) == (code, f"{err}\n")


def test_dlq_show_has_the_steps_of_the_last_attempt_with_any(dlq: Dlq) -> None:
    text = dlq("show", "1").out
    assert "steps of attempt 1:\n" in text
    table = text.partition("steps of attempt 1:\n")[2].splitlines()
    assert table[0].split() == [
        "STEP", "NAME", "STATE", "EXIT", "TASKS", "NODES", "STARTED", "RAN", "CPU", "MEMORY",
    ]  # fmt: skip
    assert table[2].split()[:6] == ["1", "named", "failed", "3", "2", "gpu[01-02]"]
    assert table[5].split()[:5] == ["7", "sleep", "running", "2", "gpu[01-02]"]
    assert "00:00:06" in table[5], "as long as it has run when it was told"
    assert "steps of" not in dlq("show", "2").out


def test_dlq_show_counts_what_it_does_not_show(dlq: Dlq, master: FakeMaster) -> None:
    many = [a_step(at, "s", FAILED, start=0, end=1, exit_code=1) for at in range(100, 130)]
    master.steps[0] = wire.AttemptSteps(
        job_id="1", attempt=1, steps=many, dropped_count=100, dropped_failed_count=5
    )
    assert (
        "steps of attempt 1 (110 earlier ones are not shown, 15 of them failed):\n"
        in dlq("show", "1").out
    )


def test_the_json_of_dlq_show_has_all_that_is_known(dlq: Dlq) -> None:
    (job,) = json.loads(dlq("show", "1", "--json").out)["jobs"]
    (attempt,) = job["steps"]
    assert (attempt["attempt"], attempt["dropped_count"], len(attempt["steps"])) == (1, 0, 5)
    assert attempt["steps"][1] == {
        "number": 1,
        "name": "named",
        "state": "failed",
        "exit_code": 3,
        "start_time": "2026-11-20T08:01:00.000Z",
        "end_time": "2026-11-20T08:01:01.000Z",
        "node_count": 2,
        "task_count": 2,
        "node_ids": ["gpu01", "gpu02"],
        "peak_memory_bytes": 3036 << 10,
        "cpu_s": 0.004,
    }
    assert attempt["steps"][4]["end_time"] is None


def test_words_of_jobs_cannot_leave_their_line(dlq: Dlq, master: FakeMaster) -> None:
    master.steps[0].steps[4].name = "\x1b[2Jevil\nline"
    for words in (["sacct", "-j", "1"], ["squeue", "-s"], ["scontrol", "show", "step", "1"]):
        said = dlq("slurm", *words)
        assert "\x1b" not in said.out
        assert not [line for line in said.out.splitlines() if line.startswith("line")]
    assert "\x1b" not in dlq("show", "1").out
