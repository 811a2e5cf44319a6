"""The variables of batch scripts and of srun's tasks on real daemons, beside those that Slurm 22.05
gave for the same options (tests/data/slurm_submissions.json, slurm_steps.json).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dlq_compat.hostlist import expand
from support import slurm_steps
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [pytest.mark.integration]

RECORD = Path(__file__).parents[1] / "data" / "slurm_submissions.json"
LINES: Mapping[str, Any] = json.loads(RECORD.read_text())["lines"]
NODES = ("node1", "node2")
_NODE = 'devices = "fake:8xH100-80GB"\ncpus = 128\nmemory = "512GiB"\njob_cpus = 64\n'
# They name what is not there: a file of Slurm's, its controller.
NOT_OURS = {"SLURM_CONF", "SLURM_WORKING_CLUSTER"}
# Later versions of Slurm have the first two; the third is told wherever memory is limited.
OURS_TOO = {"SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME", "SLURM_MEM_PER_NODE"}
# They differ from site to site, or from job to job. GPUs have uuids here.
VALUES_OF_THEIR_OWN = {
    "SLURM_CLUSTER_NAME", "SLURM_JOBID", "SLURM_JOB_ID", "SLURM_JOB_PARTITION", "SLURM_TASK_PID",
    "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST", "SLURM_PRIO_PROCESS", "PWD", "CUDA_VISIBLE_DEVICES",
    "SLURM_JOB_USER", "SLURM_JOB_UID", "SLURM_JOB_GID", "TMPDIR", "SLURM_JOB_NAME",
    "SLURM_ARRAY_JOB_ID", "SLURM_JOB_DEPENDENCY",
}  # fmt: skip
# Nodes of a job have equally many cores and GPUs here; Slurm fills the first one.
EVEN = {
    "-N 2 -n 5": {"SLURM_TASKS_PER_NODE": "3,2"},
    "-N 2 -n 3": {},
    "-G 4 -n 4 -N 2": {
        "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURM_GPUS_ON_NODE": "2",
        "SLURM_JOB_GPUS": "0,1",
    },
}
SOME = (
    "", "-n 3", "-n 3 -c 4", "-c 4", "-N 2", "-N 2 -n 2", "-N 2 -n 3", "-N 2 -n 5",
    "-N 2 --ntasks-per-node=2 -c 8", "-n 4 --ntasks-per-node=2", "-G 2", "-G 2 -n 2", "-G h100:2",
    "--gpus=0", "--gres=gpu:2 -N 2", "--gpus-per-task=2 -c 4 -n 2", "--cpus-per-gpu=4 -G 2",
    "-G 4 -n 4 -N 2", "--mem-per-cpu=2G -n 4", "--mem=4000", "--gpu-bind=closest -G 2",
)  # fmt: skip


class TwoNodes(Daemons):
    """The nodes of the record: 64 cores for jobs without GPUs, and eight GPUs each."""

    def _make_agent(self, name: str) -> None:
        super()._make_agent(name)
        path = self.root / f"{name}.toml"
        path.write_text(path.read_text().replace('devices = "fake:8xH100-80GB"\n', _NODE))


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    root = Path(tmp_path_factory.mktemp("vars"))
    root.chmod(0o755)
    with TwoNodes(root, NODES).up() as up:
        yield up


STEPS: Any = json.loads(slurm_steps.RECORD.read_text())["steps"]
# Ports and addresses of their own.
OF_A_STEP = {
    "SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT", "SLURM_SRUN_COMM_HOST",
    "SLURM_LAUNCH_NODE_IPADDR", "SLURM_UMASK",
}  # fmt: skip
# Of parts of a job, of binding, and repeated options of srun.
NOT_OF_STEPS = {
    "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0", "SLURMD_TRES_BIND", "SLURM_CPU_BIND",
    "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_VERBOSE", "SLURM_LABELIO",
}  # fmt: skip


def ran(daemons: Daemons, folder: Path, line: str) -> dict[str, str]:
    """The variables of a script with these options."""
    script, output = folder / "job.sh", folder / "env"
    output.unlink(missing_ok=True)
    script.write_text("#!/bin/sh\nenv | grep -e ^SLURM -e ^CUDA_V -e ^TMPDIR -e ^PWD | sort\n")
    words = ("sbatch", "--parsable", "-o", str(output), "--time=60", *line.split(), str(script))
    job = daemons.said("slurm", *words).strip()
    assert daemons.dlq("wait", job).code == 0, daemons.said("show", job)
    wait_until(output.exists, what="its output is there", timeout_s=60.0)
    lines = output.read_text().splitlines()
    return dict(each.split("=", 1) for each in lines if not each.startswith("CUDA"))


@pytest.mark.parametrize("line", [line for line in SOME if line in LINES])
def test_a_script_finds_what_slurm_gives(daemons: Daemons, tmp_path: Path, line: str) -> None:
    theirs, ours = dict(LINES[line]["env"]), ran(daemons, tmp_path, line)
    theirs.pop("CUDA_VISIBLE_DEVICES", None)
    asked_memory = "--mem" in line
    more = OURS_TOO - ({"SLURM_MEM_PER_NODE"} if asked_memory else set())
    assert theirs.keys() - NOT_OURS == ours.keys() - more
    expected = theirs | EVEN.get(line, {})
    compared = theirs.keys() - NOT_OURS - VALUES_OF_THEIR_OWN
    if line in EVEN:
        compared -= {"SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE"}
    assert {key: ours[key] for key in compared} == {key: expected[key] for key in compared}


@pytest.mark.parametrize(
    "number", range(len(STEPS)), ids=lambda at: "|".join(slurm_steps.STEPS[at])
)
def test_a_task_of_srun_finds_what_slurm_gives(
    daemons: Daemons, tmp_path: Path, number: int
) -> None:
    recorded = STEPS[number]
    (tmp_path / "job.sh").write_text(slurm_steps.script(tmp_path, recorded["srun"]))
    words = ("-o", "/dev/null", "--time=60", *recorded["sbatch"].split())
    said = daemons.said("slurm", "sbatch", "--parsable", *words, str(tmp_path / "job.sh"))
    assert daemons.dlq("wait", said.strip()).code == 0, daemons.said("logs", said.strip())
    ours = slurm_steps.variables(tmp_path)
    assert len(ours) == len(recorded["tasks"])
    for task, theirs in zip(ours, recorded["tasks"], strict=True):
        missing = NOT_OURS | NOT_OF_STEPS | {"CUDA_VISIBLE_DEVICES"}
        assert theirs.keys() - missing == task.keys() - OURS_TOO - {"CUDA_VISIBLE_DEVICES"}
        compared = theirs.keys() - missing - VALUES_OF_THEIR_OWN - OF_A_STEP
        nodes = expand(theirs["SLURM_STEP_NODELIST"])  # in the long form here
        assert task["SLURM_STEP_NODELIST"].split(",") == nodes
        compared -= {"SLURM_STEP_NODELIST"}
        if recorded["srun"] == "-n 2 -c 2":  # of the job, not of the step
            compared -= {"SLURM_CPUS_ON_NODE"}
        assert {key: task[key] for key in compared} == {key: theirs[key] for key in compared}
