"""Writes docs/man from the commands and their options: `PYTHONPATH=tests python
tests/support/man_pages.py`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from dlq_cli.main import dlq
from dlq_master.app import main as master
from dlq_nodeagent.command import main as nodeagent
from dlq_notify.command import main as notify
from dlq_web.daemon import main as web

FOLDER = Path(__file__).parents[2] / "docs" / "man"
GENERATED = '.\\" Generated from the code by tests/support/man_pages.py; do not edit.'
WIDTH = 78


def all_pages() -> dict[str, str]:
    """Path below FOLDER -> text."""
    programs = (
        ("dlq", 1, dlq),
        ("dlq-master", 8, master),
        ("dlq-nodeagent", 8, nodeagent),
        ("dlq-notify", 8, notify),
        ("dlq-web", 8, web),
    )
    return {
        f"man{section}/{name}.{section}": "\n".join(_page(name, section, command)) + "\n"
        for name, section, command in programs
    }


def _page(name: str, section: int, command: click.Command) -> Iterator[str]:
    context = _context(command, name)
    yield GENERATED
    yield f'.TH {_quoted(name.upper())} {section} "" "dlq" "GPU cluster manager"'
    yield ".SH NAME"
    yield f"{_plain(name)} \\- {_plain(_summary(command))}"
    yield ".SH SYNOPSIS"
    yield from _synopsis(context)
    yield ".SH DESCRIPTION"
    yield from _described(command, context)
    leaves = list(_leaves(command, context))
    if leaves:
        yield ".SH COMMANDS"
    for leaf, inner in leaves:
        yield f".SS {_quoted(inner.command_path)}"
        yield from _synopsis(inner)
        yield ".PP"
        yield from _described(leaf, inner)
    yield ".SH SEE ALSO"
    others = {"dlq": 1, "dlq-master": 8, "dlq-nodeagent": 8, "dlq-notify": 8, "dlq-web": 8}
    yield ", ".join(f"\\fB{_plain(it)}\\fR({at})" for it, at in others.items() if it != name)


def _leaves(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    """All commands below a group that are no groups, in the order of its help."""
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if inner is None or inner.hidden:
            continue
        below = _context(inner, name, context)
        if isinstance(inner, click.Group):
            yield from _leaves(inner, below)
        else:
            yield inner, below


def _context(
    command: click.Command, name: str, parent: click.Context | None = None
) -> click.Context:
    settings = {**command.context_settings, "max_content_width": WIDTH}
    return click.Context(command, parent=parent, info_name=name, **settings)


def _synopsis(context: click.Context) -> Iterator[str]:
    pieces = " ".join(context.command.collect_usage_pieces(context))
    yield f"\\fB{_plain(context.command_path)}\\fR {_plain(pieces)}"


def _described(command: click.Command, context: click.Context) -> Iterator[str]:
    text = inspect.cleandoc(command.help or "").split("\f")[0]
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b"):
            yield from _example(paragraph.removeprefix("\b\n"))
        else:
            yield from (".PP", _plain(" ".join(paragraph.split())))
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield from (".TP", f"\\fB{_plain(record[0])}\\fR", _plain(" ".join(record[1].split())))
    if command.epilog:
        for paragraph in inspect.cleandoc(command.epilog).split("\n\n"):
            yield from _example(paragraph.removeprefix("\b\n"))


def _example(text: str) -> Iterator[str]:
    """Lines as they are."""
    yield from (".PP", ".nf", *map(_plain, text.splitlines()), ".fi")


def _summary(command: click.Command) -> str:
    first = inspect.cleandoc(command.help or "").split("\n\n")[0]
    return " ".join(first.split()).rstrip(".")


def _quoted(text: str) -> str:
    return '"' + _plain(text) + '"'


def _plain(text: str) -> str:
    """Text that roff takes for text."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", text)


def main() -> None:
    """Write every page; those that are fresh do not change."""
    for name, text in all_pages().items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
