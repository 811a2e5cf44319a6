"""`dlq --help` is quick because it loads next to nothing; proved by what is loaded, not by time."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dlq_cli.commands.admin.admin import admin
from dlq_cli.commands.spec.spec import spec
from dlq_cli.exit_codes import OK
from dlq_cli.lazy import ENTRY_POINTS, LazyGroup
from dlq_cli.main import COMMANDS, dlq, run
from dlq_cli.spec.fields import FLAGS
from dlq_common.job_fields.table import SECTIONS
from support.extent import spread

HEAVY = {
    "grpc", "google", "dlq", "rich", "yaml", "structlog", "cryptography", "scipy", "numpy", "cattrs",  # noqa: E501
    "dlq_client", "dlq_simulator", "dlq_master",
}  # fmt: skip


def loaded_by(*arguments: str) -> set[str]:
    """Top-level modules after one command in a fresh process."""
    program = (
        "import sys, json; from dlq_cli.main import run; "
        f"code = run({list(arguments)!r}); "
        "names = sorted({name.partition('.')[0] for name in sys.modules}); "
        "print('\\n' + json.dumps([code, names]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    code, names = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    return set(names)


@pytest.mark.parametrize(
    "arguments",
    spread([
        ["--help"], ["submit", "--help"], ["admin", "--help"], ["spec", "--help"],
        ["spec", "check", "--help"], ["spec", "convert", "--help"], ["spec", "init"],
        ["completion", "bash"], ["--version"], [],
    ], 4),
)  # fmt: skip
def test_help_loads_click_and_the_standard_library_only(arguments: list[str]) -> None:
    assert not loaded_by(*arguments) & HEAVY


@pytest.mark.parametrize("arguments", [[], ["admin"]])
def test_a_group_by_itself_prints_its_help_on_stdout(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == OK
    written = capsys.readouterr()
    assert "Commands:" in written.out
    assert written.err == ""


def test_help_loads_nothing_foreign_but_click() -> None:
    foreign = loaded_by("--help") - set(sys.stdlib_module_names) - {"dlq_cli", "dlq_common"}
    known_from_start = {"__main__", "click", "_virtualenv", "sitecustomize", "usercustomize"}
    assert {name for name in foreign if not name.startswith("_")} <= known_from_start


def every_command(
    group: click.Group = dlq, path: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], click.Command]]:
    found: list[tuple[tuple[str, ...], click.Command]] = []
    context = click.Context(group)
    names = list(COMMANDS) if group is dlq else group.list_commands(context)
    for name in names:
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += every_command(command, (*path, name))
        else:
            found.append(((*path, name), command))
    return found


@pytest.mark.parametrize(
    ("path", "command"), every_command(), ids=[" ".join(path) for path, _ in every_command()]
)
def test_every_command_says_what_it_does_and_shows_an_example(
    path: tuple[str, ...], command: click.Command
) -> None:
    assert command.help
    assert f"dlq {' '.join(path)}" in (command.epilog or "") or path[-1] == "list"


@pytest.mark.parametrize("path", [("admin", "team"), ("admin", "user")])
def test_groups_that_people_ask_for_help_first_show_examples(path: tuple[str, ...]) -> None:
    group: click.Command | None = dlq
    for name in path:
        assert isinstance(group, click.Group)
        group = group.get_command(click.Context(group), name)
    assert group is not None
    assert f"dlq {' '.join(path)} " in (group.epilog or "")


def test_the_lines_of_the_table_name_commands_that_exist() -> None:
    assert isinstance(admin, LazyGroup)
    assert isinstance(spec, LazyGroup)
    for group in (dlq, admin, spec):
        for name in group.list_commands(click.Context(group)):
            assert group.get_command_target(name) is not None


def test_commands_of_other_rooms_are_known_by_entry_point() -> None:
    lent = importlib.metadata.entry_points(group="dlq.commands")
    assert {point.name for point in lent} <= set(dlq.list_commands(click.Context(dlq)))


def test_the_help_of_submit_lists_each_flag_once_in_a_section() -> None:
    keys = [key for keys in SECTIONS.values() for key in keys]
    assert sorted(keys) == sorted(flag.key for flag in FLAGS)
    shown = CliRunner().invoke(dlq, ["submit", "--help"]).output
    headings = [line for line in shown.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == [f"{title}:" for title in (*SECTIONS, "This command")]
    assert all(", ".join(flag.names) in shown for flag in FLAGS)


def test_a_flag_behind_the_script_is_said_to_go_to_the_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    assert run(["submit", "--test-only", str(script), "-G", "2"]) != OK  # nobody to ask
    assert f"-G stands after {script}: it goes to the script, not to dlq" in capsys.readouterr().err


def test_a_list_imports_grpc_without_asyncio_and_nothing_for_later() -> None:
    program = """
import sys
from dlq_cli.quiet import quiet_grpc
with quiet_grpc():
    import dlq_cli.commands.look.live, dlq_client.jobs
assert "grpc" in sys.modules
unused = {"asyncio", "decimal", "difflib", "grpc.aio", "shutil"}
assert not unused & sys.modules.keys(), unused & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_asyncio_and_its_grpc_are_whole_for_those_that_import_them_later() -> None:
    program = """
from dlq_cli.quiet import quiet_grpc
with quiet_grpc():
    import grpc
first = grpc.aio  # what grpc was given
import asyncio, asyncio.events, grpc.aio

async def main():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with first.insecure_channel(f"127.0.0.1:{port}") as channel:
        await asyncio.wait_for(channel.channel_ready(), 60)
        try:
            await channel.unary_unary("/none/none")(b"")
        except first.AioRpcError as error:
            print(error.code().name)
    await server.stop(None)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert done.stdout.split() == [b"UNIMPLEMENTED"]


def test_asyncio_that_is_asked_for_while_grpc_is_imported_is_asyncio() -> None:
    program = """
import sys
from dlq_cli.quiet import quiet_grpc
with quiet_grpc():
    import asyncio as given
    queue = given.Queue
    import grpc
import asyncio
assert queue is asyncio.Queue
assert given is not asyncio and sys.modules["asyncio"] is asyncio
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_help_reads_no_other_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[dlq.commands]\nforeign = other:command\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "foreign" in {
        point.name for point in importlib.metadata.entry_points(group=ENTRY_POINTS)
    }
    assert "foreign" not in dlq.list_commands(click.Context(dlq))
    assert "simulate" in dlq.list_commands(click.Context(dlq))


@pytest.mark.parametrize(
    ("word", "meant"), [("ps", "status"), ("kill", "cancel JOB"), ("HELP", "--help")]
)
def test_words_of_other_programs_are_known(word: str, meant: str) -> None:
    said = CliRunner().invoke(dlq, [word])
    assert said.exit_code == 2
    assert f"there is no command '{word}'; write dlq {meant}" in said.output
