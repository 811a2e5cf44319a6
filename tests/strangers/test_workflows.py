"""snakemake with its Slurm plugin, and pysqa and executorlib."""

from strangers.site import Account, environment

SNAKEFILE = """
rule all:
    input: "both.txt"
rule cpu:
    output: "cpu.txt"
    resources: runtime=5, mem_mb=1000
    shell: "echo cpu > {output}"
rule gpu:
    output: "gpu.txt"
    resources: runtime=5, mem_mb=1000, gpu=1
    shell: "echo gpu ${{SLURM_JOB_ID:+inside}} > {output}"
rule both:
    input: "cpu.txt", "gpu.txt"
    output: "both.txt"
    resources: runtime=5, mem_mb=1000
    shell: "cat {input} > {output}"
"""


def test_snakemake(user: Account) -> None:
    user.write("Snakefile", SNAKEFILE)
    group = environment("workflows")
    user.run(
        group / "snakemake", "--executor", "slurm", "--jobs", "4", "--latency-wait", "20",
        "--slurm-init-seconds-before-status-checks", "2", "--slurm-status-command", "squeue",
        "--default-resources", "slurm_account=science", path=group,
    )  # fmt: skip
    assert user.until("both.txt") == "cpu\ngpu inside\n"


def test_pysqa(user: Account) -> None:
    said = user.python(
        "python",
        """
import subprocess, time
from pysqa import QueueAdapter
words = ["sinfo", "-h", "-o", "%R"]
partition = subprocess.check_output(words, text=True).split()[0]
queue = QueueAdapter(queue_type="SLURM")
job = queue.submit_job(job_name="sqa", working_directory=".", cores=1, run_time_max=300,
                       partition=partition, command="sleep 2; echo sqa > sqa.txt")
print("ID", job, queue.get_status_of_job(process_id=job))
print("QUEUE", list(queue.get_queue_status().jobid))
other = queue.submit_job(job_name="sqa2", working_directory=".", cores=1,
                         partition=partition, command="sleep 600")
queue.delete_job(process_id=other)
while {job, other} & set(queue.get_queue_status().jobid):
    time.sleep(0.5)
""",
    )
    assert user.until("sqa.txt") == "sqa\n"
    job = said.split("ID")[1].split()[0]
    assert job in said.split("QUEUE")[1]


def test_executorlib_by_batch_jobs(user: Account) -> None:
    said = user.python(
        "python",
        """
import subprocess
from executorlib import SlurmClusterExecutor
words = ["sinfo", "-h", "-o", "%R"]
ask = {"cores": 1, "partition": subprocess.check_output(words, text=True).split()[0]}
with SlurmClusterExecutor(resource_dict=ask, cache_directory="./exec-cache") as made:
    print("SUM", made.submit(sum, [2, 3]).result())
""",
    )
    assert "SUM 5" in said
