"""Teams and their members as Slurm's accounts, users and associations.

A team is an account below `root`, which is the cluster itself. A user without a team has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlq.v1 import team_pb2
from dlq_cli.app import App
from dlq_client.teams import Teams

ROOT = "root"


class Association(NamedTuple):
    """A row: the root, an account (no user), or a user in an account."""

    cluster: str
    account: str
    user: str
    parent: str  # the account above it
    rules: team_pb2.TeamRules
    use: team_pb2.TeamUse
    normal_share: float  # its part of the shares beside it
    is_default: bool = False
    above: int = 0  # the depth of the highest row that is printed with it

    @property
    def share(self) -> float:
        return self.rules.share if self.rules.HasField("share") else 1.0

    @property
    def depth(self) -> int:
        if self.account == ROOT:
            return 0
        return 2 if self.user else 1


def associations(app: App) -> list[Association]:
    """The root, then each team that the caller may see with its members, as Slurm orders them."""
    cluster = app.connection().identity.cluster
    teams = Teams(app.connection()).list().teams
    used = team_pb2.TeamUse(usage_gpu_seconds=sum(one.use.usage_gpu_seconds for one in teams))
    rows = [Association(cluster, ROOT, "", "", team_pb2.TeamRules(), used, 0.0)]
    total = sum(_share(team.rules) for team in teams)
    for team in teams:
        part = _share(team.rules) / total if total else 0.0
        rows.append(Association(cluster, team.name, "", ROOT, team.rules, team.use, part))
        rows += _members(cluster, team)
    return rows


def _members(cluster: str, team: team_pb2.Team) -> list[Association]:
    total = sum(_share(member.rules) for member in team.members)
    return [
        Association(
            cluster, team.name, member.user, "", member.rules, member.use,
            _share(member.rules) / total if total else 0.0, member.is_default,
        )
        for member in team.members
    ]  # fmt: skip


def _share(rules: team_pb2.TeamRules) -> float:
    return rules.share if rules.HasField("share") else 1.0


class SeenUser(NamedTuple):
    """A user, the account that counts without a word, and all accounts."""

    name: str
    default: str
    rows: Sequence[Association]


def users_of(app: App, rows: Sequence[Association]) -> list[SeenUser]:
    """The members of these teams, and the caller, by name."""
    names = sorted({row.user for row in rows if row.user} | {app.connection().identity.user})
    found = []
    for name in names:
        own = [row for row in rows if row.user == name]
        default = next((row.account for row in own if row.is_default), "")
        found.append(SeenUser(name, default or (own[0].account if own else ""), own))
    return found
