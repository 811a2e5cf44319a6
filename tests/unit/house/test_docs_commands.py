"""What the documents tell people to type: every command, option and argument exists."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import click
import pytest

from dlq_cli.main import dlq
from dlq_cli.spec.slurm.request import sbatch_layer
from dlq_cli.spec.slurm.sbatch import read_words
from dlq_cli.spec.values.given import Notes
from support.shown_commands import PAGES, ROOT, blocks, shown

PROGRAMS = {
    "dlq": dlq,
    "dlq-master": import_module("dlq_master.app").main,
    "dlq-nodeagent": import_module("dlq_nodeagent.command").main,
    "dlq-notify": import_module("dlq_notify.command").main,
}
COMMANDS = [
    pytest.param(line, id=f"{page.name}: {line.partition(' #')[0].strip()}")
    for page in PAGES
    for line in shown(page, "|".join(PROGRAMS))
]
SBATCH = [(page, line) for page in PAGES for line in shown(page, "sbatch")]
SCRIPTS = [(page, text) for page in PAGES for text in blocks(page) if "#SBATCH " in text]


def words_of(line: str) -> list[str]:
    """The words of the program itself: what follows a pipe or a redirection is the shell's."""
    words = shlex.split(line, comments=True)
    ends = [at for at, word in enumerate(words) if word in ("|", ">", ">>", "&&", ";", "&")]
    return words[: ends[0]] if ends else words


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_that_is_shown_is_one_that_its_program_understands(line: str) -> None:
    program, *words = words_of(line)
    command: click.Command = PROGRAMS[program]
    context = _context(command, None)
    while isinstance(command, click.Group) and not (command.invoke_without_command and not words):
        found = command.get_command(context, words.pop(0))
        assert found is not None, line
        command, context = found, _context(found, context)
    # Only the words: whether train.py exists is not the question.
    options, rest, _ = command.make_parser(context).parse_args(words)
    required = [p.name for p in command.params if p.required and not options.get(p.name or "")]
    assert (required, rest) == ([], []), line


def _context(command: click.Command, parent: click.Context | None) -> click.Context:
    """With the settings that a call gives it: which options are known must not depend on whether
    another test has called the command before.
    """
    return click.Context(command, parent=parent, info_name=command.name, **command.context_settings)


@pytest.mark.parametrize(("page", "line"), SBATCH)
def test_a_command_for_slurm_has_options_that_the_converter_knows(page: Path, line: str) -> None:
    _, rest = read_words(words_of(line)[1:], page.name)
    assert len(rest) == 1, line  # the script


@pytest.mark.parametrize(("page", "text"), SCRIPTS)
def test_a_script_for_slurm_passes_the_converter(page: Path, text: str) -> None:
    assert sbatch_layer(text, page.name, Notes())


def test_the_pages_show_commands_of_every_program() -> None:
    shown_programs = {str(one.values[0]).split()[0] for one in COMMANDS}
    assert shown_programs == set(PROGRAMS)
    assert SBATCH
    assert len(list(shown(ROOT / "README.md", "dlq"))) >= 10


def test_a_line_that_goes_on_is_one_command(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\n$ dlq submit \\\n    -G 1 a.sh  # why\n  sudo dlq-master run\nls\n```\n"
    )
    found = list(shown(page, "dlq|dlq-master"))
    assert [re.sub(" +", " ", line) for line in found] == [
        "dlq submit -G 1 a.sh # why",
        "dlq-master run",
    ]
