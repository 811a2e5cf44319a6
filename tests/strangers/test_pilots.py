"""Programs that start workers in jobs and talk to them: ipyparallel, parsl, psij, dask."""

from strangers.site import Account


def test_ipyparallel(user: Account) -> None:
    said = user.python(
        "python",
        """
import ipyparallel as ipp
with ipp.Cluster(engines="slurm", n=2, engine_timeout=90) as client:
    print("PIDS", len(set(client[:].apply_sync(__import__("os").getpid))))
""",
    )
    assert "PIDS 2" in said


def test_parsl_on_two_nodes(user: Account) -> None:
    nodes = 1 if "SLURM_CONF" in user.variables else 2  # the real Slurm here has one
    said = user.python(
        "parsl",
        f"""
import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SrunLauncher
from parsl.providers import SlurmProvider
provider = SlurmProvider(nodes_per_block={nodes}, init_blocks=1, max_blocks=1, walltime="00:05:00",
                         launcher=SrunLauncher(), exclusive=False, cores_per_node=1, mem_per_node=1)
config = Config(executors=[HighThroughputExecutor(
    address="127.0.0.1", max_workers_per_node=1, provider=provider)])
@parsl.python_app
def where(x):
    import os, time
    time.sleep(1)
    return os.environ["SLURM_NODEID"], x * x
with parsl.load(config):
    found = [each.result() for each in [where(x) for x in range(8)]]
    print("SQUARES", [x for _, x in found], "NODES", len(set(n for n, _ in found)))
""",
    )
    assert f"SQUARES [0, 1, 4, 9, 16, 25, 36, 49] NODES {nodes}" in said


def test_psij(user: Account) -> None:
    said = user.python(
        "parsl",
        """
from datetime import timedelta
from pathlib import Path
from psij import Job, JobAttributes, JobExecutor, JobSpec, ResourceSpecV1
made = JobExecutor.get_instance("slurm")
def job(*words, name):
    return Job(JobSpec(executable=words[0], arguments=list(words[1:]), name="psij",
        stdout_path=Path(name).absolute(), resources=ResourceSpecV1(process_count=1),
        attributes=JobAttributes(duration=timedelta(minutes=5))))
good, bad = job("/bin/echo", "psij", name="psij.out"), job("/bin/false", name="bad.out")
for each in (good, bad):
    made.submit(each)
print("GOOD", good.wait().state.name, "BAD", bad.wait().state.name)
""",
    )
    assert "GOOD COMPLETED BAD FAILED" in said
    assert user.until("psij.out") == "psij\n"


def test_dask_jobqueue(user: Account) -> None:
    said = user.python(
        "python",
        """
from dask_jobqueue import SLURMCluster
from distributed import Client
if __name__ == "__main__":
    with SLURMCluster(cores=1, processes=1, memory="500MB", walltime="00:05:00",
                      interface="lo", log_directory="dask-logs") as cluster:
        cluster.scale(jobs=2)
        with Client(cluster) as client:
            client.wait_for_workers(2, timeout=90)
            print("SUM", client.submit(sum, [1, 2, 3]).result())
""",
    )
    assert "SUM 6" in said
