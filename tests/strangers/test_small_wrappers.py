"""simple-slurm and slurmpy: thin wrappers of sbatch, squeue and scancel."""

from strangers.site import Account


def test_simple_slurm_submits_chains_and_looks(user: Account) -> None:
    said = user.python(
        "python",
        """
from simple_slurm import Slurm
first = Slurm(job_name="ss", output="ss-%j.out", gres="gpu:1", ntasks=1, time="00:05:00")
one = first.sbatch("echo first $SLURM_JOB_ID > first.txt", shell="/bin/bash")
second = Slurm(dependency=dict(afterok=one), output="ss2-%j.out", time="00:05:00")
two = second.sbatch("cat first.txt; echo second")
first.squeue.update_squeue()
print("JOBS", one, two, type(one).__name__)
""",
    )
    one, two = said.split("JOBS")[1].split()[:2]
    assert user.until("first.txt", "first") == f"first {one}\n"
    assert user.until(f"ss2-{two}.out", "second") == f"first {one}\nsecond\n"


def test_simple_slurm_arrays(user: Account) -> None:
    said = user.python(
        "python",
        """
from simple_slurm import Slurm
array = Slurm(array="3-6", cpus_per_task=1, job_name="arr", time="00:05:00",
              output=f"arr-{Slurm.JOB_ARRAY_MASTER_ID}_{Slurm.JOB_ARRAY_ID}.out")
print("ARRAY", array.sbatch("echo task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT"))
""",
    )
    array = said.split("ARRAY")[1].split()[0]
    for task in range(3, 7):
        assert user.until(f"arr-{array}_{task}.out", "task") == f"task {task} of 4\n"


def test_slurmpy_submits_and_chains(user: Account) -> None:
    user.python(
        "python",
        """
from slurmpy import Slurm
one = Slurm("spy", {"time": "00:05:00", "ntasks": 1})
first = one.run("echo one > spy1.txt")
Slurm("spy2", {"time": "00:05:00"}).run("cat spy1.txt > spy2.txt", depends_on=[first])
""",
    )
    assert user.until("spy2.txt", "one") == "one\n"
