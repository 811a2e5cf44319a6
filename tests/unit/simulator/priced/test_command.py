"""`dlq simulate` with policies that rent."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dlq_simulator.command import simulate
from dlq_simulator.priced.settings import KNOWN

ROWS = """job_id,submit_time_s,num_gpus,duration_s,min_workers,max_workers,due_s,weight
a,0,2,3600,1,2,7200,0.01
b,600,1,1800,1,2,1800,0.01
"""
CATALOGUE = """rent_at_most = 1
[[catalogue]]
name = "a2"
gpus = 2
gpu_type = "A"
price_per_hour = 2.0
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "t.csv").write_text(ROWS)
    (tmp_path / "c.toml").write_text(CATALOGUE)
    return [str(tmp_path / "t.csv"), "--cluster", str(tmp_path / "c.toml")]


def told(*words: str) -> Any:
    done = CliRunner().invoke(simulate, [*words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_nodes_and_lateness_are_charged_and_changes_take_time(files: list[str]) -> None:
    free = told(*files, "--policy", "gpuaas-edf", "--set", "preempt=free")["policies"][0]
    # a has the node for an hour; then b, late already, has both GPUs for a quarter.
    assert free["makespan_s"] == 4500
    assert free["cost"] == pytest.approx(2 * 1.25)
    assert free["tardiness_cost"] == pytest.approx(0.01 * (4500 - 2400))
    words = [*files, "--policy", "gpuaas-marginal", "--set", "interval_s=300"]
    paid, none = (told(*words, "--set", f"preempt={price}") for price in ("charged", "free"))
    assert none["policies"][0]["overhead_gpu_s"] == 0
    changes, overhead = (paid["policies"][0][key] for key in ("preemptions", "overhead_gpu_s"))
    assert 0 < 60 * changes <= overhead <= 2 * 60 * changes  # a asks for 2 GPUs, b for 1


def test_the_same_seed_gives_the_same_bytes(files: list[str]) -> None:
    words = [*files, "--policy", "gpuaas-path-relinking", "--set", "iterations=20", "--seed", "3"]
    first, second = told(*words), told(*words)
    for document in (first, second):
        del document["policies"][0]["timing"]
    assert first == second


def test_where_everything_is_rented_dlq_is_the_marginal_allocation(files: list[str]) -> None:
    words = [*files, "--set", "lookahead=0.7", "--policy"]
    found = told(*words, "dlq", "--policy", "gpuaas-greedy")["policies"]
    (alone,) = told(*words, "gpuaas-marginal")["policies"]
    for document in (*found, alone):
        del document["timing"]
    assert [document["policy"] for document in found] == ["dlq", "gpuaas-greedy"]
    assert found[0] == alone | {"policy": "dlq"}
    assert found[1]["cost"] != found[0]["cost"]


def test_beside_nodes_of_its_own_dlq_is_no_policy_that_rents_all(
    files: list[str], tmp_path: Path
) -> None:
    (tmp_path / "c.toml").write_text(CATALOGUE + "count = 1\n")
    done = CliRunner().invoke(simulate, [*files, "--policy", "dlq", "--set", "interval_s=60"])
    assert (done.exit_code, "interval_s" in done.output or "no policy 'dlq'" in done.output) == (
        2,
        True,
    )


def test_jobs_and_their_changes_are_written(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "jobs.csv"
    told(*files, "--policy", "gpuaas-marginal", "--jobs-out", str(out))
    rows = [line.split(",") for line in out.read_text().splitlines()]
    assert [row[0] for row in rows] == ["job_id", "a", "b"]
    assert float(rows[2][2]) == 600, "b starts beside a at once"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--policy", "fifo"], 2, "it rents no nodes"),
        (["--policy", "gpuaas-gredy"], 2, "did you mean 'gpuaas-greedy'"),
        (["--policy", "gpuaas-greedy", "--set", "elite=3"], 2, "unknown setting 'elite'"),
        (
            ["--policy", "gpuaas-greedy", "--set", "reading=x"],
            2,
            "expected one of paper, reference",
        ),
        (["--policy", "gpuaas-greedy", "--set", "interval_s=0"], 2, "interval_s=0"),
        (["--policy", "gpuaas-greedy", "--set", "preempt=x"], 2, "expected one of charged, free"),
        (["--policy", "gpuaas-greedy", "--set", "times=x"], 2, "expected one of exact, fitted"),
        (["--policy", "gpuaas-greedy", "--set", "refine=off"], 2, "add --set times=fitted"),
        (
            ["--policy", "gpuaas-greedy", "--set", "times=fitted", "--set", "measure_s=0"],
            2,
            "measure_s=0",
        ),
    ],
)
def test_slips_are_refused_before_anything_is_replayed(
    files: list[str], words: list[str], code: int, message: str
) -> None:
    done = CliRunner().invoke(simulate, [*files, *words])
    assert done.exit_code == code
    assert message in done.output


def test_run_times_may_be_learned(files: list[str], tmp_path: Path) -> None:
    words = [*files, "--policy", "gpuaas-marginal", "--set", "times=fitted", "--json"]
    done = CliRunner().invoke(simulate, words)
    assert (done.exit_code, "run times at submit are off by" in done.stderr) == (
        0,
        True,
    )
    (tmp_path / "h.csv").write_text(ROWS)
    taught = CliRunner().invoke(simulate, [*words, "--set", f"history={tmp_path / 'h.csv'}"])
    assert taught.exit_code == 0
    assert taught.stderr != done.stderr
    missing = CliRunner().invoke(simulate, [*words, "--set", "history=nowhere.csv"])
    assert (missing.exit_code, "nowhere.csv" in missing.output) == (2, True)


def test_an_end_of_renting_is_for_those_who_rent(files: list[str], tmp_path: Path) -> None:
    ends = CATALOGUE + "count = 1\nuntil_s = 5000\n"
    (tmp_path / "c.toml").write_text(ends)
    done = CliRunner().invoke(simulate, [*files, "--policy", "fifo"])
    assert (done.exit_code, "a2 is taken back at 5000 s" in done.output) == (2, True)
    assert told(*files, "--policy", "gpuaas-marginal")["policies"][0]["jobs"] == 2


def test_every_policy_that_rents_and_its_settings_are_on_their_page() -> None:
    pages = (Path(__file__).parents[4] / "docs/policies").glob("*.md")
    words = {word for page in pages for word in re.findall(r"`([a-z0-9_-]+)`", page.read_text())}
    assert {*KNOWN, *(key for keys in KNOWN.values() for key in keys)} <= words


def test_the_command_needs_no_numpy_until_somebody_rents() -> None:
    code = "import sys, dlq_simulator.priced.settings; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
