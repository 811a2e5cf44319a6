"""The request of a Slurm script as a layer of a spec: for sbatch, salloc, srun outside a job, and
`dlq submit --compat slurm`.

Every option is taken, has no effect on the work, or refuses the submission (`decisions`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress

from dlq_cli.output.said import SlurmSays, unknown_option
from dlq_cli.spec.fields import put, put_flag
from dlq_cli.spec.slurm.conversion import Conversion, Ignored
from dlq_cli.spec.slurm.convert import AMONG, convert
from dlq_cli.spec.slurm.decisions import OptionKind, decision
from dlq_cli.spec.slurm.layout import (
    LAYOUT_OPTIONS,
    NODELIST,
    CannotLayOut,
    TaskLayout,
    kib_of,
    named_nodes,
    task_layout,
)
from dlq_cli.spec.slurm.sbatch import KNOWN, Option
from dlq_cli.spec.values.given import Given, Layer, Notes, bounded
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.table.output_files import STDOUT

ACCOUNT = "--account"
_EXCLUSIVE = "--exclusive"
_DEFAULT = "Slurm's default"
FEWEST = "Slurm's fewest nodes"
"""The origin of `nodes` where the options do not say it: other numbers will do too."""
WHOLE = "Slurm's --exclusive"
"""The origin of `nodes` where the job gets all of them."""
ALL_MEMORY = "Slurm's --mem=0"
"""The origin of `nodes` where a job without GPUs gets all of their cores for such jobs, as these
carry the memory.
"""
LENIENT_HINT = "--lenient, or DLQ_SLURM_LENIENT=1, submits without it"

# Programs look for these words; the code of the first kind is 255, as Slurm's.
_INVALID = ("--time", "--begin", "--signal", "--deadline")
_FAILED: Mapping[str, str] = {
    "--array": "Invalid job array specification",
    "--dependency": "Job dependency problem",
    "--qos": "Invalid qos specification",
}

# Options that a batch script finds as they were written.
_WORDS: Mapping[str, str] = {
    "--acctg-freq": "SLURM_ACCTG_FREQ",
    "--account": "SLURM_JOB_ACCOUNT",
    "--cpus-per-gpu": "SLURM_CPUS_PER_GPU",
    "--dependency": "SLURM_JOB_DEPENDENCY",
    "--distribution": "SLURM_DISTRIBUTION",
    "--export": "SLURM_EXPORT_ENV",
    "--gpu-bind": "SLURM_GPU_BIND",
    "--gpus": "SLURM_GPUS",
    "--gpus-per-node": "SLURM_GPUS_PER_NODE",
    "--gpus-per-task": "SLURM_GPUS_PER_TASK",
    "--hint": "SLURM_HINT",
    "--ntasks-per-core": "SLURM_NTASKS_PER_CORE",
    "--ntasks-per-gpu": "SLURM_NTASKS_PER_GPU",
    "--profile": "SLURM_PROFILE",
    "--qos": "SLURM_JOB_QOS",
    "--threads-per-core": "SLURM_THREADS_PER_CORE",
}
_SWITCHED: Mapping[str, str] = {
    "--overcommit": "SLURM_OVERCOMMIT",
    "--get-user-env": "SLURM_GET_USER_ENV",
}
# Slurm takes a list with one of them in it.
_MAILS = frozenset(
    {
        "NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT",
        "TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS",
    }
)  # fmt: skip
_NO_HINT = Option("--hint", "", 0, "")
_MIB: Mapping[str, str] = {
    "--mem": "SLURM_MEM_PER_NODE",
    "--mem-per-cpu": "SLURM_MEM_PER_CPU",
    "--mem-per-gpu": "SLURM_MEM_PER_GPU",
}


def sbatch_layer(
    text: str, name: str, notes: Notes, *, more: Sequence[Option] = (), lenient: bool = False
) -> Layer:
    """The request of the script's #SBATCH lines, with `more` options above them.

    InvalidRequest names an option that cannot be read, or that is refused; a lenient submission
    goes on without the latter, and notes it.
    """
    made = convert(text, name, more=more, compat=True)
    lenient = lenient or "--lenient" in made.last
    layer = _told(made)
    layer[STDOUT.key] = Given(_default_output(made), _DEFAULT)
    for taken in made.taken:
        put_flag(layer, taken.flag, taken.raw, _place(name, taken.line))
    for ignored in made.ignored:
        _judge(made, ignored, name, notes, lenient=lenient)
    layer |= _laid_out(made, name, notes, lenient=lenient)
    _settled(layer, made, name, notes, lenient=lenient)
    notes.extend(f"{_place(name, remark.line or 0)}: {remark.text}" for remark in made.remarks)
    return layer


def _judge(made: Conversion, ignored: Ignored, name: str, notes: Notes, *, lenient: bool) -> None:
    option, place = made.last.get(ignored.name), _place(name, ignored.line)
    what = decision(ignored.name, option.value if option else "")
    why = what.why or ignored.why
    if ignored.name.startswith("-") and ignored.name not in KNOWN and not lenient:
        word = ignored.written.split(" ")[0][:64]
        lines = (*unknown_option("sbatch", word).lines, f"  {place}: {LENIENT_HINT}")
        raise SlurmSays(*lines, code=255)
    if what.kind is OptionKind.NO_EFFECT or (what.taken and ignored.name == _EXCLUSIVE):
        return
    if what.kind is OptionKind.NEVER or (what.kind is not OptionKind.TOLD and not lenient):
        raise _refusal(
            ignored.name, ignored.written, why, lenient=what.kind is not OptionKind.NEVER
        )
    notes.append(f"{place}: not taken over: {bounded(ignored.written)}: {why}")


def _refusal(name: str, written: str, why: str, *, lenient: bool = True) -> InvalidRequest:
    """The error for an option, in Slurm's words where programs look for them."""
    written, why = bounded(written), bounded(why)
    if name in _INVALID:
        return SlurmSays(f"sbatch: error: Invalid {name} specification", f"  {why}", code=255)
    if name in _FAILED:
        said = f"sbatch: error: Batch job submission failed: {_FAILED[name]}"
        return SlurmSays(said, f"  {written}: {why}")
    return InvalidRequest(f"{written}: {why}", field=name, hint=LENIENT_HINT if lenient else "")


