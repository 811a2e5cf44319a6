"""`dlq history` against a master of canned answers: what it asks for, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_common.clock import SteadyClock
from dlq_common.text.wire import to_duration, to_timestamp
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.wire_jobs import a_job

pytestmark = pytest.mark.integration


@pytest.fixture
def now_s() -> float:
    return float(int(SteadyClock().now_s()))


@pytest.fixture
def master(now_s: float) -> Iterator[FakeMaster]:
    """Of alice: one job that runs; of those that ended one each a day back, but for the last."""
    running = FakeMaster()
    for back, state in enumerate(("completed", "failed", "timed_out", "cancelled")):
        number = 20 - back
        end = to_timestamp(now_s - back * 86_400 - 60)
        running.jobs[str(number)] = a_job(
            number, state, end_time=end, run_duration=to_duration(3600), gpu_seconds=28_800.0,
            exit_code=back, preemption_count=back, lost_gpu_seconds=back * 360.0,
        )  # fmt: skip
    running.jobs["21"] = a_job(21, "running")
    running.jobs = dict(sorted(running.jobs.items()))
    yield running
    running.stop()


@pytest.fixture
def dlq(master: FakeMaster, tmp_path: Path) -> Dlq:
    return Dlq(master.home(tmp_path))


def ids(text: str) -> list[str]:
    return [line.split("|")[0].split()[0] for line in text.splitlines()]


def test_a_list_of_a_span_has_what_ended_in_it(dlq: Dlq) -> None:
    assert ids(dlq("history", "-S", "36h", "-n").out) == ["19", "20"]
    assert ids(dlq("history", "-S", "60h", "-E", "12h", "-n").out) == ["18", "19"]
    assert ids(dlq("history", "-S", "all", "--no-header").out) == ["17", "18", "19", "20"]


def test_the_table_says_how_it_ended_and_what_it_cost(dlq: Dlq) -> None:
    head, row = dlq("history", "-S", "60h", "-E", "36h").out.splitlines()
    told = dict(zip(head.split(), row.split(), strict=False))
    assert (told["JOB_ID"], told["STATE"], told["EXIT"]) == ("18", "timed_out", "2:0")
    assert row.split()[-4:] == ["01:00:00", "8.00", "2", "0.20"]


def test_today_is_the_span_of_those_who_name_none(dlq: Dlq, master: FakeMaster) -> None:
    dlq("history")
    (asked,) = master.requests("ListJobs")
    since_s = SteadyClock().now_s() - asked.ended_from_time.seconds
    assert 0 <= since_s <= 25 * 3600
    assert not asked.HasField("ended_before_time")
    assert list(asked.states) == ["cancelled", "completed", "failed", "timed_out"]
    assert asked.user == ""


def test_filters_are_the_masters_work(dlq: Dlq, master: FakeMaster) -> None:
    dlq(
        "history", "-u", "bob", "-s", "CD,failed", "--name", "train", "-p", "urgent", "--after", "5"
    )
    (asked,) = master.requests("ListJobs")
    assert (asked.user, asked.name, asked.queue) == ("bob", "train", "urgent")
    assert (list(asked.states), asked.page_token) == (["completed", "failed"], "5")
    dlq("history", "-a")
    assert master.requests("ListJobs")[-1].user == "*"


def test_a_limit_ends_the_list_and_asks_for_no_more(dlq: Dlq, master: FakeMaster) -> None:
    assert ids(dlq("history", "-S", "all", "-n", "--limit", "2").out) == ["17", "18"]
    (asked,) = master.requests("ListJobs")
    assert asked.page_size == 2


def test_all_pages_are_one_list(dlq: Dlq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlq_cli.commands.look.history.PAGE_SIZE", 2)
    assert ids(dlq("history", "-S", "all", "-P", "-n").out) == ["17", "18", "19", "20"]


def test_named_jobs_are_listed_whenever_they_ended(dlq: Dlq) -> None:
    assert ids(dlq("history", "17", "21", "20", "-n").out) == ["17", "20"]
    said = dlq("history", "21")
    assert (said.code, said.out.split()[0]) == (0, "JOB_ID")
    assert "dlq status" in said.err


def test_programs_get_one_object_or_bars(dlq: Dlq) -> None:
    told = json.loads(dlq("history", "-S", "36h", "--json").out)
    assert told["schema"] == "dlq.v1"
    assert [(job["job_id"], job["gpu_hours"]) for job in told["jobs"]] == [("19", 8.0), ("20", 8.0)]
    said = dlq("history", "-S", "36h", "-P", "-o", "JobID,State,ExitCode,gpu_hours")
    assert said.out == "JOB_ID|STATE|EXIT|GPU_HOURS\n19|failed|1:0|8.00\n20|completed|0:0|8.00\n"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["-s", "running"], "no job ends as running"),
        (["-s", "done"], "there is no state"),
        (["-S", "soon"], "--since: 'soon' is not a time"),
        (["-S", "1h", "-E", "2h"], "--until is not after --since"),
        (["-a", "-u", "bob"], "-a is everybody"),
        (["-o", "id,cost"], "there is no column"),
        (["--limit", "0"], "--limit"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_the_master_is_asked(
    dlq: Dlq, master: FakeMaster, arguments: list[str], word: str
) -> None:
    said = dlq("history", *arguments)
    assert said.code == 2
    assert word in said.err
    assert master.requests("ListJobs") == []


def test_an_empty_list_says_where_to_look(dlq: Dlq) -> None:
    said = dlq("history", "-S", "10s")
    assert said.code == 0
    assert "no such job has ended since" in said.err
    assert "-S 7d" in said.err
