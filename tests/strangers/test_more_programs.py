"""Programs that nobody named before they were tried: what they ask is what Slurm is asked."""

from strangers.site import Account, environment
from support.waiting import wait_until

GROUP = "more"
PARTITION = """
import os, subprocess, time
def partition():
    return subprocess.check_output(["sinfo", "-h", "-o", "%R"], text=True).split()[0]
"""


def python(user: Account, text: str) -> str:
    """What a program of this group prints."""
    return user.python(GROUP, PARTITION + text)


def test_hydra_sweeps_by_submitit(user: Account) -> None:
    user.write(
        "sweep.py",
        """
import hydra, os
@hydra.main(version_base=None, config_path=None)
def main(config):
    with open(f"../../../sweep-{config.x}.txt", "w") as file:
        file.write(os.environ["SLURM_JOB_ID"])
main()
""",
    )
    asked = ("timeout_min=5", "cpus_per_task=1", "tasks_per_node=1")
    user.run(
        environment(GROUP) / "python", "sweep.py", "-m", "hydra/launcher=submitit_slurm",
        "+x=1,2,3", *(f"hydra.launcher.{word}" for word in asked), "hydra.job.chdir=true",
        path=environment(GROUP),
    )  # fmt: skip
    assert len({user.until(f"multirun/sweep-{x}.txt") for x in (1, 2, 3)}) == 3


def test_reframe(user: Account) -> None:
    user.write(
        "settings.py",
        """
import subprocess
words = ["sinfo", "-h", "-o", "%R"]
partition = subprocess.check_output(words, text=True).split()[0]
site_configuration = {
    "systems": [{"name": "here", "hostnames": [".*"], "partitions": [{
        "name": "gpu", "scheduler": "squeue", "launcher": "srun", "environs": ["builtin"],
        "access": [f"-p {partition}"]}]}],
    "environments": [{"name": "builtin", "cc": "gcc"}]}
""",
    )
    user.write(
        "check.py",
        r"""
import reframe as rfm, reframe.utility.sanity as sn
@rfm.simple_test
class Hello(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "sh"
    executable_opts = ["-c", "'echo task $SLURM_PROCID of $SLURM_NTASKS'"]
    num_tasks = 2
    num_tasks_per_node = 2
    time_limit = "5m"
    @sanity_function
    def each_task_spoke_once(self):
        return sn.assert_eq(sn.count_uniq(sn.findall(r"task \d of 2", self.stdout)), 2)
""",
    )
    words = ("-C", "settings.py", "-c", "check.py", "-r", "--nocolor")
    said = user.run(environment(GROUP) / "reframe", *words, path=environment(GROUP)).stdout
    assert "Ran 1/1 test case(s) from 1 check(s) (0 failure(s)" in said


def test_signac_flow_knows_its_jobs_by_their_names(user: Account) -> None:
    user.write(
        "project.py",
        """
from flow import FlowProject
from flow.environment import DefaultSlurmEnvironment
class Here(DefaultSlurmEnvironment):
    hostname_pattern = ".*"
class Project(FlowProject):
    pass
@Project.post.isfile("done.txt")
@Project.operation(directives={"walltime": 0.1})
def work(job):
    import time
    time.sleep(8)
    open(job.fn("done.txt"), "w").write("done")
if __name__ == "__main__":
    Project().main()
""",
    )
    python(user, "import signac; signac.init_project().open_job({'a': 1}).init()")
    program = (environment(GROUP) / "python", "project.py")
    user.run(*program, "submit")
    assert "[A]: 1" in (told := user.run(*program, "status").stdout) or "[Q]: 1" in told
    found = user.run("sh", "-c", "ls -d workspace/*").stdout.strip()
    assert user.until(f"{found}/done.txt") == "done"


def test_fireworks_launches_through_its_queue_adapter(user: Account) -> None:
    said = python(
        user,
        """
from fireworks.user_objects.queue_adapters.common_adapter import CommonAdapter
adapter = CommonAdapter("SLURM", "fw", rocket_launch="sleep 3; echo rocket > rocket.txt", nodes=1,
    ntasks=1, walltime="00:05:00", queue=partition(), job_name="fw", logdir=".")
open("fw.sh", "w").write(adapter.get_script_str("."))
print("ID", adapter.submit_to_queue("fw.sh"), "QUEUED", adapter.get_njobs_in_queue())
""",
    )
    assert int(said.split("ID")[1].split()[0]) > 0
    assert int(said.split("QUEUED")[1].split()[0]) >= 1
    assert user.until("rocket.txt") == "rocket\n"


