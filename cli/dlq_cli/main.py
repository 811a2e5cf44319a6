"""The `dlq` command: global options, the table of commands, and the report of every failure."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import click

from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.lazy import Lazy, LazyGroup, let_go_of_stdout
from dlq_cli.leaving import fill_closed_streams, leave
from dlq_cli.output import json_errors
from dlq_cli.output.zone import in_viewers_zone, show_utc
from dlq_common.errors import DlqError, Unsatisfiable

COMMANDS = {
    "submit": Lazy("dlq_cli.commands.jobs.submit:submit", "Queue a job."),
    "run": Lazy(
        "dlq_cli.commands.jobs.run:run", "Queue a job and stay: its output, its exit code."
    ),
    "status": Lazy("dlq_cli.commands.look.status:status", "List jobs, or show how some stand."),
    "show": Lazy("dlq_cli.commands.look.show:show", "Everything about a job."),
    "top": Lazy("dlq_cli.commands.look.top:top", "Running jobs by the use of their GPUs."),
    "why": Lazy("dlq_cli.commands.look.why:why", "Why a job does not run: every reason."),
    "estimate": Lazy("dlq_cli.commands.jobs.estimate:estimate", "When a job will start and end."),
    "what-if": Lazy("dlq_cli.commands.look.what_if:what_if", "When jobs would start otherwise."),
    "logs": Lazy("dlq_cli.commands.look.logs:logs", "The output of a job."),
    "attach": Lazy("dlq_cli.commands.jobs.attach:attach", "The output of a job from now on."),
    "exec": Lazy("dlq_cli.commands.inside.exec:exec_", "A command inside a job that runs."),
    "stacks": Lazy(
        "dlq_cli.commands.inside.stacks:stacks", "Where the Python processes of a job stand."
    ),
    "shell": Lazy("dlq_cli.commands.inside.shell:shell", "A shell inside a job that runs."),
    "ssh": Lazy("dlq_cli.commands.inside.ssh:ssh", "OpenSSH into a job, without an open port."),
    "ssh-config": Lazy(
        "dlq_cli.commands.inside.ssh_config:ssh_config", "A stanza for ssh, rsync and editors."
    ),
    "notebook": Lazy(
        "dlq_cli.commands.inside.notebook:notebook", "Jupyter as a job, at a port of this host."
    ),
    "forward": Lazy(
        "dlq_cli.commands.inside.forward:forward", "Ports of a job on this host's loopback."
    ),
    "events": Lazy("dlq_cli.commands.look.events:events", "Events of a job, with their authors."),
    "history": Lazy(
        "dlq_cli.commands.look.history:history", "Jobs that have ended, and their cost."
    ),
    "wait": Lazy("dlq_cli.commands.look.wait:wait", "Wait for jobs; exits as they do."),
    "cancel": Lazy("dlq_cli.commands.jobs.cancel:cancel", "End jobs; running ones may save first."),
    "hold": Lazy("dlq_cli.commands.jobs.steer:hold", "Keep jobs from starting."),
    "release": Lazy("dlq_cli.commands.jobs.steer:release", "Take a hold back."),
    "pause": Lazy("dlq_cli.commands.jobs.steer:pause", "Checkpoint jobs and free their GPUs."),
    "resume": Lazy("dlq_cli.commands.jobs.steer:resume", "Queue paused jobs again."),
    "diff": Lazy(
        "dlq_cli.commands.look.diff:diff", "Differences between jobs, or attempts of one."
    ),
    "resubmit": Lazy(
        "dlq_cli.commands.jobs.resubmit:resubmit", "Queue a job once more, or changed."
    ),
    "requeue": Lazy("dlq_cli.commands.jobs.steer:requeue", "Let jobs save and wait again."),
    "update": Lazy("dlq_cli.commands.jobs.update:update", "Ask for something else for jobs."),
    "signal": Lazy("dlq_cli.commands.jobs.steer:signal", "Send a signal to a job that runs."),
    "checkpoint": Lazy(
        "dlq_cli.commands.jobs.steer:checkpoint", "Ask a job to save now and go on."
    ),
    "clusters": Lazy(
        "dlq_cli.commands.many.clusters:clusters", "Your list of clusters, for `submit --to`."
    ),
    "data": Lazy("dlq_cli.commands.many.data:data", "Data of your list, and staging it."),
    "move": Lazy("dlq_cli.commands.many.move:move", "A waiting job to another cluster of yours."),
    "handovers": Lazy(
        "dlq_cli.commands.many.handovers:handovers", "Jobs that were handed to one of several."
    ),
    "nodes": Lazy("dlq_cli.commands.cluster.nodes:nodes", "The machines and their GPUs."),
    "gpus": Lazy("dlq_cli.commands.cluster.gpus:gpus", "Every GPU: its job and its health."),
    "queues": Lazy("dlq_cli.commands.cluster.queues:queues", "The queues and their waiting jobs."),
    "teams": Lazy(
        "dlq_cli.commands.cluster.teams:teams", "Your teams: their limits and their use."
    ),
    "usage": Lazy(
        "dlq_cli.commands.report.usage:usage",
        "GPU-hours by user, team and purpose, and lost hours.",
    ),
    "report": Lazy("dlq_cli.commands.report.report:report", "For operators: how the cluster did."),
    "notify": Lazy(
        "dlq_cli.commands.notify.notify:notify", "Messages when something happens to your jobs."
    ),
    "spec": Lazy("dlq_cli.commands.spec.spec:spec", "Write, check and convert job specs, offline."),
    "config": Lazy("dlq_cli.commands.here.config:config", "Settings, and where each came from."),
    "profile": Lazy("dlq_cli.commands.profile.profile:profile", "The traffic of a job."),
    "doctor": Lazy(
        "dlq_cli.commands.here.doctor:doctor", "Check this installation, and give advice."
    ),
    "up": Lazy("dlq_cli.commands.here.up:up", "A cluster on this machine, for you, without root."),
    "down": Lazy("dlq_cli.commands.here.up:down", "End the cluster that `dlq up` runs."),
    "mcp": Lazy("dlq_cli.commands.here.mcp:mcp", "Tools for programs that act for people."),
    "debug-dump": Lazy(
        "dlq_cli.commands.here.debug_dump:debug_dump", "One archive for a report of a fault."
    ),
    "login": Lazy("dlq_cli.commands.here.login:login", "Get a certificate (on the master's host)."),
    "version": Lazy("dlq_cli.commands.here.version:version", "Versions of both ends."),
    "completion": Lazy("dlq_cli.commands.here.completion:completion", "A completion script."),
    "slurm": Lazy(
        "dlq_cli.commands.here.slurm:slurm", "Slurm's commands, for scripts that call them."
    ),
    "admin": Lazy("dlq_cli.commands.admin.admin:admin", "For operators: tokens, nodes, users."),
}


def _print_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        click.echo(f"dlq {version('dlq')}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    lends=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 not allowed, 5 can never run. 69 "
    "master unreachable, 75 try again, 124 timed out, 130 interrupted. "
    "`run`, `attach`, `wait` and `submit --wait` exit as the job does, with 128+n for signal n.",
)
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Directory of your identity.  [default: ~/.config/dlq]",
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    help="Colour states; auto: on a terminal, unless NO_COLOR is set.  [default: auto]",
)
@click.option(
    "--patience",
    "patience_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long to go on trying while the master does not answer.  [default: 15]",
)
@click.option(
    "--utc",
    is_flag=True,
    envvar="DLQ_UTC",
    help="Show times in UTC, not in your zone (TZ).",
)
@click.option(
    "--no-helper",
    is_flag=True,
    expose_value=False,
    help="Start an interpreter for this call, and ask no helper.  [DLQ_NO_HELPER=1]",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version of this program.",
)
@click.pass_context
def dlq(
    ctx: click.Context, home: Path | None, color: str | None, patience_s: float | None, utc: bool
) -> None:
    """Run deep-learning training jobs on a cluster of GPU servers.

    \b
    dlq submit --gpus 8 -t 1-00:00:00 train.sh      queue a script
    dlq submit job.toml                             queue a spec
    dlq submit -- python train.py                   queue a command
    dlq status -w                                   watch your jobs
    dlq why 17                                      why does it wait?
    dlq logs -f 17                                  follow its output
    """
    show_utc(yes=utc)
    given = {"color": color, "patience_s": patience_s}
    flags = {name: str(value) for name, value in given.items() if value is not None}
    ctx.obj = App(home=home, flags=flags)
    ctx.call_on_close(ctx.obj.close)


def run(arguments: list[str]) -> int:
    """One command from its arguments to its exit code; failures are printed on stderr."""
    json_errors.forget()
    try:
        result = dlq.main(arguments, prog_name="dlq", standalone_mode=False)
    except exit_codes.Ended as ended:
        return ended.code
    except click.exceptions.NoArgsIsHelpError as error:
        # `dlq`, or a group of commands, by itself: a user who asks for the list gets it.
        click.echo(error.format_message())
        return exit_codes.OK
    except click.UsageError as error:
        return _usage(error)
    except click.ClickException as error:
        return _tell(error.format_message(), (), exit_codes.FAILURE)
    except DlqError as error:
        reasons = error.reasons if isinstance(error, Unsatisfiable) else ()
        return _tell(error.what, [*reasons, error.hint], exit_codes.code_of_error(error))
    except (KeyboardInterrupt, click.Abort):
        return exit_codes.INTERRUPTED
    except OSError as error:
        # A command checks the files that it opens by name. This error is of the command's output (a
        # full disk).
        let_go_of_stdout()
        words = error.strerror or str(error)
        return _tell(f"{error.filename or 'the output'}: {words.lower()}", (), exit_codes.FAILURE)
    return result if isinstance(result, int) else exit_codes.OK


_GARBAGE = 50_000
"""New objects between two looks for garbage. An import makes many, and hardly any is garbage."""


def main() -> NoReturn:
    """Entry point of the `dlq` script."""
    fill_closed_streams()
    gc.set_threshold(_GARBAGE)
    leave(run(sys.argv[1:]))


_FOLDED = re.compile(r"\s*[\n\t]+\s*")


def _usage(error: click.UsageError) -> int:
    command = error.ctx.command_path if error.ctx else "dlq"
    message = _FOLDED.sub(" ", error.format_message())  # choices come on lines of their own
    return _tell(message, [f"{command} --help"], exit_codes.USAGE)


def _tell(what: str, more: Iterable[str], code: int) -> int:
    """Print the error in one line, and the hints below it."""
    from dlq_cli.output.render import clean_line

    more = list(more)
    json_errors.tell(what, more, code)
    if json_errors.are_lines():
        return code
    click.echo(f"dlq: {in_viewers_zone(clean_line(what))}", err=True)
    for line in filter(None, more):
        click.echo(f"  {in_viewers_zone(clean_line(line))}", err=True)
    return code


if __name__ == "__main__":
    main()
