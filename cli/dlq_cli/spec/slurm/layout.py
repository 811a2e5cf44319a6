"""The tasks of a job for Slurm, and what they need: options of sbatch as numbers; pure.

The rules are those of Slurm 22.05, measured: tests/data/slurm_submissions.json has its answers.
Resources of nodes are even here, so an uneven split of GPUs is refused by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from dlq_cli.output.said import SlurmSays
from dlq_common.errors import InvalidRequest
from dlq_common.text.hostlist import expand_hostlist

_GRES = re.compile(r"(?:gres[/:])?gpu(?:[:=]([A-Za-z][\w.-]*))?(?:[:=](\d{1,7}))?")
_SIZE = re.compile(r"(\d{1,12})([KMGT]?)B?", re.IGNORECASE)
_COUNT = re.compile(r"\d{1,9}")
LAYOUT_OPTIONS = (
    "--nodes", "--ntasks", "--ntasks-per-node", "--ntasks-per-gpu", "--cpus-per-task",
    "--cpus-per-gpu", "--gpus", "--gpus-per-node", "--gpus-per-task", "--gres", "--tres-per-task",
    "--mem", "--mem-per-cpu", "--mem-per-gpu", "--overcommit", "--mincpus",
)  # fmt: skip
NODELIST = "--nodelist"


class CannotLayOut(InvalidRequest):
    """Options that have no layout here; `field` is the one to change."""

    def __init__(self, option: str, why: str) -> None:
        super().__init__(f"{option}: {why}", field=option)


def _invalid(option: str, text: str) -> InvalidRequest:
    """The error in Slurm's own words."""
    return InvalidRequest(f'Invalid numeric value "{text[:40]}" for {option}.', field=option)


class TaskLayout(NamedTuple):
    """Tasks, and the resources of the whole job."""

    tasks: int
    implied: bool  # nobody said how many
    nodes: int | None  # None: as few as hold it
    fewest: bool  # `nodes` begins a range of them
    tasks_per_node: int | None  # as asked
    cpus_per_task: int | None  # as asked
    gpus: int
    gpu_type: str  # empty: any
    gpus_per_task: int | None  # as asked
    cores: int  # of a job without GPUs; 0: it has GPUs
    cpus_per_node: int | None  # of a job with GPUs, where it says
    memory: str  # of each node; empty: not said
    memory_per_core: str  # of a job without GPUs; empty: not said


class _Wish(NamedTuple):
    """Numbers of GPUs as they were asked for; None: not said."""

    total: int | None
    per_node: int | None
    per_task: int | None
    kind: str


