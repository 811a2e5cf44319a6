"""The command line of `srun`: options of the allocation, of the step, and of `srun` itself.

The options of the allocation are read by sbatch's reader (dlq_cli.spec.slurm). Those of the step go
on to the `srun` inside the job, which does or refuses them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

import click

from dlq_cli import exit_codes
from dlq_cli.spec.slurm.sbatch import ANOTHER_PART, KNOWN, PARTS_HINT, SHORT, SWITCHES
from dlq_cli.spec.values.given import wrong

_SHORT = {
    **SHORT, "-E": "--preserve-env", "-I": "--immediate", "-K": "--kill-on-bad-exit",
    "-l": "--label", "-r": "--relative", "-T": "--threads", "-u": "--unbuffered",
    "-W": "--wait", "-X": "--disable-status", "-Z": "--no-allocate", "-h": "--help",
    "-V": "--version",
}  # fmt: skip
# Of srun's own, and of salloc's.
_OWN = frozenset(
    {
        "--immediate", "--disable-status", "--quiet", "--verbose", "--jobid", "--overlap", "--pty",
        "--quit-on-interrupt", "--no-allocate", "--no-shell", "--kill-command", "--bell", "--no-bell",  # noqa: E501
    }
)  # fmt: skip
_STEP = frozenset(
    {
        "--label", "--kill-on-bad-exit", "--input", "--output", "--error", "--open-mode", "--mpi",
        "--multi-prog", "--wait", "--relative", "--exact", "--task-prolog", "--task-epilog",
        "--epilog", "--prolog", "--preserve-env", "--bcast", "--unbuffered", "--threads",
        "--slurmd-debug", "--resv-ports", "--mem-bind", "--accel-bind", "--cpu-bind", "--gpu-bind",
        "--distribution", "--export", "--propagate",
    }
)  # fmt: skip
# They shape both.
_BOTH = frozenset(
    {
        "--ntasks", "--nodes", "--cpus-per-task", "--ntasks-per-node", "--gpus-per-task",
        "--ntasks-per-core", "--ntasks-per-socket", "--ntasks-per-gpu", "--threads-per-core",
        "--chdir", "--overcommit", "--export",
    }
)  # fmt: skip
NO_VALUE = (
    SWITCHES - {"--wait"}
    | {
        "--label", "--unbuffered", "--preserve-env", "--disable-status", "--quiet", "--verbose",
        "--overlap", "--pty", "--quit-on-interrupt", "--no-allocate", "--no-shell", "--multi-prog",
        "--exact", "--immediate", "--kill-on-bad-exit", "--kill-command", "--bell", "--no-bell",
        "--bcast", "--resv-ports", "--help", "--version",
    }
)  # fmt: skip
KNOWN_HERE = KNOWN | _OWN | _STEP | _BOTH | NO_VALUE
_WIDTH = 80
# These may have a value right behind their letter.
_GLUED = frozenset({"--immediate", "--kill-on-bad-exit", "--kill-command"})


@dataclass(slots=True)
class SplitWords:
    """The words of `srun` or `salloc`, by their receivers."""

    allocation: list[str] = field(default_factory=list)
    step: list[str] = field(default_factory=list)
    own: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    given: dict[str, str] = field(default_factory=dict)


def split(words: Sequence[str], program: str) -> SplitWords:
    """Share the words out. Ended with Slurm's code and words for an option that is none of its,
    InvalidRequest where another part of a heterogeneous job begins.
    """
    made, left, word = SplitWords(), list(words), ""
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        for name, value in _options(word, left, program):
            _enter(made, name, value)
    # Slurm's srun takes it for no word of the program; here one may, behind `--`.
    if word != "--" and ":" in (left if program == "srun" else left[:1]):
        raise wrong(program, ANOTHER_PART, hint=PARTS_HINT)
    made.command = left
    return made


def _enter(made: SplitWords, name: str, value: str | None) -> None:
    text = name if value is None else f"{name}={value}"
    made.given[name] = value or ""
    if name in _OWN:
        made.own[name] = value or ""
    elif name in _BOTH:
        made.allocation.append(text)
        made.step.append(text)
    elif name in _STEP:
        made.step.append(text)
    else:
        made.allocation.append(text)


def _options(word: str, left: list[str], program: str) -> list[tuple[str, str | None]]:
    """The options of one word: several for letters such as `-lu`."""
    if word.startswith("--"):
        written, equals, value = word.partition("=")
        name = _whole(written, program)
        if equals or name in NO_VALUE:
            return [(name, value if equals else None)]
        return [(name, _next(word, left, program))]
    found: list[tuple[str, str | None]] = []
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        name = _SHORT.get(f"-{letter}", "")
        if not name:
            raise _ended(f"{program}: invalid option -- '{letter}'", program)
        if name in _GLUED and letters[:1].isdigit():
            return [*found, (name, letters)]
        if name in NO_VALUE:
            found.append((name, None))
            continue
        return [*found, (name, letters.removeprefix("=") or _next(f"-{letter}", left, program))]
    return found


def _whole(name: str, program: str) -> str:
    """The full name; as getopt, a beginning will do where only one begins so."""
    if name in KNOWN_HERE:
        return name
    begun = [each for each in KNOWN_HERE if each.startswith(name)]
    if len(begun) != 1:
        raise _ended(f"{program}: unrecognized option '{name[:64]}'", program)
    return begun[0]


def _next(word: str, left: list[str], program: str) -> str:
    if not left:
        raise _ended(f"{program}: option '{word[:64]}' requires an argument", program)
    return left.pop(0)


def _ended(text: str, program: str) -> exit_codes.Ended:
    """As getopt, and Slurm after it, say it."""
    click.echo(f'{text}\nTry "{program} --help" for more information', err=True)
    return exit_codes.Ended(255)


def tell_usage(program: str) -> None:
    """Print it on stdout. Options that are refused by name stand there too, as dlq reads them."""
    known = KNOWN if program == "sbatch" else KNOWN_HERE
    alone = SWITCHES if program == "sbatch" else NO_VALUE
    words = [f"[{name}]" if name in alone else f"[{name}=VALUE]" for name in sorted(known)]
    begin = f"Usage: {program} "
    text = " ".join([*words, "[command [args...]]"])
    told = textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_on_hyphens=False,
        break_long_words=False,
    )
    click.echo("\n".join(told))
