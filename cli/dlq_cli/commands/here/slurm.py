"""`dlq slurm`: Slurm's commands, for scripts and frameworks that call them."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import click

from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.options import examples, pass_app
from dlq_cli.output.render import clean_line
from dlq_cli.output.said import SlurmSays
from dlq_cli.quiet import quiet_grpc
from dlq_common.errors import DlqError, InvalidRequest, Unsatisfiable
from dlq_compat.version import VERSION, VERSION_WORDS


class _Program(NamedTuple):
    target: str  # module:function
    help: str
    example: str


_PROGRAMS = {
    "sbatch": _Program(
        "sbatch:main",
        "Queue a script by its #SBATCH lines.",
        "sbatch --parsable --gres=gpu:8 -t 1-00:00:00 train.slurm",
    ),
    "squeue": _Program("queue.squeue:main", "Jobs that wait and run.", "squeue --me -o '%i %t %R'"),
    "sacct": _Program(
        "accounts.sacct:main", "States and exit codes of jobs.", "sacct -P -j 17 -o JobID,State"
    ),
    "sstat": _Program(
        "sstat:main",
        "Memory and CPU time of steps that run.",
        "sstat -a -P -j 17 -o JobID,MaxRSS,AveCPU",
    ),
    "scancel": _Program("scancel:main", "End jobs, or signal them.", "scancel --signal=USR1 17"),
    "scontrol": _Program(
        "control.scontrol:main",
        "show, update, hold, release, requeue, suspend and resume jobs; ping.",
        "scontrol update JobId=17 TimeLimit=60",
    ),
    "salloc": _Program(
        "allocate.salloc:main",
        "Allocate nodes, and run a command or a shell here meanwhile.",
        "salloc -N2 --gpus-per-node=8 -t 60",
    ),
    "srun": _Program(
        "allocate.srun:main",
        "Run a command on nodes of its own, or in a job.",
        "srun -G1 --pty bash",
    ),
    "sattach": _Program(
        "allocate.sattach:main", "Join a step that runs: its output, and input.", "sattach 17.0"
    ),
    "sacctmgr": _Program(
        "accounts.sacctmgr:main",
        "Show accounts (teams), users, associations, QOS and the cluster.",
        "sacctmgr -nP show assoc user=ann format=account",
    ),
    "sshare": _Program(
        "accounts.sshare:main", "Shares and recent usage of teams.", "sshare -U -o Account%30"
    ),
    "sprio": _Program("queue.sprio:main", "Say that the order is no sum of factors.", "sprio"),
    "sdiag": _Program("control.sdiag:main", "Counts of jobs since midnight.", "sdiag"),
    "sreport": _Program(
        "accounts.sreport:main", "Name the report of dlq.", "sreport user TopUsage"
    ),
    "seff": _Program(
        "seff:main", "The share of its cores and memory that a job has used.", "seff 17"
    ),
    "strigger": _Program(
        "control.strigger:main",
        "Say what tells of events in place of triggers.",
        "strigger --set --jobid 17 --fini --program /home/ann/done.sh",
    ),
    "sinfo": _Program("nodes.sinfo:main", "Partitions and nodes.", "sinfo -N -o '%N %t %G'"),
}

_OF_JOBS = ("sbatch", "salloc", "srun")
_WITH_INSTANTS = ("squeue", "sacct", "scontrol", "sinfo")
_WITH_JOBS = (*_OF_JOBS, "sattach")


@click.group(
    epilog=examples(
        "dlq slurm install ~/bin/slurm && PATH=~/bin/slurm/bin:$PATH",
        "dlq slurm sbatch --gres=gpu:8 train.slurm",
    )
)
def slurm() -> None:
    """Slurm's commands on this cluster, in the parts that scripts and frameworks call.

    They take Slurm's own options and print as Slurm does. Jobs with --compat slurm find them in
    their PATH by themselves.
    """


@slurm.command(epilog=examples("dlq slurm install ~/bin/slurm"))
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def install(directory: Path) -> None:
    """Put stand-ins for Slurm's programs into DIRECTORY/bin, for the PATH of submitters.

    submitit and scripts then work as they are. Do not do it where the real ones are needed.
    """
    from dlq_compat.install import FRONT
    from dlq_compat.install import install as install_into

    if (
        directory.exists()
        and any(directory.iterdir())
        and not (directory / "lib" / "dlq_compat").is_dir()
    ):
        raise InvalidRequest(f"{directory} holds something else", hint="name a new directory")
    directory.parent.mkdir(parents=True, exist_ok=True)
    programs = install_into(directory.absolute(), FRONT if FRONT.exists() else None)
    (programs / "batch").unlink(missing_ok=True)  # of use inside jobs only
    click.echo(programs)


@slurm.command(hidden=True, epilog=examples("dlq slurm serve ~/.config/dlq/run KEY"))
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.argument("key")
def serve(directory: Path, key: str) -> None:
    """Keep processes ready that run Slurm's commands. The commands start it by themselves."""
    with quiet_grpc():
        from dlq_cli.front.server import serve as serve_commands

    serve_commands(directory, key)


def _command(name: str, known: _Program) -> click.Command:
    @click.command(
        name,
        help=known.help,
        epilog=examples(f"dlq slurm {known.example}"),
        # -h is an option of theirs.
        context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]},
    )
    @click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF SLURM'S]")
    @pass_app
    def run(app: App, words: tuple[str, ...]) -> None:
        if words and words[0] in VERSION_WORDS:
            click.echo(VERSION)
            return
        if words[:1] in (("--usage",), ("-h",)) and name in _OF_JOBS:
            import_module("dlq_cli.slurm.allocate.words").tell_usage(name)
            return
        module, _, function = known.target.partition(":")
        with quiet_grpc():
            program: Callable[[App, tuple[str, ...]], None] = getattr(
                import_module(f"dlq_cli.slurm.{module}"), function
            )
        if name in _WITH_INSTANTS and "SLURM_TIME_FORMAT" in os.environ:
            import_module("dlq_cli.slurm.instants").told_format(name)
        try:
            program(app, words)
        except DlqError as error:
            raise exit_codes.Ended(_code(name, error, _failed(name, error))) from None

    run.allow_interspersed_args = False
    return run


def _code(name: str, error: DlqError, code: int) -> int:
    """SLURM_EXIT_ERROR tells an error of these programs from the exit code of a job. As in Slurm
    words that cannot be read have a code of their own.
    """
    word = os.environ.get("SLURM_EXIT_ERROR", "")
    unread = isinstance(error, InvalidRequest) and error.metadata.get("field", "")[:2] == "--"
    if name not in _WITH_JOBS or code != exit_codes.FAILURE or unread:
        return code
    return int(word) & 0xFF if word.isdecimal() and len(word) < 10 else code


def _failed(name: str, error: DlqError) -> int:
    """Print the error as Slurm's programs do; the exit code."""
    if isinstance(error, SlurmSays):
        for line in error.lines:
            click.echo(clean_line(line), err=True)
        return error.code
    what = clean_line(error.what).removeprefix(f"{name}: ")
    reasons = error.reasons if isinstance(error, Unsatisfiable) else ()
    click.echo(what if what.startswith("slurm_") else f"{name}: error: {what}", err=True)
    for line in filter(None, [*reasons, error.hint]):
        click.echo(f"  {clean_line(line)}", err=True)
    return exit_codes.FAILURE


for _name, _known in _PROGRAMS.items():
    slurm.add_command(_command(_name, _known))
