"""sacctmgr and sshare over teams; what they do not do is refused by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import click
import pytest

from dlq.v1 import team_pb2
from dlq.v1 import team_service_pb2 as wire
from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.accounts import sacctmgr, sreport, sshare
from dlq_cli.slurm.accounts.sacctmgr import GRAMMAR
from dlq_cli.slurm.queue import sprio

IDENTITY = SimpleNamespace(cluster="lab", user="ann", role="user", address="10.0.0.1:7000")
APP: Any = SimpleNamespace(connection=lambda: SimpleNamespace(identity=IDENTITY))


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The printed lines, over two teams."""
    rules = team_pb2.TeamRules(gpu_limit=16, running_job_limit=4, share=3.0)
    use = team_pb2.TeamUse(usage_gpu_seconds=90.0, use_ratio=1.0)
    ann = team_pb2.TeamMember(user="ann", use=use, is_default=True)
    bob = team_pb2.TeamMember(user="bob", rules=team_pb2.TeamRules(queued_job_limit=9))
    teams = [
        team_pb2.Team(name="vision", rules=rules, use=use, members=[ann, bob]),
        team_pb2.Team(name="speech", members=[team_pb2.TeamMember(user="ann")]),
    ]
    listed = wire.ListTeamsResponse(teams=teams)
    monkeypatch.setattr("dlq_client.teams.Teams.__init__", lambda self, line: None)
    monkeypatch.setattr("dlq_client.teams.Teams.list", lambda self: listed)
    lines: list[str] = []
    monkeypatch.setattr(click, "echo", lambda text: lines.extend(text.split("\n")))
    return lines


def test_limits_of_teams_and_members_are_those_of_associations(said: list[str]) -> None:
    columns = "format=account,user,share,grptres,grpjobs,maxsubmit"
    sacctmgr.main(APP, ["-nP", "show", "assoc", columns])
    assert said == [
        "root||1|||", "vision||3|gres/gpu=16|4|", "vision|ann|1|||", "vision|bob|1|||9",
        "speech||1|||", "speech|ann|1|||",
    ]  # fmt: skip


def test_a_user_has_a_default_account_and_a_line_for_each(said: list[str]) -> None:
    sacctmgr.main(APP, ["-n", "-s", "-P", "list", "user", "ann", "format=user,defaulta,account"])
    assert said == ["ann|vision|vision", "ann|vision|speech"]


def test_filters_and_beginnings_of_words(said: list[str]) -> None:
    sacctmgr.main(APP, ["-p", "show", "accounts", "where", "name=Vision", "format=acc%4"])
    assert said == ["Account|", "vision|"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["show", "assoc", "format=bogus"], "Unknown field 'bogus'"),
        (["show", "assoc", "foo=bar"], " Unknown condition: foo=bar"),
        (["show", "coordinator"], "No valid entity in list command"),
        (["foo"], "invalid keyword: foo"),
        (["add", "account", "x"], "sacctmgr: error: add: teams and their members"),
        (["show", "event"], "sacctmgr: error: event: `sinfo -R`"),
    ],
)
def test_what_is_not_there_is_refused_by_name(words: list[str], told: str) -> None:
    with pytest.raises(SlurmSays) as refusal:
        sacctmgr.main(APP, words)
    assert refusal.value.lines[0].startswith(told)
    assert refusal.value.code == 1


def test_the_share_falls_by_use(said: list[str]) -> None:
    sshare.main(APP, ["-P", "-n", "-a", "-o", "Account,User,NormShares,RawUsage,FairShare"])
    assert said[1:4] == [
        " vision||0.750000|90|", "  vision|ann|0.500000|90|0.500000",
        "  vision|bob|0.500000|0|1.000000",
    ]  # fmt: skip
    said.clear()
    sshare.main(APP, ["-U", "-n", "-P", "-o", "Account,User"])
    assert said == ["vision|ann", "speech|ann"]


def test_reports_and_priorities_name_the_command_of_dlq() -> None:
    with pytest.raises(SlurmSays, match="dlq usage --by user"):
        sreport.main(APP, ["user", "top"])
    with pytest.raises(SlurmSays, match="Valid cluster reports are"):
        sreport.main(APP, ["cluster", "foo"])
    with pytest.raises(SlurmSays, match=r"(?s)priority/basic.*dlq why"):
        sprio.main(APP, [])


def test_every_short_option_stands_for_a_known_one() -> None:
    for grammar in (GRAMMAR, sshare.GRAMMAR, sprio.GRAMMAR, sreport.GRAMMAR):
        assert set(grammar.short.values()) <= grammar.valued | grammar.switches
