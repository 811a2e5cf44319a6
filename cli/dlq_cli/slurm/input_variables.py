"""Options that sbatch takes from its environment: above the script's, below the command line's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dlq_cli.spec.slurm.sbatch import SWITCHES, Option

# Behind SBATCH_: the option of `man sbatch`.
_OPTIONS: Mapping[str, str] = {
    "ACCOUNT": "--account", "ACCTG_FREQ": "--acctg-freq", "ARRAY_INX": "--array",
    "BATCH": "--batch", "CLUSTERS": "--clusters", "CONSTRAINT": "--constraint",
    "CONTAINER": "--container", "CORE_SPEC": "--core-spec", "CPUS_PER_GPU": "--cpus-per-gpu",
    "DEBUG": "--verbose", "DELAY_BOOT": "--delay-boot", "DISTRIBUTION": "--distribution",
    "EXCLUSIVE": "--exclusive", "EXPORT": "--export", "GET_USER_ENV": "--get-user-env",
    "GPU_BIND": "--gpu-bind", "GPU_FREQ": "--gpu-freq", "GPUS": "--gpus",
    "GPUS_PER_NODE": "--gpus-per-node", "GPUS_PER_TASK": "--gpus-per-task", "GRES": "--gres",
    "GRES_FLAGS": "--gres-flags", "HINT": "--hint", "IGNORE_PBS": "--ignore-pbs",
    "JOB_NAME": "--job-name", "MEM_BIND": "--mem-bind", "MEM_PER_CPU": "--mem-per-cpu",
    "MEM_PER_GPU": "--mem-per-gpu", "MEM_PER_NODE": "--mem", "NETWORK": "--network",
    "NO_KILL": "--no-kill", "NO_REQUEUE": "--no-requeue", "OPEN_MODE": "--open-mode",
    "OVERCOMMIT": "--overcommit", "PARTITION": "--partition", "POWER": "--power",
    "PROFILE": "--profile", "QOS": "--qos", "REQ_SWITCH": "--switches", "REQUEUE": "--requeue",
    "RESERVATION": "--reservation", "SIGNAL": "--signal", "SPREAD_JOB": "--spread-job",
    "THREAD_SPEC": "--thread-spec", "THREADS_PER_CORE": "--threads-per-core",
    "TIMELIMIT": "--time", "USE_MIN_NODES": "--use-min-nodes", "WAIT": "--wait",
    "WAIT_ALL_NODES": "--wait-all-nodes", "WCKEY": "--wckey",
}  # fmt: skip
# Without a prefix of their own; SLURM_CONF is passed over.
_SHARED: Mapping[str, str] = {"SLURM_CLUSTERS": "--clusters", "SLURM_HINT": "--hint"}


def options_of(environ: Mapping[str, str], prefix: str = "SBATCH") -> Iterator[Option]:
    """The options of the variables that are set; an empty one says nothing, but for a switch."""
    names = {**_SHARED, **{f"{prefix}_{word}": option for word, option in _OPTIONS.items()}}
    for variable, option in names.items():
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