def test_qtoolkit_reads_the_answers(user: Account) -> None:
    said = python(
        user,
        """
from qtoolkit.core.data_objects import QResources
from qtoolkit.io.slurm import SlurmIO
slurm = SlurmIO()
asked = QResources(nodes=1, processes_per_node=1, time_limit=300, job_name="qt",
    output_filepath="qt.out", error_filepath="qt.err", queue_name=partition())
open("qt.sh", "w").write(slurm.get_submission_script("sleep 60", asked))
def told(words):
    done = subprocess.run(words, shell=True, capture_output=True)
    return done.returncode, done.stdout, done.stderr
job = slurm.parse_submit_output(*told(slurm.get_submit_cmd("qt.sh"))).job_id
def state():
    return slurm.parse_job_output(*told(slurm.get_job_cmd(job)))
while state().sub_state.name != "RUNNING":
    time.sleep(0.2)
print("ONE", state().name, state().info.time_limit)
listed = slurm.parse_jobs_list_output(*told(slurm.get_jobs_list_cmd(None, os.environ["USER"])))
print("LISTED", [one.info.nodes for one in listed if one.job_id == job])
print("CANCEL", slurm.parse_cancel_output(*told(slurm.get_cancel_cmd(job))).job_id == job)
""",
    )
    assert "ONE qt 300" in said
    assert "LISTED [1]" in said
    assert "CANCEL True" in said


