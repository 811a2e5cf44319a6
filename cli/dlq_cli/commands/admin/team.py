"""`dlq admin team`: teams, their limits and their members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
from google.protobuf.message import Message

from dlq.v1 import team_pb2, team_service_pb2
from dlq_cli.app import App
from dlq_cli.commands.cluster.teams import teams
from dlq_cli.commands.options import examples, json_option, pass_app, yes_option
from dlq_cli.facts.cluster import team_facts
from dlq_cli.facts.common import tell
from dlq_cli.output.render import clean_line
from dlq_client.teams import Teams
from dlq_common.errors import InvalidRequest, NotFound

F = TypeVar("F", bound=Callable[..., Any])
# Option -> field of TeamRules, the reader of a word, and the help text.
_RULES: Mapping[str, tuple[str, Callable[[str], Any], str]] = {
    "gpus": (
        "gpu_quota",
        int,
        "Quota: GPUs by right; GPUs beyond it are borrowed. `none`: no quota.",
    ),
    "limit": ("gpu_limit", int, "The most GPUs, borrowed ones included. `none`: no limit."),
    "running": (
        "running_job_limit",
        int,
        "The most jobs that run at a time; others wait (Slurm: MaxJobs). `none`: no limit.",
    ),
    "jobs": (
        "queued_job_limit",
        int,
        "The most jobs that have not ended, running ones included; more are refused (Slurm: "
        "MaxSubmitJobs). `none`: no limit.",
    ),
    "share": ("share", float, "The team's share against other teams. `none`: 1."),
}
_NONE = "none"


@click.group(
    epilog=examples(
        "dlq admin team set vision --gpus 64",
        "dlq admin team add-user vision alice bob",
        "dlq admin team list",
    )
)
def team() -> None:
    """Teams share GPUs: the members of each team, and its limits (docs/running/teams.md)."""


team.add_command(teams, "list")


def _rule_options(command: F) -> F:
    for name, (_, _, help_text) in reversed(list(_RULES.items())):
        metavar = "WEIGHT" if name == "share" else "N"
        command = click.option(f"--{name}", metavar=metavar, help=help_text)(command)
    flag = click.option(
        "--borrow/--no-borrow", default=None, help="--no-borrow: the limit is the quota."
    )
    return flag(command)


@team.command(
    name="set",
    epilog=examples(
        "dlq admin team set vision --gpus 64",
        "dlq admin team set vision --gpus 64 --no-borrow --guaranteed 32 --share 2",
        "dlq admin team set vision --limit none",
    ),
)
@_rule_options
@click.option("--guaranteed", metavar="N", help="The most GPUs of promised jobs. `none`: no limit.")
@click.option("--force", is_flag=True, help="Do it even if more than --guaranteed is promised.")
@json_option
@click.argument("name")
@pass_app
def set_(
    app: App,
    /,
    name: str,
    borrow: bool | None,
    guaranteed: str | None,
    force: bool,
    as_json: bool,
    **told: str | None,
) -> None:
    """Make team NAME, or change it; fields without an option stay. Running jobs are not stopped."""
    api = Teams(app.connection())
    wanted = _known(api, name) or team_pb2.Team(name=name)
    _tell(wanted.rules, told, borrow)
    if guaranteed is not None:
        _put(wanted, "guaranteed_gpu_quota", "guaranteed", guaranteed, int)
    _done(app, api.set(wanted, force=force), as_json=as_json)


@team.command(
    name="add-user",
    epilog=examples(
        "dlq admin team add-user vision alice bob",
        "dlq admin team add-user vision carol --gpus 8 --no-borrow --default",
    ),
)
@_rule_options
@click.option("--default/--no-default", default=None, help="The team of jobs that name none.")
@json_option
@click.argument("name")
@click.argument("users", nargs=-1, required=True)
@pass_app
def add_user(
    app: App,
    /,
    name: str,
    users: tuple[str, ...],
    borrow: bool | None,
    default: bool | None,
    as_json: bool,
    **told: str | None,
) -> None:
    """Add USERS to team NAME, or change members; fields without an option stay.

    Limits of a member apply within the limits of the team.
    """
    api = Teams(app.connection())
    wanted = _must(api, name)
    for user in users:
        member = next((one for one in wanted.members if one.user == user), None)
        if member is None:
            member = wanted.members.add(user=user)
        _tell(member.rules, told, borrow)
        if default is not None:
            member.is_default = default
    _done(app, api.set(wanted), as_json=as_json)


@team.command(name="remove-user", epilog=examples("dlq admin team remove-user vision bob"))
@json_option
@click.argument("name")
@click.argument("users", nargs=-1, required=True)
@pass_app
def remove_user(app: App, name: str, users: tuple[str, ...], as_json: bool) -> None:
    """Take USERS out of team NAME. Their jobs that have not ended are counted to it until they
    end.
    """
    api = Teams(app.connection())
    wanted = _must(api, name)
    absent = set(users) - {one.user for one in wanted.members}
    if absent:
        raise NotFound(f"{', '.join(sorted(absent))}: not in team {name}")
    kept = [one for one in wanted.members if one.user not in users]
    del wanted.members[:]
    wanted.members.extend(kept)
    _done(app, api.set(wanted), as_json=as_json)


@team.command(epilog=examples("dlq admin team remove vision -y"))
@yes_option
@click.argument("name")
@pass_app
def remove(app: App, name: str, yes: bool) -> None:
    """Remove team NAME: its quota and limits are gone. Its jobs go on, and are counted to it until
    they end.
    """
    api = Teams(app.connection())
    _must(api, name)
    app.confirm(f"team {name} will be gone, with its quota and limits", yes=yes)
    left = api.delete(name)
    click.echo(f"team {name}: removed" + (f"; {left} jobs of it go on" if left else ""))


def _known(api: Teams, name: str) -> team_pb2.Team | None:
    try:
        found = api.list(name).teams
    except NotFound:
        return None
    return found[0] if found else None


def _must(api: Teams, name: str) -> team_pb2.Team:
    found = _known(api, name)
    if found is None:
        raise NotFound(f"there is no team {name}", hint=f"make it: dlq admin team set {name}")
    return found


def _tell(rules: team_pb2.TeamRules, told: Mapping[str, str | None], borrow: bool | None) -> None:
    for option, (field, read, _) in _RULES.items():
        text = told[option]
        if text is not None:
            _put(rules, field, option, text, read)
    if borrow is None:
        return
    if told["limit"] is not None:
        raise InvalidRequest("--limit and --borrow or --no-borrow say the same: leave one out")
    if borrow:
        rules.ClearField("gpu_limit")
    elif not rules.HasField("gpu_quota"):
        raise InvalidRequest("--no-borrow needs a quota: --gpus N")
    else:
        rules.gpu_limit = rules.gpu_quota


def _put(message: Any, field: str, option: str, text: str, read: Callable[[str], Any]) -> None:
    if text == _NONE:
        message.ClearField(field)
        return
    try:
        setattr(message, field, read(text))
    except (ValueError, OverflowError):
        kind = "a whole number" if read is int else "a number"
        raise InvalidRequest(f"--{option}: {text[:32]!r} is not {kind} or none") from None


def _done(app: App, answer: team_service_pb2.SetTeamResponse, *, as_json: bool) -> None:
    facts = {"team": team_facts(answer.team), "notices": list(answer.notices)}
    members = ", ".join(one.user for one in answer.team.members) or "nobody"
    rules: Message = answer.team.rules
    words = [
        f"{field.replace('_', ' ')} {getattr(rules, field):g}"
        for field, _, _ in _RULES.values()
        if rules.HasField(field)
    ]
    if answer.team.HasField("guaranteed_gpu_quota"):
        words.append(f"guaranteed gpu quota {answer.team.guaranteed_gpu_quota}")
    line = clean_line(f"team {answer.team.name}: {', '.join([*words, f'members {members}'])}")
    tell(facts, lambda: line, as_json=as_json)
    for notice in () if as_json else answer.notices:
        app.say(clean_line(notice))
