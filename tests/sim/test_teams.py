"""Teams of a trace: quotas, limits and shares under the same plans as in a master."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dlq_simulator.command import simulate

HEAD = "job_id,submit_time_s,num_gpus,duration_s,user,vc\n"
# Two teams of one user each want a node all the time: 40 jobs of half an hour each.
ROWS = "".join(
    f"{vc}{n},{n},8,1800,{user},{vc}\n"
    for n in range(40)
    for user, vc in (("ann", "vision"), ("bob", "nlp"))
)


def finishes(tmp_path: Path, *settings: str) -> list[str]:
    """Ids in the order in which they end."""
    trace, out = tmp_path / "trace.csv", tmp_path / "jobs.csv"
    trace.write_text(HEAD + ROWS)
    told = [word for setting in settings for word in ("--set", setting)]
    arguments = [str(trace), "--cluster", "1x8", "--policy", "dlq", "--jobs-out", str(out), *told]
    done = CliRunner().invoke(simulate, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["policies"][0]["jobs"] == 80
    rows = [line.split(",") for line in out.read_text().splitlines()[1:]]
    return [row[0] for row in sorted(rows, key=lambda row: float(row[3]))]


def test_shares_of_a_trace_are_given_to_its_teams(tmp_path: Path) -> None:
    first = finishes(tmp_path, "team_share=vision:3,nlp:1", "teams=vc")[:32]
    assert sum(job.startswith("vision") for job in first) == pytest.approx(24, abs=3)
    alike = finishes(tmp_path, "team_share=*:1", "teams=user")[:32]
    assert sum(job.startswith("vision") for job in alike) == pytest.approx(16, abs=2)


def test_a_team_without_a_quota_has_what_others_leave(tmp_path: Path) -> None:
    first = finishes(tmp_path, "team_quota=nlp:8,vision:0", "teams=vc", "share=none")[:40]
    assert all(job.startswith("nlp") for job in first), "vision only borrows"
