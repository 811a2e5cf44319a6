"""A script for Slurm as a job for dlq: the flag for each #SBATCH option, or the reason why it has
none.

Nothing is dropped silently: an option ends up as flags of ours, or in the list with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from dlq_cli.output.said import SlurmSays
from dlq_cli.spec.slurm.body import Remark, remarks
from dlq_cli.spec.slurm.conversion import Conversion, ignore, number, slurm_size, take
from dlq_cli.spec.slurm.layout import LAYOUT_OPTIONS
from dlq_cli.spec.slurm.sbatch import HETJOB, Option, read_options
from dlq_cli.spec.slurm.sums import COMPUTED, ONCE, compute
from dlq_cli.spec.values.given import wrong
from dlq_common.job_fields.reading.program import export_words
from dlq_common.job_fields.reading.words import OPEN_MODES
from dlq_common.text.arrays import parse_array, slurm_array
from dlq_common.text.signals import signal_name
from dlq_common.text.units import whole_minutes


def convert(
    text: str, source: str, *, more: Sequence[Option] = (), compat: bool = False
) -> Conversion:
    """Every #SBATCH option of a script, and `more` of them that win. InvalidRequest when one cannot
    be read.

    A job with `compat` gives tasks a meaning and has Slurm's commands and variables; it needs no
    options. Without `compat`, a script without options is an InvalidRequest.
    """
    written = list(read_options(text, source))
    if not written and not compat:
        raise wrong(source, "it has no #SBATCH lines before its first command: nothing to convert")
    made = Conversion(source, text, compat=compat)
    options = _asked([*_first_part(made, written), *more], compat=compat)
    last = {option.name: option for option in options}  # as in Slurm, the last word counts
    made.last = last
    for option in options:
        if compat and (option.name in BY_RULE or last[option.name] is not option):
            continue
        if last[option.name] is not option and option.name not in _REPEATED:
            ignore(made, option, f"line {last[option.name].line} says it again")
        elif option.name in COMPUTED:
            continue
        elif handler := _HANDLERS.get(option.name):
            handler(made, option)
        else:
            ignore(made, option, _REASONS.get(option.name, "dlq has nothing like it"))
    if not compat:
        compute(made, {name: last[name] for name in COMPUTED if name in last}, last)
    made.taken.sort(key=lambda taken: taken.line)
    made.ignored.sort(key=lambda ignored: ignored.line)
    if not compat:
        made.remarks += remarks(text, nodes=number(last.get("--nodes")) or 1)
        _remark_defaults(made, last)
    return made


def _first_part(made: Conversion, options: Sequence[Option]) -> Sequence[Option]:
    """The options before `#SBATCH hetjob`; the others are listed."""
    cut = next((at for at, one in enumerate(options) if one.name in HETJOB), len(options))
    for option in options[cut:]:
        ignore(made, option, "a job here has one part: submit the others as jobs of their own")
    return options[:cut]


# As in Slurm these ask for nothing when their last value is empty: a script has `-A "$ACCOUNT"`.
_MAY_BE_EMPTY = frozenset(
    {
        "--account", "--array", "--chdir", "--constraint", "--dependency", "--error", "--exclude",
        "--gpus", "--gpus-per-node", "--gpus-per-task", "--input", "--job-name", "--licenses",
        "--nodelist", "--output", "--reservation",
    }
)  # fmt: skip


def _asked(options: Sequence[Option], *, compat: bool) -> Sequence[Option]:
    """The options without those that an empty word takes back."""
    if not compat:
        return options
    last = {option.name: option.value for option in options}
    none = {name for name in _MAY_BE_EMPTY & last.keys() if not last[name].strip()}
    if last.get("--dependency") == "0":
        none.add("--dependency")
    return [option for option in options if option.name not in none]


# -- one option, one flag ----------------------------------------------------------------------

_Handler = Callable[[Conversion, Option], None]
_JOB = re.compile(r"[0-9]+(?:_[0-9]+)?", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]")
_DAYS = re.compile(r"[0-9]{1,9}-", re.ASCII)
_GRES = re.compile(r"(?:gres/)?gpu(?:[:=]([A-Za-z][\w-]*))?(?:[:=](\d+))?")


def _same(name: str, written: Callable[[str], str] = str) -> _Handler:
    """A flag with the same value, as it is `written` here."""
    return lambda made, option: take(made, option, name, written(option.value))


def _time_limit(text: str) -> str:
    if _DAYS.fullmatch(text):  # `1-` is a day
        text += "0"
    return "0" if text.upper() in _ENDLESS else whole_minutes(text)


def _switch(name: str) -> _Handler:
    return lambda made, option: take(made, option, name, True)


def _nodes(made: Conversion, option: Option) -> None:
    least, dash, most = option.value.partition("-")
    if dash and least != most:
        made.remarks.append(
            Remark(
                option.line,
                f"{option.written}: the smaller number; --elastic MIN:MAX, in GPUs, lets it "
                "stretch",
            )
        )
    take(made, option, "--nodes", least.strip())


def _mem(made: Conversion, option: Option) -> None:
    size = slurm_size(option.value)
    if size == "0M":
        ignore(made, option, "0 means all of a node's memory; here no limit means that")
    else:
        take(made, option, "--mem", size)


def _gres(made: Conversion, option: Option) -> None:
    for part in option.value.split(","):
        found = _GRES.fullmatch(part.strip())
        one = option._replace(written=f"--gres={part.strip()}")
        if found is None:
            ignore(made, one, "only GPUs are resources of a node here")
        else:
            kind = f"{found[1]}:" if found[1] else ""
            take(made, one, "--gpus-per-node", f"{kind}{found[2] or 1}")


def _signal(made: Conversion, option: Option) -> None:
    target, _, rest = option.value.rpartition(":")
    name, at, ahead = rest.partition("@")
    with suppress(ValueError):
        name = signal_name(name)
    if "R" in target.upper():
        made.remarks.append(Remark(option.line, "R: has no counterpart; there are no reservations"))
    if made.compat and "B" in target.upper():
        take(made, option, "--signal-to", "script")
    take(made, option, "--signal", f"{name}@{ahead}" if at else f"{name}@60")


def _mounts(made: Conversion, option: Option) -> None:
    """Pyxis writes several with commas, and `SRC` for the same place inside."""
    for part in option.value.split(","):
        source, _, rest = part.partition(":")
        one = option._replace(written=f"--container-mounts={part}")
        take(made, one, "--mount", f"{source}:{rest or source}")


def _dependency(made: Conversion, option: Option) -> None:
    alone = _JOB.fullmatch(option.value.strip())  # Slurm's old form
    words = f"afterany:{alone[0]}" if alone else option.value
    take(made, option, "--dependency", words)
    if not made.compat and any(char.isdecimal() for char in option.value):
        made.remarks.append(
            Remark(option.line, f"{option.written}: these are Slurm's numbers; name jobs of dlq")
        )


def _array(text: str) -> str:
    """As it is written, where dlq reads it so: other forms as Slurm reads them."""
    with suppress(ValueError):
        parse_array(text)
        return text
    return slurm_array(text)


def _export(made: Conversion, option: Option) -> None:
    """A word that begins like no name of a variable exports none; without any it is NONE."""
    words = export_words(option.value) if option.value.upper() != "NIL" else ()
    named = [word for word in words if _NAME.match(word)]
    for word in words:
        if word not in named:
            made.remarks.append(Remark(option.line, f"--export: {word!r} names no variable"))
    take(made, option, "--export", ",".join(named) or "NONE")


def _nodelist(made: Conversion, option: Option) -> None:
    take(made, option, "--nodelist", option.value)
    if not made.compat:
        made.remarks.append(Remark(option.line, f"{option.written}: {AMONG}"))


def _partition(made: Conversion, option: Option) -> None:
    if not option.value.strip():
        raise SlurmSays(
            "sbatch: error: invalid partition specified: (null)",
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
        )
    queues = {word.strip() for word in option.value.split(",")}
    if len(queues) > 1:
        why = "a job waits in one queue here: name one of them"
        ignore(made, option, why)
        return
    take(made, option, "--queue", queues.pop())


def _open_mode(value: str) -> str:
    """Slurm takes a beginning, such as `a`."""
    return next((mode for mode in OPEN_MODES if value and mode.startswith(value)), value)


_ENDLESS = frozenset({"UNLIMITED", "INFINITE", "-1"})
_HANDLERS: Mapping[str, _Handler] = {
    "--job-name": _same("--job-name"),
    "--partition": _partition,
    "--nodes": _nodes,
    "--gpus": _same("--gpus"),
    "--gpus-per-node": _same("--gpus-per-node"),
    "--gres": _gres,
    "--mem": _mem,
    "--array": _same("--array", _array),
    "--time": _same("--time", _time_limit),
    "--chdir": _same("--chdir"),
    "--signal": _signal,
    "--export": _export,
    "--dependency": _dependency,
    "--nodelist": _nodelist,
    "--hold": _switch("--hold"),
    "--kill-on-invalid-dep": _same("--kill-on-invalid-dep"),
    "--comment": _same("--label", "comment={}".format),
    # Flags that came or will come with later versions: taken as soon as they are known.
    **{
        name: _same(name)
        for name in (
            "--account", "--begin", "--constraint", "--deadline", "--exclude",
            "--priority", "--qos", "--time-min",
        )
    },
    # Pyxis writes `nvcr.io#nvidia/pytorch:25.01`.
    "--container-image": _same("--image", lambda it: it.replace("#", "/", 1)),
    "--container-mounts": _mounts,
    "--container-workdir": _same("--chdir"),
    "--contiguous": _switch("--contiguous"),
    "--output": _same("--output"),
    "--error": _same("--error"),
    "--open-mode": _same("--open-mode", _open_mode),
}  # fmt: skip
_REPEATED = frozenset({"--comment"})

# With compat these are read together, or settled when the job is sent: `request` does it.
BY_RULE = frozenset(
    {
        *LAYOUT_OPTIONS, "--account", "--qos", "--clusters", "--requeue", "--no-requeue",
        "--lenient", "--parsable", "--wait", "--test-only", "--quiet", "--verbose",
        "--propagate",
    }
)  # fmt: skip

AMONG = "here it means only on these, not on all of these"
_PLACED = "dlq chooses CPUs and links itself"
_REASONS: Mapping[str, str] = {
    "--input": "a job here has no stdin",
    "--requeue": "always so: a job that loses its GPUs or its node is queued again",
    "--no-requeue": "dlq always queues a job again that lost its GPUs or its node",
    "--mail-type": "a rule sends mails: dlq notify add mail ADDRESS",
    "--mail-user": "a rule sends mails: dlq notify add mail ADDRESS",
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
    "--ntasks-per-gpu": ONCE,
    "--ntasks-per-core": ONCE,
    "--ntasks-per-socket": ONCE,
    "--overcommit": ONCE,
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
    "--quiet": "only errors and the reason of a wait are printed",
    "--verbose": "dlq why JOB tells more",
}  # fmt: skip


def _remark_defaults(made: Conversion, every: Mapping[str, Option]) -> None:
    """Differences between the defaults of Slurm and dlq."""
    flags = {name for taken in made.taken for name in taken.flag.names}
    if not flags & {"--gpus", "--gpus-per-node"}:
        made.remarks.append(
            Remark(None, "it asks for no GPU: add #DLQ --cores=N, or it gets one GPU")
        )
    if "--export" not in every:
        made.remarks.append(
            Remark(
                None,
                "Slurm passes all of your environment on, dlq nothing of it: name the needed "
                "variables with #DLQ --env=NAME, or add #DLQ --export=ALL",
            )
        )
    if "--partition" in every and "--queue" in flags:
        made.remarks.append(
            Remark(every["--partition"].line, "a partition became a queue: see dlq queues")
        )
