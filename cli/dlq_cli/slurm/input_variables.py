"""Options that sbatch, salloc and srun take from their environment.

They win over those of the script, and the command line wins over them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dlq_cli.spec.slurm.sbatch import SWITCHES, Option

# Behind SBATCH_: the option of `man sbatch`.
_OPTIONS: Mapping[str, str] = {
    "ACCOUNT": "--account", "ACCTG_FREQ": "--acctg-freq", "ARRAY_INX": "--array",
    "BATCH": "--batch", "BURST_BUFFER": "--bb", "CLUSTERS": "--clusters",
    "CONSTRAINT": "--constraint", "CPU_FREQ_REQ": "--cpu-freq",
    "CONTAINER": "--container", "CORE_SPEC": "--core-spec", "CPUS_PER_GPU": "--cpus-per-gpu",
    "DEBUG": "--verbose", "DELAY_BOOT": "--delay-boot", "DISTRIBUTION": "--distribution",
    "ERROR": "--error", "EXCLUSIVE": "--exclusive", "EXPORT": "--export",
    "GET_USER_ENV": "--get-user-env",
    "GPU_BIND": "--gpu-bind", "GPU_FREQ": "--gpu-freq", "GPUS": "--gpus",
    "GPUS_PER_NODE": "--gpus-per-node", "GPUS_PER_TASK": "--gpus-per-task", "GRES": "--gres",
    "GRES_FLAGS": "--gres-flags", "HINT": "--hint", "IGNORE_PBS": "--ignore-pbs",
    "INPUT": "--input",
    "JOB_NAME": "--job-name", "MEM_BIND": "--mem-bind", "MEM_PER_CPU": "--mem-per-cpu",
    "MEM_PER_GPU": "--mem-per-gpu", "MEM_PER_NODE": "--mem", "NETWORK": "--network",
    "NO_KILL": "--no-kill", "NO_REQUEUE": "--no-requeue", "OPEN_MODE": "--open-mode",
    "OUTPUT": "--output",
    "OVERCOMMIT": "--overcommit", "PARTITION": "--partition", "POWER": "--power",
    "PROFILE": "--profile", "QOS": "--qos", "REQ_SWITCH": "--switches", "REQUEUE": "--requeue",
    "RESERVATION": "--reservation", "SIGNAL": "--signal", "SPREAD_JOB": "--spread-job",
    "THREAD_SPEC": "--thread-spec", "THREADS_PER_CORE": "--threads-per-core",
    "TIMELIMIT": "--time", "USE_MIN_NODES": "--use-min-nodes", "WAIT": "--wait",
    "WAIT_ALL_NODES": "--wait-all-nodes", "WCKEY": "--wckey",
}  # fmt: skip
# Without a prefix of their own; SLURM_CONF is passed over.
_SHARED: Mapping[str, str] = {"SLURM_CLUSTERS": "--clusters", "SLURM_HINT": "--hint"}
_OF_SCRIPTS = frozenset(
    {
        "ARRAY_INX", "BATCH", "ERROR", "EXPORT", "GET_USER_ENV", "IGNORE_PBS", "INPUT",
        "JOB_NAME", "NO_REQUEUE", "OPEN_MODE", "OUTPUT", "REQUEUE", "WAIT",
    }
)  # fmt: skip
# srun's own, of an allocation; the step reads the rest itself.
_OF_SRUN: Mapping[str, str] = {
    "SLURM_DEPENDENCY": "--dependency", "SLURM_JOB_NAME": "--job-name",
    "SLURM_NNODES": "--nodes", "SLURM_JOB_NUM_NODES": "--nodes",
    "SLURM_NPROCS": "--ntasks", "SLURM_NTASKS": "--ntasks",
    "SLURM_NTASKS_PER_GPU": "--ntasks-per-gpu", "SLURM_NTASKS_PER_NODE": "--ntasks-per-node",
    "SRUN_CPUS_PER_TASK": "--cpus-per-task",
}  # fmt: skip
_PREFIXES: Mapping[str, str] = {"sbatch": "SBATCH", "salloc": "SALLOC", "srun": "SLURM"}


def options_of(environ: Mapping[str, str], program: str = "sbatch") -> Iterator[Option]:
    """The options of the variables that are set; an empty one says nothing, but for a switch."""
    words = _OPTIONS if program == "sbatch" else _OPTIONS.keys() - _OF_SCRIPTS
    names = {f"{_PREFIXES[program]}_{word}": _OPTIONS[word] for word in sorted(words)}
    for variable, option in {**_SHARED, **names, **(_OF_SRUN if program == "srun" else {})}.items():
        value = environ.get(variable)
        if value is None or (not value and option not in SWITCHES):
            continue
        yield Option(option, "" if option in SWITCHES else value, 0, f"{variable}={value}")


def own_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the words of a job that this command may run in: a job that it
    submits has its own.
    """
    ours = ("SLURM_", "SLURMD_", "SBATCH_")
    return {name: value for name, value in environ.items() if not name.startswith(ours)}