def test_slurm_magic_makes_tables_of_answers(user: Account) -> None:
    said = python(
        user,
        """
from IPython.core.interactiveshell import InteractiveShell
from slurm_magic import SlurmMagics
shell = InteractiveShell.instance()
shell.register_magics(SlurmMagics(shell))
print(shell.run_cell_magic("sbatch", "", "#!/bin/bash\\nsleep 20"))
table = shell.run_line_magic("squeue", "-u " + os.environ["USER"])
print("COLUMNS", list(table.columns))
shell.run_line_magic("scancel", "-u " + os.environ["USER"])
""",
    )
    wanted = ["JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "NODES", "NODELIST(REASON)"]
    assert f"COLUMNS {wanted}" in said


def test_maestro_runs_one_step_after_the_other(user: Account) -> None:
    name = user.run("sinfo", "-h", "-o", "%R").stdout.split()[0]
    user.write(
        "study.yaml",
        f"""
description: {{name: hello, description: two steps}}
env: {{variables: {{OUTPUT_PATH: ./out}}}}
batch: {{type: slurm, host: here, bank: science, queue: {name}}}
study:
  - name: one
    description: first
    run: {{cmd: "$(LAUNCHER) echo hello > hello.txt", nodes: 1, procs: 1, walltime: "00:05:00",
          gpus: 1}}
  - name: two
    description: second
    run: {{cmd: "cat $(one.workspace)/hello.txt > ../../two.txt", depends: [one], nodes: 1,
          procs: 1, walltime: "00:05:00"}}
""",
    )
    group = environment(GROUP)
    user.run(group / "maestro", "run", "-y", "-fg", "-s", "2", "study.yaml", path=group)
    assert user.until("out/two.txt") == "hello\n"


def test_toil(user: Account) -> None:
    user.write(
        "workflow.py",
        """
from toil.common import Toil
from toil.job import Job
def child(job, x):
    return x * x
def top(job):
    few = dict(cores=1, memory="500M", disk="100M")
    return [job.addChildJobFn(child, x, **few).rv() for x in range(3)]
if __name__ == "__main__":
    options = Job.Runner.getDefaultArgumentParser().parse_args()
    with Toil(options) as toil:
        start = Job.wrapJobFn(top, cores=1, memory="500M", disk="100M")
        print("RESULT", toil.start(start))
""",
    )
    name = user.run("sinfo", "-h", "-o", "%R").stdout.split()[0]
    said = user.run(
        environment(GROUP) / "python", "workflow.py", f"file:{user.home}/store",
        "--batchSystem", "slurm", "--slurmTime", "00:05:00", "--defaultMemory", "500M",
        "--slurmPartition", name, "--workDir", user.home, "--disableCaching", "--retryCount", "0",
        path=environment(GROUP),
    ).stdout  # fmt: skip
    assert "RESULT [0, 1, 4]" in said


def test_nipype_by_jobs_and_by_dependencies(user: Account) -> None:
    python(
        user,
        """
from nipype import Function, Node, Workflow, config
config.set("execution", "job_finished_timeout", "30")
config.set("execution", "poll_sleep_duration", "1")
def square(x):
    return x * x
def keep(x):
    import os
    open(os.path.join(os.environ["HOME"], "nipype.txt"), "a").write(f"{x}\\n")
for plugin in ("SLURM", "SLURMGraph"):
    flow = Workflow(plugin.lower(), base_dir=".")
    first = Node(Function(["x"], ["out"], square), "first")
    last = Node(Function(["x"], [], keep), "last")
    first.inputs.x = 3
    flow.connect(first, "out", last, "x")
    flow.run(plugin, plugin_args=dict(sbatch_args=f"-p {partition()} -t 5"))
""",
    )
    assert user.until("nipype.txt", "9\n9\n", 60.0) == "9\n9\n"


def test_aiidas_scheduler_plugin(user: Account) -> None:
    said = python(
        user,
        """
from aiida.common.datastructures import CodeRunMode
from aiida.schedulers.datastructures import JobTemplate, JobTemplateCodeInfo
from aiida.schedulers.plugins.slurm import SlurmScheduler
slurm, asked = SlurmScheduler(), JobTemplate()
asked.job_name, asked.shebang, asked.queue_name = "aiida", "#!/bin/bash", partition()
asked.job_resource = slurm.create_job_resource(num_machines=1, num_mpiprocs_per_machine=1)
asked.max_wallclock_seconds = 300
asked.sched_output_path, asked.sched_error_path = "aiida.out", "aiida.err"
asked.codes_run_mode = CodeRunMode.SERIAL
asked.codes_info = [JobTemplateCodeInfo(
    prepend_cmdline_params=["srun", "-n", "1"], cmdline_params=["sleep", "60"])]
open("aiida.sh", "w").write(slurm.get_submit_script(asked))
def told(words):
    done = subprocess.run(words, shell=True, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr
job = slurm._parse_submit_output(*told(slurm._get_submit_command("aiida.sh")))
def seen(**which):
    jobs = slurm._parse_joblist_output(*told(slurm._get_joblist_command(**which)))
    return [one for one in jobs if one.job_id == job]
while seen(jobs=[job])[0].job_state.value != "running":
    time.sleep(0.2)
one = seen(user=os.environ["USER"])[0]
print("SEEN", one.title, one.num_machines, one.num_mpiprocs, one.requested_wallclock_time_seconds)
print("KILLED", slurm._parse_kill_output(*told(slurm._get_kill_command(job))))
while seen(user=os.environ["USER"]):
    time.sleep(0.2)
print("GONE")
""",
    )
    assert "SEEN aiida 1 1 300" in said
    assert "KILLED True" in said
    assert "GONE" in said


def test_torchx_runs_one_replica(user: Account) -> None:
    """Several are a heterogeneous job, which dlq refuses. Its status needs the accounts of jobs,
    which the Slurm here has not."""
    name = user.run("sinfo", "-h", "-o", "%R").stdout.split()[0]
    group, wanted = environment(GROUP), f"partition={name},time=5,job_dir={user.home}/torchx"
    words = ("--scheduler", "slurm", "-cfg", wanted, "utils.echo", "--msg", "hello")
    user.run("mkdir", "empty")  # a workspace is copied
    told = user.run(
        group / "torchx", "run", "--workspace", f"file://{user.home}/empty", *words,
        path=group, check=False,
    )  # fmt: skip
    job = told.stdout.split()[-1]
    assert job.startswith("slurm://torchx/")
    number = job.rpartition("/")[2]
    assert user.until(f"torchx/slurm-{number}-echo-0.out") == "hello\n"
    if "SLURM_CONF" in user.variables:
        return
    wait_until(
        lambda: "SUCCEEDED" in user.run(group / "torchx", "status", job, path=group).stdout,
        what="it has succeeded",
    )
