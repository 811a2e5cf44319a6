"""A spec to start from, with a comment on every key: TOML, YAML, or a script with #DLQ lines.

It has every key of the spec, and each is valid when its `#` goes, with the one that its
words name.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from dlq_cli.spec.fields import FLAGS, SECTIONS
from dlq_common.job_fields.table import FIELDS

FORMS = ("toml", "yaml", "script")
WIDTH = 96


_HEADS = {
    "toml": "A job for dlq. `dlq spec check FILE` reads it as `dlq submit FILE` would.",
    "yaml": "A job for dlq. `dlq spec check FILE` reads it as `dlq submit FILE` would.",
    "script": "A job for dlq: `dlq submit FILE`. Lines below count until the first command.",
}


def template(form: str) -> str:
    """The text of a template in one of FORMS; it is valid as it stands."""
    return "\n".join(_script() if form == "script" else _spec(form)) + "\n"


def _spec(form: str) -> Iterator[str]:
    """TOML and YAML have the same keys, sections and comments."""
    yaml = form == "yaml"
    yield f"# {_HEADS[form]}"
    for section in ("", *SECTIONS):
        keys = [key for key in FIELDS if key.rpartition(".")[0] == section]
        if section:
            dash = "" if any(FIELDS[key].live for key in keys) else "# "
            yield from ("", f"{dash}{section}:" if yaml else f"{dash}[{section}]")
        for key in keys:
            found, name = FIELDS[key], key.rpartition(".")[2]
            value = found.sample.replace("{ ", "{").replace(" }", "}").replace(" = ", ": ")
            indent = "  " if section else ""
            text = f"{indent}{name}: {value}" if yaml else f"{name} = {found.sample}"
            words = found.comment or found.help
            line = f"{'' if found.live else '# '}{text}"
            yield f"{line:<48} # {words}" if words else line


def _script() -> Iterator[str]:
    yield from ("#!/bin/bash", f"# {_HEADS['script']}", "#DLQ --job-name=mnist", "#DLQ --gpus=8")
    yield from ("#DLQ --time=12:00:00", "#", "# More, each on a #DLQ line of its own:")
    for flag in FLAGS:
        name = next(name for name in flag.names if name.startswith("--"))
        value = f"={flag.metavar}" if flag.metavar else ""
        yield from textwrap.wrap(
            f"{name}{value}  {flag.help}",
            WIDTH,
            initial_indent="#   ",
            subsequent_indent="#       ",
        )
    yield from ("", "set -e", "python train.py --lr 0.1")
