"""The text of a form as one spec: a script, a spec file, or the words of a command line.

It is read as `dlq submit` reads a file, with the same errors. Nothing of this host enters it: no
file is opened, no variable of a shell is taken, and no umask. So the same text means the same job
on every server.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple

from dlq_cli.spec.check import doubts
from dlq_cli.spec.fields import put_flag
from dlq_cli.spec.merge import merge
from dlq_cli.spec.script import parse_directive, read_script
from dlq_cli.spec.slurm.sbatch import LONGEST_DIRECTIVES
from dlq_cli.spec.toml_yaml import SUFFIXES, read_spec_file
from dlq_cli.spec.validate import Spec, finish
from dlq_cli.spec.values.given import Given, Layer, Notes, collected, wrong
from dlq_common.errors import InvalidRequest

FLAGS = "the flags"
LONGEST_WORDS = LONGEST_DIRECTIVES


class Pasted(NamedTuple):
    """The fields of the form."""

    content: str  # of a script or of a spec file; empty: the words hold a command
    name: str  # of that file: its ending says what it is
    words: str  # the flags, and a command behind `--`
    directory: str  # of the job; empty: the spec names it


class Understood(NamedTuple):
    """A spec, or everything that is wrong with the text."""

    spec: Spec | None
    problems: list[InvalidRequest]
    notes: list[str]


def understand(pasted: Pasted) -> Understood:
    """Read the form. It raises nothing."""
    problems: list[InvalidRequest] = []
    notes, spec = Notes(), None
    with collected(problems):
        over, tail = _words(pasted.words, problems)
        layer, notes, arguments = _source(pasted, over, tail, problems)
        if not problems:
            merged = merge([layer, over], {})
            _check_directory(pasted.directory, merged)
            spec = finish(merged, directory=pasted.directory, arguments=arguments)
    told = [*notes, *(doubts(spec) if spec is not None else ())]
    return Understood(spec, problems, told)


def _words(text: str, problems: list[InvalidRequest]) -> tuple[Layer, tuple[str, ...] | None]:
    """The flags, and the words behind `--`; None: there is no `--`."""
    if len(text) > LONGEST_WORDS:
        raise wrong(FLAGS, f"longer than {LONGEST_WORDS} characters", hint="a script has room")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise wrong(FLAGS, f"quotes do not match: {error}") from None
    if words[:2] == ["dlq", "submit"]:
        words = words[2:]
    at = words.index("--") if "--" in words else len(words)
    layer: Layer = {}
    with collected(problems):
        for flag, raw, _ in parse_directive(shlex.join(words[:at]), FLAGS):
            put_flag(layer, flag, raw, flag.shown)
    return layer, tuple(words[at + 1 :]) if at < len(words) else None


def _source(
    pasted: Pasted, over: Layer, tail: tuple[str, ...] | None, problems: list[InvalidRequest]
) -> tuple[Layer, Notes, tuple[str, ...]]:
    """The layer below the flags, its notes, and the arguments of a script."""
    content, name = pasted.content.encode(), pasted.name
    if not content.strip():
        if not tail or not tail[0].strip():
            raise wrong(
                "the form", "there is nothing to submit", hint="a script, a spec, or -- COMMAND"
            )
        return {"command": Given(tail, "the command")}, Notes(), ()
    if not name.lower().endswith(SUFFIXES):
        script = read_script(content, name, problems, over=over)
        return script.layer, script.notes, tail or ()
    if tail is not None:
        raise wrong(FLAGS, f"a spec takes no arguments, and {tail[:1]} follows the flags")
    return read_spec_file(content, name, problems), Notes(), ()


def _check_directory(directory: str, merged: Layer) -> None:
    if not directory and "workdir" not in merged and "image" not in merged:
        raise wrong(
            "directory", "the job has none", hint="name it here, or as `workdir` or --chdir"
        )
    if directory and not directory.startswith("/"):
        raise wrong("directory", f"{directory[:64]!r} does not begin with /")
