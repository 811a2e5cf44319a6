"""The result of converting a Slurm script: options that are flags of ours, and options without
effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dlq_cli.spec.fields import BY_NAME, put_flag
from dlq_cli.spec.slurm.body import Remark
from dlq_cli.spec.slurm.sbatch import Option
from dlq_cli.spec.values.given import Layer
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.field import Flag


class TakenOption(NamedTuple):
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
    name: str = ""  # of the option, long


@dataclass(slots=True)
class Conversion:
    """The converted script."""

    source: str
    text: str
    taken: list[TakenOption] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    compat: bool = False
    last: Mapping[str, Option] = field(default_factory=dict)  # the word that counts, by name


def take(made: Conversion, option: Option, name: str, raw: str | bool) -> None:
    """Take over an option as our flag of that name, if this version has it and accepts the value;
    else ignore it.
    """
    flag = BY_NAME.get(name)
    if flag is None:
        ignore(made, option, "not supported by this version of dlq")
        return
    first = next((taken for taken in made.taken if taken.flag.key == flag.key), None)
    if first and not flag.repeat:
        ignore(made, option, f"line {first.line} says it already: {first.written}")
        return
    try:
        put_flag(Layer(), flag, raw, "it")
    except InvalidRequest as error:
        ignore(made, option, error.what.removeprefix("it: "))
        return
    made.taken.append(TakenOption(option.line, option.written, flag, raw))


def ignore(made: Conversion, option: Option, why: str) -> None:
    """Record that an option is ignored, and the reason."""
    made.ignored.append(Ignored(option.line, option.written, why, option.name))


def number(option: Option | None) -> int:
    """A whole number, the smaller one of a range; 0: none."""
    text = option.value.partition("-")[0].strip() if option else ""
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def slurm_size(value: str) -> str:
    """Slurm's bare number is MiB."""
    return f"{value}M" if value.isdecimal() else value
