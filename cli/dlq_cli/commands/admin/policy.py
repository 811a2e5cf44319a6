"""`dlq admin policy`: the scheduling policy and its settings."""

from __future__ import annotations

import click

from dlq.v1 import admin_service_pb2, policy_pb2
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app, yes_option
from dlq_cli.facts.cluster import decided_facts, policy_facts, preset_facts
from dlq_cli.facts.common import document, tell
from dlq_cli.output.render import Cell, clean_line, paint, table, when
from dlq_cli.text.helpers import failing, todo
from dlq_client.admin import Admin
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import from_duration, from_timestamp


@click.group()
def policy() -> None:
    """The policy that gives out GPUs, and its settings."""


@policy.command(epilog=examples("dlq admin policy show"))
@json_option
@pass_app
def show(app: App, as_json: bool) -> None:
    """The policy that decides, its author, and the state of the planning process."""
    told = Admin(app.connection()).policy()
    if as_json:
        click.echo(document(decided_facts(told)))
        return
    now, filed = told.policy, told.file_policy
    click.echo(f"policy    {_named(now)}")
    if now.set_by:
        since = when(from_timestamp(now.set_time), app.look())
        click.echo(f"set by    {clean_line(now.set_by)}, {since}; master.toml says {_named(filed)}")
    else:
        click.echo("set by    master.toml")
    click.echo(f"planner   {planner_text(told.planner)}")
    look = app.look()
    for helper in told.helpers:
        if helper.failing:
            click.echo(paint("failed", look, f"FAILING   {helper.name} {failing(helper, look)}"))
            click.echo(f"          -> {todo(helper)}")


@policy.command(name="list", epilog=examples("dlq admin policy list"))
@json_option
@pass_app
def list_(app: App, as_json: bool) -> None:
    """All policies that could decide."""
    presets = Admin(app.connection()).policy().presets
    cells = [Cell("POLICY"), Cell("WHAT IT DOES")]
    rows = [[one.policy, one.summary] for one in presets]
    facts = {"presets": [preset_facts(one) for one in presets]}
    tell(facts, lambda: table(cells, rows, app.look()), as_json=as_json)


@policy.command(
    name="set",
    epilog=examples(
        "dlq admin policy set tiresias-las -s thresholds=3200,32000",
        "dlq admin policy set fifo -s place=spread --force -y",
    ),
)
@click.option(
    "-s", "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting; repeatable."
)
@click.option("--force", is_flag=True, help="Do it even if it drops promises.")
@yes_option
@json_option
@click.argument("name")
@pass_app
def set_(
    app: App, name: str, settings: tuple[str, ...], force: bool, yes: bool, as_json: bool
) -> None:
    """Let policy NAME decide from now on, also after restarts. Running jobs go on until their term
    ends.

    Settings that are not named are as the policy has them. Settings of `dlq simulate --set` are
    accepted here too, except those that only a simulation can use.
    """
    words = dict(_setting(word) for word in settings)
    app.confirm(f"{name} will schedule all jobs", yes=yes)
    _done(Admin(app.connection()).set_policy(name, words, force=force), as_json=as_json)


@policy.command(epilog=examples("dlq admin policy reset -y"))
@click.option("--force", is_flag=True, help="Do it even if it drops promises.")
@yes_option
@json_option
@pass_app
def reset(app: App, force: bool, yes: bool, as_json: bool) -> None:
    """Let the policy of master.toml decide again."""
    app.confirm("the policy of master.toml will schedule all jobs", yes=yes)
    _done(Admin(app.connection()).set_policy(from_file=True, force=force), as_json=as_json)


def _done(answer: admin_service_pb2.SetPolicyResponse, *, as_json: bool) -> None:
    dropped = list(answer.dropped_job_ids)
    lines = [f"policy {_named(answer.policy)}"]
    if dropped:
        lines.append(f"promises dropped: {', '.join(dropped)}; their owners find an event")
    facts = {"policy": policy_facts(answer.policy), "dropped_job_ids": dropped}
    tell(facts, lambda: "\n".join(lines), as_json=as_json)


def _setting(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not (key and equals):
        raise InvalidRequest(f"--set {word[:64]!r}: expected KEY=VALUE, such as place=spread")
    return key, value


def _named(one: policy_pb2.Policy) -> str:
    words = [one.policy, *(f"{key}={value}" for key, value in sorted(one.settings.items()))]
    return clean_line(" ".join(words))


def planner_text(planner: policy_pb2.Planner) -> str:
    """How the planning process does, in words."""
    if planner.state == "off" and not planner.failure_count:
        return "off: no plan has taken long so far"
    longest_s = from_duration(planner.longest_plan_duration)
    last_s = from_duration(planner.last_plan_duration)
    words = [
        f"{planner.state}: {planner.plan_count} plans, the last in {last_s:.2f} s, the longest in "
        f"{longest_s:.2f} s"
    ]
    if planner.dropped_change_count:
        words.append(f"{planner.dropped_change_count} changes came too late")
    if planner.failure_count or planner.useless_count:
        words.append(
            f"failed {planner.failure_count} times, of no use {planner.useless_count} times, last: "
            f"{clean_line(planner.last_failure)}"
        )
    if planner.HasField("rest_duration"):
        rest_s = from_duration(planner.rest_duration)
        words.append(
            f"asked again in {rest_s:.0f} s; until then the kept plan is followed, and nothing "
            "new is promised"
        )
    return "; ".join(words)
