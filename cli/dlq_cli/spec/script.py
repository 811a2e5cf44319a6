"""A batch script: its text as the job will run it, and the flags on its #DLQ lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from types import MappingProxyType
from typing import NamedTuple

from dlq_cli.spec.fields import BY_NAME, LATER_FLAGS, put_flag
from dlq_cli.spec.merge import stacked
from dlq_cli.spec.slurm.request import sbatch_layer
from dlq_cli.spec.slurm.sbatch import is_command, longer
from dlq_cli.spec.slurm.sbatch import is_directive as is_sbatch
from dlq_cli.spec.values.given import (
    Given,
    Layer,
    Notes,
    ReadLayer,
    are_enough,
    collected,
    unknown_key,
    wrong,
)
from dlq_cli.spec.values.presets import asks_for_slurm
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.field import Flag

LARGEST_SCRIPT_BYTES = 4 * 1024 * 1024  # Slurm's max_script_size, and the master's limit
PREFIX = "#DLQ"

_SHORT_WITH_VALUE = re.compile(r"-[A-Za-z].+", re.DOTALL)


class Script(NamedTuple):
    """The settings that a script gives for its job."""

    layer: Layer
    notes: Notes


def decode_script(content: bytes, name: str) -> str:
    """The text of a script; InvalidRequest for bytes that no interpreter could run."""
    program = "to run a program: dlq submit -- ./program"
    if len(content) > LARGEST_SCRIPT_BYTES:
        raise wrong(
            name, f"larger than a script may be ({LARGEST_SCRIPT_BYTES // 1024} KiB)", hint=program
        )
    if not content.strip():
        hint = "name a script or a spec, or -- COMMAND" if name == "stdin" else ""
        raise wrong(name, "it is empty", hint=hint)
    try:
        # A byte order mark before `#!` would keep the kernel from running it.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise wrong(name, f"not text (byte {error.start} is not UTF-8)", hint=program) from None
    if "\0" in text:
        raise wrong(name, "not text (it holds a NUL byte)", hint=program)
    if "\r\n" in text or text.partition("\n")[0].endswith("\r"):
        raise wrong(
            name, "DOS line ends (CRLF): no interpreter finds them", hint="sed -i 's/\\r$//' FILE"
        )
    if not text.startswith("#!"):
        raise wrong(
            f"{name}:1",
            "the first line must name the interpreter, such as #!/bin/bash",
            hint=program.replace("./program", "PROGRAM ARGS"),
        )
    return text if text.endswith("\n") else text + "\n"


def read_script(
    content: bytes,
    name: str,
    problems: list[InvalidRequest] | None = None,
    *,
    over: ReadLayer = MappingProxyType({}),
    lenient: bool = False,
) -> Script:
    """The layer of a script: its text, and the requests of its #DLQ lines. When they or the layer
    `over` it ask for compat = slurm, its #SBATCH lines count as well, below its #DLQ lines.

    `lenient` goes on without options of Slurm that dlq cannot follow. Only #DLQ lines before the
    first command count, as in Slurm; later ones are noted. With a list for `problems` it collects
    the problems, one for each line; without it raises the first.
    """
    text = decode_script(content, name)
    notes = Notes()
    layer: Layer = {}
    for directive, origin in _directives(text, name, notes):
        if are_enough(problems):
            break
        with collected(problems):
            for flag, raw, where in parse_directive(directive, origin):
                put_flag(layer, flag, raw, where)
    layer["run"] = Given(text, name)
    if not any(map(is_sbatch, text.split("\n"))):
        return Script(layer, notes)
    if asks_for_slurm(stacked([layer, over])):
        with collected(problems):
            layer = stacked([sbatch_layer(text, name, notes, lenient=lenient), layer])
    else:
        foreign = sum(map(is_sbatch, text.split("\n")))
        notes.append(f"{name}: {foreign} #SBATCH lines are not read; write them as #DLQ")
    return Script(layer, notes)


def _directives(text: str, name: str, notes: Notes) -> Iterator[tuple[str, str]]:
    """The words after #DLQ on each line that counts, and their place."""
    before_commands, length = True, 0
    for number, line in enumerate(text.split("\n"), start=1):
        origin = f"{name}:{number}"
        if is_command(line):
            before_commands = False
        elif _is_directive(line) and before_commands:
            length = longer(length, line, origin)
            yield line.removeprefix(PREFIX), origin
        elif _is_directive(line):
            notes.append(f"{origin}: a #DLQ line after the first command is not read")


def _is_directive(line: str) -> bool:
    rest = line.removeprefix(PREFIX)
    return line.startswith(PREFIX) and (not rest or not rest[0].isalnum())


def parse_directive(text: str, origin: str) -> Iterator[tuple[Flag, str | bool, str]]:
    """The flags of one #DLQ line: `--gpus=8 -t 1-00:00:00 --env "A=b c"  # comment`."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise wrong(origin, f"quotes do not match: {error}") from None
    position = 0
    while position < len(words):
        word = words[position]
        if word.startswith("#"):
            return
        name, value = _split_flag(word, origin)
        flag = _flag_named(name, origin)
        position += 1
        if not flag.metavar:
            if value is not None:
                raise wrong(origin, f"{name} takes no value")
            yield flag, True, origin
            continue
        if value is None:
            if position == len(words):
                raise wrong(origin, f"{name} needs a value ({flag.metavar})")
            value = words[position]
            position += 1
        yield flag, value, origin


def _split_flag(word: str, origin: str) -> tuple[str, str | None]:
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, value if equals else None
    if _SHORT_WITH_VALUE.fullmatch(word):
        return word[:2], word[2:].removeprefix("=")
    if word.startswith("-") and len(word) == 2:
        return word, None
    raise wrong(origin, f"{word[:64]!r} is not a flag: write #DLQ --gpus=8")


def _flag_named(name: str, origin: str) -> Flag:
    flag = BY_NAME.get(name)
    if flag is None:
        raise unknown_key(origin, name, BY_NAME, LATER_FLAGS)
    return flag