def task_layout(said: Mapping[str, str]) -> TaskLayout:
    """The layout of options by their long names. CannotLayOut names the option that has none."""
    wish = _wish(said)
    nodes, fewest = _nodes(said)
    tasks, given = _tasks(said, wish, nodes)
    each = _count(said, "--ntasks-per-node")
    if nodes is None and each and given:
        nodes = math.ceil(tasks / each)
    if nodes is not None and given and tasks < nodes:
        nodes = tasks  # as Slurm, which warns
    nodes, gpus = _gpus(said, wish, nodes, tasks)
    cpus = _cpus_per_task(said)
    share = math.ceil(tasks / (nodes or 1))
    per_node = max(share * (cpus or 1), _count(said, "--mincpus") or 0)
    if "--overcommit" in said:
        per_node = 1
    if gpus and "--cpus-per-gpu" in said:
        per_node = max(per_node, (_count(said, "--cpus-per-gpu") or 1) * (gpus // (nodes or 1)))
    asks_cpus = {"--cpus-per-task", "--cpus-per-gpu", "--mincpus"} & said.keys()
    memory, memory_per_core = _memory(said, gpus, nodes or 1, per_node)
    return TaskLayout(
        tasks=tasks,
        implied=not given,
        nodes=nodes,
        fewest=fewest,
        tasks_per_node=each,
        cpus_per_task=cpus,
        gpus=gpus,
        gpu_type=wish.kind if gpus else "",
        gpus_per_task=wish.per_task if gpus else None,
        cores=0 if gpus else per_node * (nodes or 1),
        cpus_per_node=per_node if gpus and asks_cpus else None,
        memory=memory,
        memory_per_core=memory_per_core,
    )


def _tasks(said: Mapping[str, str], wish: _Wish, nodes: int | None) -> tuple[int, bool]:
    """The number of tasks, and whether it was asked for."""
    asked = _count(said, "--ntasks")
    if asked is not None:
        return asked, True
    total = wish.total
    if total is None and wish.per_node is not None:
        total = wish.per_node * (nodes or 1)
    if wish.per_task and not wish.total and "--ntasks-per-node" not in said:
        raise CannotLayOut(
            "--gpus-per-task", "used without either --gpus or -n/--ntasks is not allowed"
        )
    if wish.per_task and wish.total:
        if wish.total % wish.per_task:
            raise CannotLayOut(
                "--gpus-per-task", f"{wish.total} GPUs are not {wish.per_task} for each task"
            )
        return wish.total // wish.per_task, True
    if (each := _count(said, "--ntasks-per-gpu")) is not None and total:
        return each * total, True
    if (each := _count(said, "--ntasks-per-node")) is not None:
        return each * (nodes or 1), True
    return nodes or 1, False


def _gpus(
    said: Mapping[str, str], wish: _Wish, nodes: int | None, tasks: int
) -> tuple[int | None, int]:
    """The nodes, which a number of GPUs of each may settle, and the GPUs of all."""
    if (each := _count(said, "--ntasks-per-gpu")) and wish == _NO_WISH:
        return nodes, _divided(tasks, each, "--ntasks-per-gpu", "tasks")
    total = wish.total
    if wish.per_task:
        total = wish.per_task * tasks if total is None else total
    if wish.per_node:
        if nodes is None:
            nodes = _divided(total, wish.per_node, "--gpus-per-node", "GPUs") if total else 1
        if total is not None and total != wish.per_node * nodes:
            raise CannotLayOut(
                "--gpus-per-node",
                f"{wish.per_node} GPUs on each of {nodes} nodes are not {total} in all",
            )
        total = wish.per_node * nodes
    total = total or 0
    if nodes and (total % nodes or (wish.per_task and tasks % nodes)):
        raise CannotLayOut(
            "--gpus-per-task" if wish.per_task else "--gpus",
            f"{total} GPUs cannot be divided evenly over {nodes} nodes: leave --nodes away, or "
            "ask for as many on each",
        )
    return nodes, total


def _cpus_per_task(said: Mapping[str, str]) -> int | None:
    asked = _count(said, "--cpus-per-task")
    if "--cpus-per-gpu" in said and asked is not None:
        raise InvalidRequest(
            "--cpus-per-gpu is mutually exclusive with --cpus-per-task", field="--cpus-per-gpu"
        )
    return asked


def _memory(said: Mapping[str, str], gpus: int, nodes: int, cpus_per_node: int) -> tuple[str, str]:
    """Memory of each node, and of each core of a job without GPUs."""
    named = [name for name in ("--mem", "--mem-per-cpu", "--mem-per-gpu") if name in said]
    if len(named) > 1:
        what = "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."
        raise InvalidRequest(what, field=named[1])
    if not named:
        return "", ""
    name = named[0]
    kib = kib_of(name, said[name])
    if not kib:  # of --mem it means all memory of a node: `request` asks for it
        return "", ""
    if name == "--mem":
        return f"{kib}KiB", ""
    if name == "--mem-per-gpu":
        if not gpus:
            raise CannotLayOut(name, "the job asks for no GPU: use --mem-per-cpu")
        return f"{kib * (gpus // nodes)}KiB", ""
    return (f"{kib * cpus_per_node}KiB", "") if gpus else ("", f"{kib}KiB")


_NO_WISH = _Wish(None, None, None, "")


def _wish(said: Mapping[str, str]) -> _Wish:
    kinds: list[str] = []
    total = _typed(said, "--gpus", kinds)
    per_node = _typed(said, "--gpus-per-node", kinds)
    per_task = _typed(said, "--gpus-per-task", kinds)
    if (gres := _listed(said, "--gres", kinds)) is not None:
        if per_node is not None and per_node != gres:
            raise CannotLayOut("--gres", "--gpus-per-node says another number of GPUs")
        per_node = gres
    if (tres := _listed(said, "--tres-per-task", kinds)) is not None:
        per_task = tres
    if len(set(kinds)) > 1:
        raise CannotLayOut("--gres", f"a job has GPUs of one type, not {' and '.join(kinds)}")
    return _Wish(total or None, per_node or None, per_task or None, kinds[0] if kinds else "")


def _typed(said: Mapping[str, str], name: str, kinds: list[str]) -> int | None:
    """`4`, `h100:4` of an option."""
    text = said.get(name)
    if text is None:
        return None
    kind, _, count = text.strip().rpartition(":")
    if not _COUNT.fullmatch(count) or (kind and not re.fullmatch(r"[A-Za-z][\w.-]*", kind)):
        raise InvalidRequest(f"Invalid {name} specification", field=name)
    if kind and int(count):
        kinds.append(kind)
    return int(count)


def _listed(said: Mapping[str, str], name: str, kinds: list[str]) -> int | None:
    """GPUs among resources: `gpu:2`, `gpu:h100:2`, `gres/gpu=2`; one entry has them."""
    text = said.get(name)
    if text is None or text.strip().lower() == "none":
        return None
    total = 0
    for part in text.split(","):
        found = _GRES.fullmatch(part.strip())
        if found is None:
            raise CannotLayOut(name, f"{part.strip()[:40]}: only GPUs are resources of a node here")
        count = int(found[2] if found[2] is not None else 1)
        if part.strip() != text.strip() and total:
            raise CannotLayOut(name, f"{text[:40]}: GPUs are named twice: say one number")
        total += count
        if found[1] and count:
            kinds.append(found[1])
    return total


def named_nodes(said: Mapping[str, str]) -> int:
    """The number of nodes that are named; 0: none, or no list of names, which others refuse."""
    with suppress(ValueError):
        return len(expand_hostlist(said[NODELIST])) if said.get(NODELIST) else 0
    return 0


def _nodes(said: Mapping[str, str]) -> tuple[int | None, bool]:
    """The number of nodes, and whether it begins a range; no fewer than are named."""
    text, named = said.get("--nodes"), named_nodes(said)
    if text is None:
        return named or None, False
    least, dash, most = text.strip().partition("-")
    if dash and not least:  # as in Slurm, `-2` is 0-2
        least = "0"
    numbers = [_node_number(word, text) for word in ((least, most) if dash else (least,))]
    if numbers[-1] < numbers[0]:
        what = f"Maximum node count {numbers[-1]} is less than minimum node count {numbers[0]}"
        raise SlurmSays(f"sbatch: error: {what}", code=255)
    if not numbers[-1]:
        what = "Batch job submission failed: Node count specification invalid"
        raise InvalidRequest(what, field="--nodes")
    if named > numbers[-1]:
        what = f"invalid number of nodes (-N {named}-{numbers[-1]})"
        raise SlurmSays(f"sbatch: error: {what}", code=255)
    return max(1, named, numbers[0]), numbers[0] < numbers[-1]


def _node_number(word: str, text: str) -> int:
    scale = {"k": 1024, "m": 1048576}.get(word[-1:].lower(), 1)
    digits = word[:-1] if scale > 1 else word
    if not _COUNT.fullmatch(digits):
        what = f'"{text[:40]}" is not a valid node count'
        raise SlurmSays(f"sbatch: error: {what}", code=255)
    return int(digits) * scale


def _count(said: Mapping[str, str], name: str) -> int | None:
    """A number of at least 1."""
    text = said.get(name)
    if text is None:
        return None
    if not _COUNT.fullmatch(text.strip()) or not int(text):
        raise _invalid(name, text)
    return int(text)


def kib_of(name: str, text: str) -> int:
    """A size in whole MiB, as KiB; Slurm's bare number is MiB. SlurmSays for any other text."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise SlurmSays(f"sbatch: error: Invalid {name} specification", code=255)
    kib = int(found[1]) << {"K": 0, "": 10, "M": 10, "G": 20, "T": 30}[found[2].upper()]
    return -(-kib // 1024) * 1024  # Slurm rounds up to MiB


def _divided(total: int, each: int, option: str, what: str) -> int:
    if total % each:
        raise CannotLayOut(option, f"{total} {what} are not {each} for each")
    return total // each
