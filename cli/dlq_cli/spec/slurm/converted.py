"""A converted script as text: with #DLQ lines, or as a TOML spec."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

from dlq_cli.spec.fields import SECTIONS
from dlq_cli.spec.slurm.conversion import Conversion, TakenOption
from dlq_cli.spec.slurm.sbatch import is_command, is_directive

_NUMBERS = frozenset(
    {
        "nodes", "resources.gpus", "resources.gpus_total", "resources.cores", "resources.cpus",
        "retry.max_restarts",
    }
)  # fmt: skip


def as_script(made: Conversion, *, keep: bool) -> str:
    """The script with #DLQ lines in the place of its #SBATCH lines, or before them with `keep`.

    Options without a counterpart stay in it as comments with their reasons.
    """
    lines: list[str] = []
    told = False
    in_head = True
    for line in made.text.split("\n"):
        in_head = in_head and not is_command(line)
        if in_head and is_directive(line):
            lines += [] if told else _directives(made)
            told = True
            lines += [line] if keep else []
        else:
            lines.append(line)
    return "\n".join(lines)


def as_toml(made: Conversion) -> str:
    """A spec with the script's commands under `run`."""
    plain: list[str] = []
    sections: dict[str, list[str]] = {section: [] for section in SECTIONS}
    tables: dict[str, list[str]] = {}
    for taken in made.taken:
        key = taken.flag.key
        section, _, name = key.rpartition(".")
        if taken.flag.repeat and key not in _NUMBERS:
            tables.setdefault(key, []).append(str(taken.raw))
        else:
            (sections[section] if section else plain).append(f"{name} = {_value(taken)}")
    plain += [f"{key} = {json.dumps(words, ensure_ascii=False)}" for key, words in tables.items()]
    lines = [*_comments(made), *plain, f"run = {_multiline(_commands(made.text))}"]
    for section, keys in sections.items():
        if keys:
            lines += ["", f"[{section}]", *keys]
    return "\n".join(lines) + "\n"


def _directives(made: Conversion) -> list[str]:
    return [*(f"#DLQ {flag_text(taken)}" for taken in made.taken), *_comments(made)]


def flag_text(taken: TakenOption) -> str:
    """The flag as it is written on a #DLQ line."""
    name = next(name for name in taken.flag.names if name.startswith("--"))
    return name if taken.raw is True else f"{name}={shlex.quote(str(taken.raw))}"


def _comments(made: Conversion) -> Iterator[str]:
    for ignored in made.ignored:
        yield f"# not taken over: {_one_line(ignored.written)} ({_one_line(ignored.why)})"


def _commands(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not is_directive(line))


def _value(taken: TakenOption) -> str:
    if taken.raw is True:
        return "true"
    text = str(taken.raw)
    if taken.flag.key in _NUMBERS and text.isdecimal():
        return str(int(text))
    return json.dumps(text, ensure_ascii=False)


def _multiline(text: str) -> str:
    """A text as TOML: literal lines where the text allows it."""
    if "'''" in text or any(not char.isprintable() and char not in "\n\t" for char in text):
        return json.dumps(text).replace("\x7f", "\\u007f")
    return f"'''\n{text}'''"


def _one_line(text: str) -> str:
    return " ".join(text.split())
