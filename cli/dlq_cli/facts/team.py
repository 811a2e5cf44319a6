"""Teams as plain values."""

from __future__ import annotations

from google.protobuf.message import Message

from dlq.v1 import team_pb2, team_service_pb2
from dlq_cli.facts.common import Facts, instant

_RULES = ("gpu_quota", "gpu_limit", "running_job_limit", "queued_job_limit", "share")


def team_facts(team: team_pb2.Team) -> Facts:
    """A team, its limits and its use; null: not set."""
    quota = team.guaranteed_gpu_quota if team.HasField("guaranteed_gpu_quota") else None
    return {
        "name": team.name,
        **_rules(team.rules),
        "guaranteed_gpu_quota": quota,
        "use": _use(team.use),
        "members": [member_facts(one) for one in team.members],
        "create_time": instant(team.create_time) if team.HasField("create_time") else None,
        "version": team.version,
    }


def member_facts(member: team_pb2.TeamMember) -> Facts:
    """A member of a team."""
    return {
        "user": member.user,
        "is_default": member.is_default,
        **_rules(member.rules),
        "use": _use(member.use),
    }


def list_facts(answer: team_service_pb2.ListTeamsResponse) -> Facts:
    """All teams that one may see."""
    return {
        "teams": [team_facts(team) for team in answer.teams],
        "others": [member_facts(member) for member in answer.others],
        "notice": answer.notice or None,
    }


def _rules(rules: Message) -> Facts:
    return {name: getattr(rules, name) if rules.HasField(name) else None for name in _RULES}


def _use(use: team_pb2.TeamUse) -> Facts:
    return {
        "gpu_count": use.gpu_count,
        "borrowed_gpu_count": use.borrowed_gpu_count,
        "guaranteed_gpu_count": use.guaranteed_gpu_count,
        "running_job_count": use.running_job_count,
        "waiting_job_count": use.waiting_job_count,
        "job_count": use.job_count,
        "usage_gpu_seconds": use.usage_gpu_seconds,
        "use_ratio": use.use_ratio if use.HasField("use_ratio") else None,
    }
