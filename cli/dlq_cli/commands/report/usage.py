"""`dlq usage`: GPU-hours, by user, purpose and result."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import click

from dlq_cli.app import App
from dlq_cli.commands.options import F, examples, json_option, pass_app
from dlq_cli.facts.common import Facts, tell
from dlq_cli.facts.usage import GROUPS, report_facts
from dlq_cli.lists.since import midnight, past_instant
from dlq_cli.output.render import OutputLook
from dlq_cli.text.costs import usage_csv, usage_text
from dlq_client.usage import Usages
from dlq_common.errors import InvalidRequest
from dlq_common.text.suggest import did_you_mean

TIMES = "write 7d, 2026-12-01, today or all"
WEEK_BACK = 6  # days besides today


def days_options(groups: Collection[str], usual: str) -> Callable[[F], F]:
    """Options for the days, the users, the grouping by some of `groups` (default `usual`) and the
    form.
    """

    def add(command: F) -> F:
        for option in reversed(
            (
                click.option("-S", "--since", metavar="TIME", help="From this day on.  [a week]"),
                click.option("-E", "--until", metavar="TIME", help="To this day, all of it.  [now]"),  # noqa: E501
                click.option("-u", "--user", metavar="USER", default="", help="Only jobs of this "
                                                                              "user."),
                click.option("--team", metavar="TEAM", default="", help="Only jobs counted to "
                                                                        "this team."),
                click.option("--by", metavar="WORDS", default=usual, help=f"Groups: {', '.join(groups)}.  [{usual}]"),  # noqa: E501
                click.option("--csv", "as_csv", is_flag=True, help="Comma-separated lines."),
                json_option,
            )
        ):  # fmt: skip
            command = option(command)
        return command

    return add


@click.command(
    epilog=examples(
        "dlq usage",
        "dlq usage -S 30d --by day",
        "dlq usage --team vision --by user,class",
        "dlq usage -S 2026-11-01 -E 2026-11-30 --by user,pool --csv > november.csv",
    )
)
@days_options(GROUPS, "user,team")
@pass_app
def usage(
    app: App,
    since: str | None,
    until: str | None,
    user: str,
    team: str,
    by: str,
    as_csv: bool,
    as_json: bool,
) -> None:
    """GPU-hours of your jobs and of your teams' (operators: all), in whole days of UTC.

    HELD is all the time that jobs had GPUs. USEFUL went into work that no job has to do again;
    PREEMPTED and FAILED went into lost work: the job had to leave before it had saved, or it, its
    start or its node failed; TRANSIT into getting ready, loading checkpoints and leaving. Operators
    also see the hours of GPUs without a job.
    """
    groups = groups_of(by, GROUPS)
    show_usage(app, since, until, groups, user=user, team=team, as_csv=as_csv, as_json=as_json)


def show_usage(
    app: App,
    since: str | None,
    until: str | None,
    groups: tuple[str, ...],
    *,
    user: str = "",
    team: str = "",
    as_csv: bool,
    as_json: bool,
) -> None:
    """Ask, and print it in one of the forms."""
    one_form(as_csv=as_csv, as_json=as_json)
    from_s, until_s = span_of(app, since, until)
    answer = Usages(app.connection()).get(from_s, until_s, by=groups, user=user, team=team)
    facts = report_facts(answer, groups)
    csv, text = partial(usage_csv, answer, groups), partial(usage_text, answer, groups)
    empty = "no job has held a GPU in these days; -S 30d looks further back"
    nothing = "" if answer.usages else empty
    tell_in_form(app, facts, csv, text, nothing, as_csv=as_csv, as_json=as_json)


def one_form(*, as_csv: bool, as_json: bool) -> None:
    if as_csv and as_json:
        raise InvalidRequest("--csv and --json are two forms of the same: take one")


def tell_in_form(
    app: App,
    content: Facts,
    csv: Callable[[], str],
    text: Callable[[OutputLook], str],
    nothing: str,
    *,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Print a report in one of its forms. `nothing`: the words to people where it is empty."""
    tell(content, csv if as_csv else lambda: text(app.look()), as_json=as_json)
    if nothing and not (as_csv or as_json):
        app.say(nothing)


def span_of(app: App, since: str | None, until: str | None) -> tuple[float, float | None]:
    """The time span of the two flags; None: until now."""
    now_s = app.clock.now_s()
    from_s = midnight(now_s, WEEK_BACK)
    if since is not None:
        everything = since.strip().lower() == "all"
        from_s = 0.0 if everything else past_instant(since, now_s, "--since", TIMES)
    until_s = None if until is None else past_instant(until, now_s, "--until", TIMES)
    if until_s is not None and until_s < from_s:
        raise InvalidRequest("--until is before --since")
    return from_s, until_s


def groups_of(text: str, known: Collection[str]) -> tuple[str, ...]:
    """The words of `--by`; InvalidRequest for others than the known ones."""
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for word in words:
        if word not in known:
            raise InvalidRequest(
                f"--by: there are no groups by {word[:64]!r}{did_you_mean(word, known)}",
                hint=", ".join(known),
            )
    return words
