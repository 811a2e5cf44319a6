"""Teams as plain values."""

from __future__ import annotations

from google.protobuf.message import Message

from dlq.v1 import team_pb2, team_service_pb2
from dlq_cli.facts.common import Facts, facts_of


def team_facts(team: team_pb2.Team) -> Facts:
    """A team, its limits and its use; null: not set."""
    return {
        "name": team.name,
        **_rules(team.rules),
        **facts_of(team, "guaranteed_gpu_quota"),
        "use": _use(team.use),
        "members": [member_facts(one) for one in team.members],
        **facts_of(team, "create_time version"),
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
    return facts_of(rules, "gpu_quota gpu_limit running_job_limit queued_job_limit share")


def _use(use: team_pb2.TeamUse) -> Facts:
    names = """
        gpu_count borrowed_gpu_count guaranteed_gpu_count running_job_count waiting_job_count
        job_count usage_gpu_seconds use_ratio
    """
    return facts_of(use, names)
