"""What the documents tell people to type: every `dlq` command, option and argument exists."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dlq_cli.main import dlq

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "deploy/README.md"]


def shown(page: Path) -> Iterator[str]:
    """Lines of a page's fenced blocks that begin with `dlq `."""
    for block in re.findall(r"(?ms)^```\w*\n(.*?)^```", page.read_text()):
        yield from re.findall(r"(?m)^dlq .*$", block)


COMMANDS = [
    pytest.param(line, id=f"{page.name}: {line.partition(' #')[0].strip()}")
    for page in PAGES
    for line in shown(page)
]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_that_is_shown_is_one_that_dlq_understands(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = dlq
    context = click.Context(dlq, info_name="dlq")
    while isinstance(command, click.Group) and not (command.invoke_without_command and not words):
        found = command.get_command(context, words.pop(0))
        assert found is not None, line
        command, context = found, click.Context(found, parent=context, info_name=found.name)
    # Only the words: whether train.py exists is not the question.
    options, rest, _ = command.make_parser(context).parse_args(words)
    required = [p.name for p in command.params if p.required and not options.get(p.name or "")]
    assert (required, rest) == ([], []), line


def test_the_readme_shows_ten_commands() -> None:
    assert len(list(shown(ROOT / "README.md"))) >= 10
