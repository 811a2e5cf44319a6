"""Groups as Slurm's programs see them: heterogeneous jobs, by the names that Slurm gives them.

The lines were held against Slurm 22.05.8, whose component 0 has the number of the whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq.v1 import job_pb2
from dlq_cli.slurm.allocate.words import split
from dlq_common.text.wire import to_timestamp
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.wire_jobs import EPOCH_S, a_job

pytestmark = pytest.mark.integration

MEMBERS = ("learner", "actor", "actor")


def a_member(index: int, state: str = "running") -> job_pb2.Job:
    """Of group 17, whose jobs have the numbers behind it."""
    place = job_pb2.ArrayTask(
        array_id="17", index=index, task_count=3, member=MEMBERS[index], member_index=index // 2
    )
    return a_job(18 + index, state, array_task=place)


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    made = FakeMaster()
    array = job_pb2.ArrayTask(array_id="30", task_count=2)
    tasks = [a_job(31, array_task=array), a_job(32, array_task=array)]
    tasks[1].array_task.index = 1
    jobs = [*map(a_member, range(3)), *tasks, a_job(40)]
    made.jobs = {job.job_id: job for job in jobs}
    yield made
    made.stop()


def listed(dlq: Dlq, *words: str) -> list[str]:
    said = dlq("slurm", *words)
    assert said.code == 0, said.err
    return [" ".join(line.split()) for line in said.out.splitlines()]


def test_squeue_names_each_component(dlq: Dlq, master: FakeMaster) -> None:
    form = "jobid:8,jobarrayid:12,hetjobid:8,hetjobidset:8,hetjoboffset:8,arrayjobid:8"
    lines = listed(dlq, "squeue", "-h", "-S", "i", "-O", form)
    assert lines == [
        "18 17+0 17 17-20 0 18",
        "19 17+1 17 17-20 1 19",
        "20 17+2 17 17-20 2 20",
        "30 30_[0-1] N/A N/A N/A 30",
        "40 40 N/A N/A N/A 40",
    ]


def test_components_that_wait_have_a_line_each(dlq: Dlq, master: FakeMaster) -> None:
    """They differ, unlike the tasks of an array."""
    master.jobs |= {job.job_id: job for job in (a_member(at, "queued") for at in range(3))}
    assert listed(dlq, "squeue", "-h", "-S", "i", "-o", "%i") == [
        "17+0", "17+1", "17+2", "30_[0-1]", "40",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("word", "found"),
    [("17", ["17+0", "17+1", "17+2"]), ("17+1", ["17+1"]), ("19", ["17+1"]), ("17_1", ["17+1"])],
)
def test_all_programs_know_their_names(word: str, found: list[str], dlq: Dlq) -> None:
    assert listed(dlq, "squeue", "-h", "-S", "i", "-o", "%i", "-j", word) == found
    assert listed(dlq, "sacct", "-n", "-X", "-o", "jobid", "-j", word) == found
    page = listed(dlq, "scontrol", "-o", "show", "job", word)
    assert [line.split()[1:3] for line in page if line] == [
        ["HetJobId=17", f"HetJobOffset={name[-1]}"] for name in found
    ]


def test_scontrol_lays_a_component_out_as_slurm(dlq: Dlq) -> None:
    page = listed(dlq, "scontrol", "show", "job", "17+1")
    assert page[:2] == ["JobId=19 HetJobId=17 HetJobOffset=1 JobName=train-19", "HetJobIdSet=17-20"]


def test_json_tells_the_place(dlq: Dlq) -> None:
    jobs = json.loads(dlq("slurm", "squeue", "--json").out)["jobs"]
    told = {job["job_id"]: (job["het_job_id"], job["het_job_offset"]) for job in jobs}
    assert (told[19], told[40]) == ((17, 1), (0, 0))
    assert {job["array_job_id"] for job in jobs if job["het_job_id"]} == {0}
    (account,) = json.loads(dlq("slurm", "sacct", "--json", "-j", "17+1").out)["jobs"]
    assert account["het"] == {"job_id": 17, "job_offset": 1}


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["17+1"], ["17_1"]),
        (["17"], ["17"]),
        (["17+1", "40"], ["17_1", "40"]),
        (["-t", "running", "-n", "train-19"], ["17_1"]),
    ],
)
def test_scancel_takes_them(
    words: list[str], asked: list[str], dlq: Dlq, master: FakeMaster
) -> None:
    said = dlq("slurm", "scancel", *words)
    assert (said.code, said.out, said.err) == (0, "", "")
    one = [request.job_id for request in master.requests("CancelJob")]
    many = [word for request in master.requests("CancelJobs") for word in request.job_ids]
    assert [*one, *many] == asked


def test_a_component_that_has_ended_is_no_failure(dlq: Dlq, master: FakeMaster) -> None:
    master.jobs["19"] = a_member(1, "cancelled")
    master.jobs["19"].end_time.CopyFrom(to_timestamp(EPOCH_S))
    assert dlq("slurm", "scancel", "17+1").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["sbatch", "-N1", ":", "-N2", "--wrap=true"],
        ["salloc", "-N1", ":", "-N2"],
        ["srun", "-N1", "true", ":", "-N2", "true"],
    ],
)
def test_parts_are_refused_with_what_to_do(words: list[str], dlq: Dlq, master: FakeMaster) -> None:
    said = dlq("slurm", *words)
    assert said.code != 0
    assert "`:` begins another part of the job; a job here has one part" in said.err
    assert "dlq submit --group" in said.err
    assert not master.requests("SubmitJob")


def test_a_colon_is_a_word_of_the_program_behind_two_dashes() -> None:
    assert split(["-n1", "--", "echo", "a", ":", "b"], "srun").command == ["echo", "a", ":", "b"]


def test_a_script_of_several_parts_is_refused(dlq: Dlq, master: FakeMaster, tmp_path: Path) -> None:
    script = tmp_path / "het.sh"
    script.write_text("#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\ntrue\n")
    said = dlq("slurm", "sbatch", "--lenient", str(script))
    assert said.code != 0
    assert "hetjob: a job here has one part: submit the parts by dlq submit --group" in said.err
    assert not master.requests("SubmitJob")