def _laid_out(made: Conversion, name: str, notes: Notes, *, lenient: bool) -> Layer:
    """Tasks, nodes, GPUs, cores and memory. A lenient submission leaves options without a layout
    away, one after another.
    """
    keys = (*LAYOUT_OPTIONS, NODELIST)
    said = {key: made.last[key].value for key in keys if key in made.last}
    while True:
        try:
            layout = task_layout(said)
        except CannotLayOut as error:
            if not lenient or error.field not in said:
                error.hint = LENIENT_HINT
                raise
            del said[error.field]
            notes.append(f"{_place(name, made.last[error.field].line)}: left away: {error.what}")
            continue
        if layout.fewest and layout.implied:
            option = made.last["--nodes"]
            fewest = f"it gets {layout.nodes}, the fewest"
            notes.append(f"{_place(name, option.line)}: {option.written}: {fewest}")
        if named_nodes(said) > (layout.nodes or 1):
            option = made.last[NODELIST]
            notes.append(f"{_place(name, option.line)}: {option.written}: {AMONG}")
        return _layer_of(layout, made, name)


def _layer_of(layout: TaskLayout, made: Conversion, name: str) -> Layer:
    layer: Layer = {}

    def say(key: str, value: object, *options: str) -> None:
        option = next((made.last[each] for each in options if each in made.last), None)
        origin = _place(name, option.line) if option else _DEFAULT
        put(layer, key, value, origin)

    _say_tasks(layer, layout, say)
    say("nodes", layout.nodes or 1, "--nodes", "--ntasks-per-node")
    if layout.nodes is None and _spreads(layout):
        layer["nodes"] = Given(1, FEWEST)
    if _is_exclusive(made):
        layer["nodes"] = Given(layout.nodes or 1, WHOLE)
    elif not layout.gpus and _wants_all_memory(made):
        layer["nodes"] = Given(layout.nodes or 1, ALL_MEMORY)
    if layout.gpus:
        kind = f"{layout.gpu_type}:" if layout.gpu_type else ""
        each = f"{kind}{layout.gpus // (layout.nodes or 1)}"
        say("resources.gpus", each, "--gres", "--gpus-per-node", "--gpus", "--gpus-per-task")
        if layout.cpus_per_node:
            say("resources.cpus", str(layout.cpus_per_node), "--cpus-per-task", "--cpus-per-gpu")
    else:
        say("resources.cores", layout.cores, "--ntasks", "--cpus-per-task")
    if layout.memory:
        say("resources.memory", layout.memory, "--mem", "--mem-per-cpu", "--mem-per-gpu")
    if layout.memory_per_core:
        say("resources.memory_per_core", layout.memory_per_core, "--mem-per-cpu")
    return layer


