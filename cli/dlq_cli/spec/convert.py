"""A script for Slurm as a job for dlq: what each #SBATCH option becomes, and why some become nothing.

Nothing is dropped silently: an option ends up as flags of ours, or in the list with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dlq_cli.spec.flags import BY_NAME, Flag, put_flag
from dlq_cli.spec.given import Layer, wrong
from dlq_cli.spec.sbatch import Option, read_options
from dlq_cli.spec.slurm_body import Remark, remarks
from dlq_common.errors import InvalidRequest


class Taken(NamedTuple):
    """An option of sbatch that became one of ours."""

    line: int
    written: str
    flag: Flag
    raw: str | bool


class Ignored(NamedTuple):
    """An option of sbatch that became nothing."""

    line: int
    written: str
    why: str


@dataclass(slots=True)
class Conversion:
    """What became of a script."""

    source: str
    text: str
    taken: list[Taken] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    compat: bool = False


def convert(
    text: str, source: str, *, more: Sequence[Option] = (), compat: bool = False
) -> Conversion:
    """Every #SBATCH option of a script, and `more` of them that win. InvalidRequest when one cannot be
    read.

    For a job with `compat`, tasks mean something, Slurm's commands and variables are there, and none
    of the options need be; without it, InvalidRequest when there is none.
    """
    options = [*read_options(text, source), *more]
    if not options and not compat:
        raise wrong(source, "it has no #SBATCH lines before its first command: nothing to convert")
    made = Conversion(source, text, compat=compat)
    last = {option.name: option for option in options}  # as in Slurm, the last word counts
    for option in options:
        if last[option.name] is not option and option.name not in _REPEATED:
            _ignore(made, option, f"line {last[option.name].line} says it again")
        elif option.name in _COMPUTED:
            continue
        elif handler := _HANDLERS.get(option.name):
            handler(made, option)
        else:
            _ignore(made, option, _REASONS.get(option.name, "dlq has nothing like it"))
    _compute(made, {name: last[name] for name in _COMPUTED if name in last}, last)
    made.taken.sort(key=lambda taken: taken.line)
    made.ignored.sort(key=lambda ignored: ignored.line)
    if not compat:
        made.remarks = remarks(text, nodes=_number(last.get("--nodes")) or 1)
        _remark_defaults(made, last)
    return made


def _take(made: Conversion, option: Option, name: str, raw: str | bool) -> None:
    """As our flag of that name, if this version has it and the value is one that it takes."""
    flag = BY_NAME.get(name)
    if flag is None:
        _ignore(made, option, "not supported by this version of dlq")
        return
    if not flag.repeat and (first := _already(made, flag)):
        _ignore(made, option, f"line {first.line} says it already: {first.written}")
        return
    try:
        put_flag(Layer(), flag, raw, "it")
    except InvalidRequest as error:
        _ignore(made, option, error.what.removeprefix("it: "))
        return
    made.taken.append(Taken(option.line, option.written, flag, raw))


def _already(made: Conversion, flag: Flag) -> Taken | None:
    return next((taken for taken in made.taken if taken.flag.key == flag.key), None)


def _ignore(made: Conversion, option: Option, why: str) -> None:
    made.ignored.append(Ignored(option.line, option.written, why))


# -- one option, one flag ----------------------------------------------------------------------

_Handler = Callable[[Conversion, Option], None]
_SIGNALS = {"10": "USR1", "12": "USR2", "15": "TERM", "2": "INT"}
_GRES = re.compile(r"(?:gres/)?gpu(?:[:=]([A-Za-z][\w-]*))?(?:[:=](\d+))?")


def _same(name: str) -> _Handler:
    return lambda made, option: _take(made, option, name, option.value)


def _switch(name: str) -> _Handler:
    return lambda made, option: _take(made, option, name, True)


def _nodes(made: Conversion, option: Option) -> None:
    least, dash, most = option.value.partition("-")
    if dash and least != most:
        made.remarks.append(
            Remark(option.line, f"{option.written}: the smaller number; jobs here do not stretch")
        )
    _take(made, option, "--nodes", least.strip())


def _time(made: Conversion, option: Option) -> None:
    endless = option.value.upper() in {"UNLIMITED", "INFINITE", "-1"}
    _take(made, option, "--time", "0" if endless else option.value)


def _mem(made: Conversion, option: Option) -> None:
    size = _slurm_size(option.value)
    if size == "0M":
        _ignore(made, option, "0 means all of a node's memory; here no limit means that")
    else:
        _take(made, option, "--mem", size)


def _gres(made: Conversion, option: Option) -> None:
    for part in option.value.split(","):
        found = _GRES.fullmatch(part.strip())
        one = option._replace(written=f"--gres={part.strip()}")
        if found is None:
            _ignore(made, one, "only GPUs are resources of a node here")
        else:
            kind = f"{found[1]}:" if found[1] else ""
            _take(made, one, "--gpus-per-node", f"{kind}{found[2] or 1}")


def _signal(made: Conversion, option: Option) -> None:
    target, _, rest = option.value.rpartition(":")
    name, at, ahead = rest.partition("@")
    name = _SIGNALS.get(name, name.upper().removeprefix("SIG"))
    if "R" in target.upper():
        made.remarks.append(Remark(option.line, "R: has no counterpart; there are no reservations"))
    _take(made, option, "--signal", f"{name}@{ahead}" if at else f"{name}@60")


def _image(made: Conversion, option: Option) -> None:
    """Pyxis writes `nvcr.io#nvidia/pytorch:25.01`."""
    _take(made, option, "--image", option.value.replace("#", "/", 1))


def _mounts(made: Conversion, option: Option) -> None:
    """Pyxis writes several with commas, and `SRC` for the same place inside."""
    for part in option.value.split(","):
        source, _, rest = part.partition(":")
        one = option._replace(written=f"--container-mounts={part}")
        _take(made, one, "--mount", f"{source}:{rest or source}")


def _export(made: Conversion, option: Option) -> None:
    _take(made, option, "--export", "NONE" if option.value.upper() == "NIL" else option.value)


def _comment(made: Conversion, option: Option) -> None:
    _take(made, option, "--label", f"comment={option.value}")


_HANDLERS: Mapping[str, _Handler] = {
    "--job-name": _same("--job-name"),
    "--partition": _same("--queue"),
    "--nodes": _nodes,
    "--gpus": _same("--gpus"),
    "--gpus-per-node": _same("--gpus-per-node"),
    "--gres": _gres,
    "--mem": _mem,
    "--time": _time,
    "--chdir": _same("--chdir"),
    "--signal": _signal,
    "--export": _export,
    "--hold": _switch("--hold"),
    "--comment": _comment,
    # Flags that came or will come with later versions: taken as soon as they are known.
    **{
        name: _same(name)
        for name in (
            "--account", "--array", "--begin", "--constraint", "--deadline", "--dependency",
            "--exclude", "--nodelist", "--priority", "--qos", "--time-min",
        )
    },
    "--container-image": _image,
    "--container-mounts": _mounts,
    "--container-workdir": _same("--chdir"),
    "--contiguous": _switch("--contiguous"),
}  # fmt: skip
_REPEATED = frozenset({"--comment"})

_LOGS = "dlq keeps the output of every rank itself: dlq logs JOB"
_ONCE = "dlq starts the script once on each node; torchrun starts one process for each GPU"
_PLACED = "dlq chooses CPUs and links itself"
_REASONS: Mapping[str, str] = {
    "--output": _LOGS,
    "--error": _LOGS,
    "--open-mode": "output is never overwritten; attempts follow each other",
    "--input": "a job here has no stdin",
    "--requeue": "always so: a job that loses its GPUs or its node is queued again",
    "--no-requeue": "dlq always queues a job again that lost its GPUs or its node",
    "--mail-type": "no mail yet: dlq wait JOB && ... in your shell",
    "--mail-user": "no mail yet: dlq wait JOB && ... in your shell",
    "--wait": "say it when you submit: dlq submit --wait",
    "--parsable": "say it when you submit: dlq submit --parsable",
    "--test-only": "say it when you submit: dlq submit --test-only",
    "--exclusive": "GPUs are never shared; other jobs may use the node's other GPUs",
    "--oversubscribe": "GPUs are never shared",
    "--get-user-env": "nothing of your login environment is passed on; name variables with --env",
    "--propagate": "limits of your shell are not passed on",
    "--nice": "dlq's --nice goes from -100 to 100, and each step counts for more",
    "--reservation": "there are no reservations",
    "--licenses": "there are no licenses to count",
    "--ntasks-per-gpu": _ONCE,
    "--ntasks-per-core": _ONCE,
    "--ntasks-per-socket": _ONCE,
    "--overcommit": _ONCE,
    **dict.fromkeys(
        (
            "--distribution", "--extra-node-info", "--hint", "--mem-bind", "--cpu-bind",
            "--gpu-bind", "--gres-flags", "--switches", "--threads-per-core", "--core-spec",
            "--sockets-per-node", "--cores-per-socket", "--spread-job", "--accel-bind",
        ),
        _PLACED,
    ),
    "--clusters": "one cluster; dlq --home names another",
    "--tmp": "space on local disks is not counted",
    "--no-kill": "when one node of a gang is lost, all of it starts again from its checkpoint",
    "--gpu-freq": "clocks of GPUs are the operator's",
    "--cpu-freq": "clocks of CPUs are the operator's",
    "--power": "clocks are the operator's",
    "--quiet": "only errors and what a job waits for are told",
    "--verbose": "dlq why JOB tells more",
}  # fmt: skip

# -- what several options say together ---------------------------------------------------------

_COMPUTED = (
    "--ntasks", "--ntasks-per-node", "--cpus-per-task", "--gpus-per-task", "--cpus-per-gpu",
    "--mem-per-cpu", "--mem-per-gpu",
)  # fmt: skip


def _compute(made: Conversion, some: Mapping[str, Option], every: Mapping[str, Option]) -> None:
    """Per task, per CPU and per GPU: as numbers of a node, where the script says enough."""
    nodes = _number(every.get("--nodes"))
    tasks = _tasks_per_node(some, nodes)
    gpus = _gpus_per_node(made, nodes)
    if option := some.get("--gpus-per-task"):
        kind, each = _typed(option.value)
        total = _number(some.get("--ntasks"))
        if tasks and each and (nodes or not total):
            _take(made, option, "--gpus-per-node", f"{kind}{each * tasks}")
            gpus = gpus or each * tasks
        elif total and each:
            _take(made, option, "--gpus", f"{kind}{each * total}")
        else:
            _ignore(made, option, "how many tasks a node has is not said")
    cpus = _per_node(made, some, "--cpus-per-task", tasks, "tasks", "--cpus")
    cpus = _per_node(made, some, "--cpus-per-gpu", gpus, "GPUs", "--cpus") or cpus
    _per_node(made, some, "--mem-per-gpu", gpus, "GPUs", "--mem")
    _per_node(made, some, "--mem-per-cpu", cpus, "CPUs", "--mem")
    for name in ("--ntasks", "--ntasks-per-node"):
        if option := some.get(name):
            _tasks(made, option, tasks)


def _tasks(made: Conversion, option: Option, each: int) -> None:
    if not made.compat:
        _ignore(made, option, _ONCE)
    elif each:
        _take(made, option, "--ntasks-per-node", str(each))
    else:
        _ignore(made, option, "how many tasks a node has is not said: use --ntasks-per-node")


def _per_node(
    made: Conversion, some: Mapping[str, Option], name: str, count: int, what: str, flag: str
) -> int:
    """`name` times `count` as a flag; the product for CPUs, 0 when it is not known."""
    option = some.get(name)
    if option is None:
        return 0
    if not count:
        _ignore(made, option, f"how many {what} a node has is not said: use {flag}, for each node")
        return 0
    if flag == "--mem":
        _take(made, option, flag, _times(_slurm_size(option.value), count))
        return 0
    each = _number(option)
    _take(made, option, flag, str(each * count) if each else option.value)
    return each * count


def _tasks_per_node(some: Mapping[str, Option], nodes: int) -> int:
    """Tasks of each node; 1 when nothing is said, 0 when it cannot be known."""
    if each := _number(some.get("--ntasks-per-node")):
        return each
    total = _number(some.get("--ntasks"))
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


def _remark_defaults(made: Conversion, every: Mapping[str, Option]) -> None:
    """Where Slurm and dlq differ in what nobody wrote."""
    flags = {name for taken in made.taken for name in taken.flag.names}
    if not flags & {"--gpus", "--gpus-per-node"}:
        made.remarks.append(Remark(None, "it asks for no GPU; a job here has at least one"))
    if "--export" not in every:
        made.remarks.append(
            Remark(
                None,
                "Slurm passes all of your environment on, dlq nothing of it: name what the job "
                "needs with #DLQ --env=NAME, or add #DLQ --export=ALL",
            )
        )
    if "--partition" in every and "--queue" in flags:
        made.remarks.append(
            Remark(every["--partition"].line, "a partition became a queue: see dlq queues")
        )


def _typed(value: str) -> tuple[str, int]:
    kind, _, count = value.rpartition(":")
    return (f"{kind}:" if kind else ""), int(count) if count.isdecimal() else 0


def _number(option: Option | None) -> int:
    """A whole number, the smaller one of a range; 0: none."""
    text = option.value.partition("-")[0].strip() if option else ""
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _slurm_size(value: str) -> str:
    """Slurm's bare number is MiB."""
    return f"{value}M" if value.isdecimal() else value


def _times(size: str, count: int) -> str:
    found = re.fullmatch(r"(\d+)([A-Za-z]*)", size)
    return f"{int(found[1]) * count}{found[2]}" if found else size
