"""The rules of teams, as settings of a policy, so that plans made anywhere follow the same
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from dlq_master.model.jobs.accounts import account_of
from dlq_master.store.tables.tenants import Team, TeamRules

Told = Callable[[TeamRules], float | None]
# Setting -> what it takes of the rules of a team or a member.
_SETTINGS: Mapping[str, Told] = {
    "team_quota": lambda rules: rules.gpu_quota,
    "team_limit": lambda rules: rules.gpu_limit,
    "team_jobs": lambda rules: rules.running_jobs,
    "team_share": lambda rules: rules.share,
}


def team_words(teams: Iterable[Team]) -> dict[str, str]:
    """Settings and their texts; a setting that no team has a word on is left out."""
    ordered = sorted(teams, key=lambda team: team.name)
    words = {key: ",".join(_words(ordered, told)) for key, told in _SETTINGS.items()}
    words["slo_quota"] = ",".join(
        f"{team.name}:{team.slo_quota}" for team in ordered if team.slo_quota is not None
    )
    if ordered and not words["team_share"]:
        words["team_share"] = "*:1"  # there are teams: each is due as much as any other
    return {key: text for key, text in words.items() if text}


def _words(teams: Iterable[Team], told: Told) -> Iterator[str]:
    for team in teams:
        if (value := told(team.rules)) is not None:
            yield f"{team.name}:{value:g}"
        for member in team.members:
            if (value := told(member.rules)) is not None:
                yield f"{account_of(team.name, member.user)}:{value:g}"
