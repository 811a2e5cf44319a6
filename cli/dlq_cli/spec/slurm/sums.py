"""Sums over several options of sbatch: tasks, CPUs, GPUs and memory as numbers of a node."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dlq_cli.spec.slurm.conversion import Conversion, ignore, number, slurm_size, take
from dlq_cli.spec.slurm.sbatch import Option

ONCE = "dlq starts the script once on each node; torchrun starts one process for each GPU"
COMPUTED = (
    "--ntasks", "--ntasks-per-node", "--cpus-per-task", "--gpus-per-task", "--cpus-per-gpu",
    "--mem-per-cpu", "--mem-per-gpu",
)  # fmt: skip


def compute(made: Conversion, some: Mapping[str, Option], every: Mapping[str, Option]) -> None:
    """Per task, per CPU and per GPU: as numbers of a node, where the script says enough."""
    nodes = number(every.get("--nodes"))
    tasks = _tasks_per_node(some, nodes)
    gpus = _gpus_per_node(made, nodes)
    if option := some.get("--gpus-per-task"):
        kind, each = _typed(option.value)
        total = number(some.get("--ntasks"))
        if tasks and each and (nodes or not total):
            take(made, option, "--gpus-per-node", f"{kind}{each * tasks}")
            gpus = gpus or each * tasks
        elif total and each:
            take(made, option, "--gpus", f"{kind}{each * total}")
        else:
            ignore(made, option, "how many tasks a node has is not said")
    cpus = _per_node(made, some, "--cpus-per-task", tasks, "tasks", "--cpus")
    cpus = _per_node(made, some, "--cpus-per-gpu", gpus, "GPUs", "--cpus") or cpus
    _per_node(made, some, "--mem-per-gpu", gpus, "GPUs", "--mem")
    _per_node(made, some, "--mem-per-cpu", cpus, "CPUs", "--mem")
    for name in ("--ntasks", "--ntasks-per-node"):
        if option := some.get(name):
            _tasks(made, option, tasks)


def _tasks(made: Conversion, option: Option, each: int) -> None:
    if not made.compat:
        ignore(made, option, ONCE)
    elif each:
        take(made, option, "--ntasks-per-node", str(each))
    else:
        ignore(made, option, "how many tasks a node has is not said: use --ntasks-per-node")


def _per_node(
    made: Conversion, some: Mapping[str, Option], name: str, count: int, what: str, flag: str
) -> int:
    """`name` times `count` as a flag; the product for CPUs, 0 when it is not known."""
    option = some.get(name)
    if option is None:
        return 0
    if not count:
        ignore(made, option, f"how many {what} a node has is not said: use {flag}, for each node")
        return 0
    if flag == "--mem":
        take(made, option, flag, _times(slurm_size(option.value), count))
        return 0
    each = number(option)
    take(made, option, flag, str(each * count) if each else option.value)
    return each * count


def _tasks_per_node(some: Mapping[str, Option], nodes: int) -> int:
    """Tasks of each node; 1 when nothing is said, 0 when it cannot be known."""
    if each := number(some.get("--ntasks-per-node")):
        return each
    total = number(some.get("--ntasks"))
    if not total:
        return 1
    if not nodes:
        return total if total == 1 else 0
    return total // nodes if total % nodes == 0 else 0


def _gpus_per_node(made: Conversion, nodes: int) -> int:
    for taken in made.taken:
        _, count = _typed(str(taken.raw))
        if "--gpus-per-node" in taken.flag.names:
            return count
        if "--gpus" in taken.flag.names:
            return count // nodes if nodes and count % nodes == 0 else count if not nodes else 0
    return 0


def _typed(value: str) -> tuple[str, int]:
    kind, _, count = value.rpartition(":")
    return (f"{kind}:" if kind else ""), int(count) if count.isdecimal() else 0


def _times(size: str, count: int) -> str:
    found = re.fullmatch(r"(\d+)([A-Za-z]*)", size)
    return f"{int(found[1]) * count}{found[2]}" if found else size
