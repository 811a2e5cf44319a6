"""Teams as messages, and messages as teams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlq.v1 import team_pb2
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import filled, said, to_timestamp
from dlq_master.control.people.team_use import TeamUse
from dlq_master.model.jobs.accounts import account_of
from dlq_master.rpc.specs.intake import team_name_of, user_name_of
from dlq_master.store.tables.tenants import Member, Team, TeamRules

MOST_MEMBERS = 10_000
MOST = 1_000_000  # GPUs, or jobs
LARGEST_SHARE = 1e6
_COUNTS = ("gpu_quota", "gpu_limit", "running_job_limit", "queued_job_limit")


def team_message(team: Team, uses: Mapping[str, TeamUse]) -> team_pb2.Team:
    """A team with its present use."""
    return team_pb2.Team(
        name=team.name,
        rules=_rules_message(team.rules),
        guaranteed_gpu_quota=team.slo_quota,
        members=[member_message(team.name, member, uses) for member in team.members],
        create_time=to_timestamp(team.created_time_s),
        version=team.version,
        use=use_message(uses.get(team.name)),
    )


def member_message(team: str, member: Member, uses: Mapping[str, TeamUse]) -> team_pb2.TeamMember:
    """A member with the user's present use in the team."""
    return team_pb2.TeamMember(
        user=member.user,
        rules=_rules_message(member.rules),
        is_default=member.default,
        use=use_message(uses.get(account_of(team, member.user))),
    )


def use_message(use: TeamUse | None) -> team_pb2.TeamUse:
    """The use of one team or member; None: no use."""
    use = use or TeamUse()
    return team_pb2.TeamUse(
        gpu_count=use.gpus,
        borrowed_gpu_count=use.borrowed_gpus,
        guaranteed_gpu_count=use.guaranteed_gpus,
        running_job_count=use.running,
        waiting_job_count=use.waiting,
        job_count=use.jobs,
        usage_gpu_seconds=use.usage_gpu_s,
        use_ratio=use.ratio,
    )


def team_of_message(message: team_pb2.Team) -> Team:
    """The requested rules, checked."""
    if len(message.members) > MOST_MEMBERS:
        raise InvalidRequest(f"a team has {MOST_MEMBERS} members at most", field="team.members")
    members = tuple(_members(message.members))
    return Team(
        name=team_name_of(message.name, "team.name"),
        created_time_s=0.0,
        rules=_rules(message.rules, "team.rules"),
        slo_quota=_count(said(message, "guaranteed_gpu_quota"), "team.guaranteed_gpu_quota"),
        members=members,
        version=message.version,
    )


def _members(messages: Iterable[team_pb2.TeamMember]) -> Iterable[Member]:
    seen = set()
    for number, message in enumerate(messages):
        field = f"team.members[{number}]"
        user = user_name_of(message.user, f"{field}.user")
        if user in seen:
            raise InvalidRequest(f"{user} is named twice", field=f"{field}.user")
        seen.add(user)
        yield Member(user, _rules(message.rules, f"{field}.rules"), message.is_default)


def _rules(message: team_pb2.TeamRules, field: str) -> TeamRules:
    told = {name: _count(said(message, name), f"{field}.{name}") for name in _COUNTS}
    share = said(message, "share")
    if share is not None and not 0.0 < share <= LARGEST_SHARE:
        raise InvalidRequest("a share is above 0, up to a million", field=f"{field}.share")
    quota, limit = told["gpu_quota"], told["gpu_limit"]
    if quota is not None and limit is not None and limit < quota:
        raise InvalidRequest(
            f"a limit of {limit} GPUs is below the quota of {quota}", field=f"{field}.gpu_limit"
        )
    return TeamRules(quota, limit, told["running_job_limit"], told["queued_job_limit"], share)


def _count(value: int | None, field: str) -> int | None:
    if value is not None and not 0 <= value <= MOST:
        raise InvalidRequest(f"{value} is not between 0 and {MOST}", field=field)
    return value


def _rules_message(rules: TeamRules) -> team_pb2.TeamRules:
    return filled(
        team_pb2.TeamRules,
        rules,
        running_job_limit=rules.running_jobs,
        queued_job_limit=rules.queued_jobs,
    )