def _is_exclusive(made: Conversion) -> bool:
    option = made.last.get(_EXCLUSIVE)
    return option is not None and decision(_EXCLUSIVE, option.value).taken


def _wants_all_memory(made: Conversion) -> bool:
    return "--mem" in made.last and not kib_of("--mem", made.last["--mem"].value)


def _spreads(layout: TaskLayout) -> bool:
    """Whether any split over nodes will do, where one node is too small."""
    of_a_node = layout.memory or layout.tasks_per_node or layout.cpus_per_node
    return not of_a_node and (layout.gpus_per_task or 1) == 1


def _say_tasks(layer: Layer, layout: TaskLayout, say: object) -> None:
    assert callable(say)
    if layout.implied:  # also when it is elastic, and runs on more nodes
        say("tasks_per_node", 1)
        say("tasks_implied", True)
    else:
        say("tasks", layout.tasks, "--ntasks", "--ntasks-per-gpu", "--gpus-per-task")
    if layout.tasks_per_node:
        say("tasks_per_node", layout.tasks_per_node, "--ntasks-per-node")
    if layout.cpus_per_task:
        say("cpus_per_task", layout.cpus_per_task, "--cpus-per-task")
    if layout.gpus_per_task:
        say("gpus_per_task", layout.gpus_per_task, "--gpus-per-task")


def _settled(layer: Layer, made: Conversion, name: str, notes: Notes, *, lenient: bool) -> None:
    """Account, QOS and requeue."""
    if option := made.last.get(ACCOUNT):
        put(layer, "team", option.value, ACCOUNT)
    qos = made.last.get("--qos")
    if qos is not None and qos.value not in ("normal", ""):
        why = "a queue stands for a QOS here: -p"
        if not lenient:
            raise _refusal("--qos", qos.written, why)
        notes.append(f"{_place(name, qos.line)}: not taken over: {qos.written}: {why}")
    mails = made.last.get("--mail-type")
    if mails is not None and not _MAILS & {word.upper() for word in mails.value.split(",")}:
        raise SlurmSays("sbatch: error: Invalid --mail-type specification", code=255)
    again = [each for each in made.last if each in ("--requeue", "--no-requeue")]
    if again and again[-1] == "--no-requeue":
        put(layer, "no_requeue", True, "--no-requeue")


def _told(made: Conversion) -> Layer:
    """Variables of the batch script that repeat options; the agent adds what is placed."""
    values = {_WORDS[key]: made.last[key].value for key in _WORDS if key in made.last}
    for key, variable in _MIB.items():
        if key in made.last and (kib := kib_of(key, made.last[key].value)):
            values[variable] = str(kib >> 10)
    values |= {_SWITCHED[key]: "1" for key in _SWITCHED if key in made.last}
    if values.get("SLURM_EXPORT_ENV", "ALL").upper() == "ALL":
        values.pop("SLURM_EXPORT_ENV", None)
    else:
        values["SLURM_GET_USER_ENV"] = "1"
    if "SLURM_PROFILE" in values:
        values["SLURM_PROFILE"] = values["SLURM_PROFILE"].capitalize()
    if "--open-mode" in made.last:
        values["SLURM_OPEN_MODE"] = made.last["--open-mode"].value[:1]
    if made.last.get("--hint", _NO_HINT).value == "nomultithread":
        values["SLURM_THREADS_PER_CORE"] = "1"
    with suppress(OSError):  # the present directory is gone
        values["SLURM_SUBMIT_DIR"] = os.getcwd()
    values["SLURM_SUBMIT_HOST"] = socket.gethostname().partition(".")[0]
    values["SLURM_PRIO_PROCESS"] = str(os.getpriority(os.PRIO_PROCESS, 0))
    return {f"env.{key}": Given(value, "sbatch") for key, value in values.items()}


def _default_output(made: Conversion) -> str:
    return "slurm-%A_%a.out" if "--array" in made.last else "slurm-%j.out"


def _place(name: str, line: int) -> str:
    return f"{name}:{line}" if line else "sbatch"
