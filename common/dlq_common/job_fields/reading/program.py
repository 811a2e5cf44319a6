"""The readers of the command and its surroundings: command, script, variables, labels."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dlq_common.job_fields.reading.words import read_text, worded
from dlq_common.text.names import (
    RESERVED_ENV_PREFIXES,
    check_argument,
    check_env_name,
    check_word,
    printable,
    shown,
)

# Between commas; as in Slurm a comma in quotes is a part of the value, and the quotes too.
_EXPORTED = re.compile(r"""(?:[^,"']|"[^"]*"|'[^']*'|["'])+""")
_SHELL_SYNTAX = re.compile(r"[|&;<>()$`\n]")


def read_command(raw: object) -> tuple[str, ...]:
    """A list of words, or one line that is split as a shell would, but run by none."""
    if isinstance(raw, list):
        words = tuple(check_argument(worded(word), "the command") for word in raw)
    else:
        import shlex  # a master that starts has no such line

        line = read_text(raw)
        if found := _SHELL_SYNTAX.search(_unquoted(line)):
            raise ValueError(
                f"the command is not run by a shell, and {found[0]!r} is for one: "
                "put the line under `run`"
            )
        words = tuple(shlex.split(check_argument(line, "the command")))
    if not words or not words[0]:
        raise ValueError("the command is empty")
    return words


def read_run(raw: object) -> str:
    """Lines for a shell; a list is joined, and without a `#!` line /bin/sh runs them."""
    lines = raw if isinstance(raw, list) else [raw]
    text = "\n".join(read_text(line) for line in lines)
    if not text.strip():
        raise ValueError("the script is empty")
    body = check_argument(text, "the script")
    body = body if body.startswith("#!") else f"#!/bin/sh\n{body}"
    return body if body.endswith("\n") else body + "\n"


def read_assignment(text: str) -> tuple[str, str | None]:
    """`K=V` as name and value, `K` as a name without one."""
    name, equals, value = text.partition("=")
    check_env_name(name)
    if "\0" in value:
        raise ValueError(f"the value of {name} holds a NUL byte")
    return name, value if equals else None


def read_env_table(raw: object) -> dict[str, str | None]:
    """A table of variables, or a list of `K=V` and `K`; None: take it from my shell."""
    if isinstance(raw, list):
        return dict(read_assignment(read_text(item)) for item in raw)
    return dict(read_assignment(f"{name}={value}") for name, value in _table(raw).items())


def read_label_table(raw: object) -> dict[str, str]:
    """A table of labels, or a list of `K=V`."""
    if isinstance(raw, list):
        return dict(read_label(read_text(item)) for item in raw)
    return dict(read_label(f"{name}={value}") for name, value in _table(raw).items())


def read_label(text: str) -> tuple[str, str]:
    """`K=V`: a word and printable text."""
    name, equals, value = text.partition("=")
    check_word(name, "label")
    if not equals or printable(value) != value or len(value) > 256:
        raise ValueError(f"label {name} needs a value of up to 256 printable characters")
    return name, value


def export_words(text: str) -> tuple[str, ...]:
    """The parts of `A,B=2,C="3,4"`."""
    return tuple(word.strip() for word in _EXPORTED.findall(text) if word.strip())


def read_export(raw: object) -> tuple[str, ...]:
    """`ALL`, `NONE`, or `A,B=2`: the variables of the submitter's shell that the job gets. Names of
    dlq's own variables are passed over.
    """
    words = export_words(read_text(raw))
    for word in words:
        passed_over = "=" not in word and word.startswith(RESERVED_ENV_PREFIXES)
        if word.upper() not in {"ALL", "NONE"} and not passed_over:
            read_assignment(word)
    if not words:
        raise ValueError("write ALL, NONE or a list of names")
    return words


def _table(raw: object) -> Mapping[str, str]:
    if not isinstance(raw, Mapping):
        raise ValueError(f"{shown(str(raw))} is not a table of NAME = value")
    for name, value in raw.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"the value of {shown(str(name))} is not text: put it in quotes")
    return {str(name): str(value) for name, value in raw.items()}


def _unquoted(line: str) -> str:
    """The line without the parts that quotes protect from a shell."""
    return re.sub(r"\\.|'[^']*'|\"(?:[^\"\\$`]|\\.)*\"", "", line, flags=re.DOTALL)
