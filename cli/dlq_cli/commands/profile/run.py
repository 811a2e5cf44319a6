"""`dlq profile run -- CMD`: record one command's traffic here, and show the result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click

from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.commands.profile.show import analysis, link_option, ranks_option, tell
from dlq_common.errors import InvalidRequest
from dlq_profiler.capabilities import SENTENCES, why_unwatched
from dlq_profiler.injection import Parts, built, injected
from dlq_profiler.records.control import write_control

_SHARED_MEMORY = Path("/dev/shm")
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as the shell


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=examples(
        "dlq profile run -- torchrun --nproc-per-node 2 train.py",
        "dlq profile run --keep rec --json -- python train.py 2> profile.json",
    ),
)
@click.argument("command", nargs=-1, required=True, metavar="COMMAND...")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Record into DIR and leave it there.  [default: shared memory, removed]",
)
@click.option(
    "--hook/--no-hook",
    default=True,
    help="Let PyTorch's DistributedDataParallel tell its tensors itself (a sitecustomize on "
    "PYTHONPATH).",
)
@ranks_option
@link_option
@json_option
@pass_app
def run(
    app: App,
    command: tuple[str, ...],
    keep: Path | None,
    hook: bool,
    ranks: int | None,
    gigabits: tuple[float, ...],
    as_json: bool,
) -> None:
    """Run a command on this machine, outside of any cluster, and show its traffic.

    The command has stdin, stdout and stderr as they are, and its exit code is ours; the profile
    comes after it, on stderr. Child processes are recorded as well.
    """
    analysis()  # missing parts are named before the command runs, not after
    parts = built()
    if parts is None:
        raise InvalidRequest(
            "the profiler's library was not built here",
            hint="`make setup` with a C compiler builds it",
        )
    parts = parts if hook else parts._replace(hook=None)
    for reason in why_unwatched(command[0], os.environ):
        app.say(f"{command[0]}: {SENTENCES[reason]}")
    with _directory(keep) as directory, _named_plainly(parts) as parts:
        write_control(directory)
        code = _run(command, {**os.environ, **injected(os.environ, directory, parts)})
        tell(app, [directory], ranks, gigabits, as_json=as_json, to_stderr=True)
    raise exit_codes.Ended(code)


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        where = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="dlq-profile-", dir=where) as made:
            yield Path(made)
        return
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise InvalidRequest(f"{keep} is not empty: recordings of two runs would be mixed")
    yield keep.resolve()


@contextmanager
def _named_plainly(parts: Parts) -> Iterator[Parts]:
    """The loader splits its list at blanks and colons: links stand for paths that have some."""
    if not set(f"{parts.preload}{parts.hook or ''}") & set(" :"):
        yield parts
        return
    with tempfile.TemporaryDirectory(prefix="dlq-profiler-") as made:
        libraries, hook = Path(made) / "lib", Path(made) / "hook"
        libraries.symlink_to(parts.preload.parent)
        if parts.hook is not None:
            hook.symlink_to(parts.hook)
        plugin = parts.nccl_plugin and libraries / parts.nccl_plugin.name
        yield Parts(libraries / parts.preload.name, plugin, parts.hook and hook)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The command's exit code, 128 + n for signal n; signals that come to us go on to it."""
    try:
        child = subprocess.Popen(command, env=environment)
    except FileNotFoundError:
        click.echo(f"dlq: {command[0]}: there is no such command", err=True)
        return _NOT_FOUND
    except OSError as error:
        click.echo(f"dlq: {command[0]}: {(error.strerror or str(error)).lower()}", err=True)
        return _NOT_EXECUTABLE
    with _passing_on(child):
        code = child.wait()
    return exit_codes.SIGNALLED - code if code < 0 else code


@contextmanager
def _passing_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    def pass_on(number: int, _frame: object) -> None:
        # The terminal has sent it to its whole foreground group; a second one would be too much.
        if number != signal.SIGINT or not _on_a_terminal(sys.stdin):
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _on_a_terminal(stream: IO[str] | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()
