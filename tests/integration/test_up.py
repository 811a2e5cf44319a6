"""`dlq up` with real daemons: first job, repeats, kills, a second machine, and the end."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator

import pytest

from support.mcp_client import mcp_session
from support.up_box import UpBox, lives, up_box
from support.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def box() -> Iterator[UpBox]:
    with up_box() as made:
        made.up()
        yield made


def test_a_job_runs_without_any_option_or_configuration(box: UpBox) -> None:
    assert box.said("run", "-G", "1", "--", "sh", "-c", "echo hello") == "hello\n"
    assert box.facts()["state"] == "up"


def test_a_second_up_says_that_it_is_up_and_changes_nothing(box: UpBox) -> None:
    before = box.pids()
    assert box.said("up").startswith("up: cluster up-")
    assert box.pids() == before


def test_only_its_user_reaches_the_login_socket(box: UpBox) -> None:
    state = box.root / "state" / "dlq" / "up"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert "auto_users = false" in (state / "master" / "master.toml").read_text()


@pytest.mark.long("integration/test_up.py::test_after_a_kill_of_the_keeper_its_parts_go_on")
@pytest.mark.parametrize("part", ["master", "agent"])
def test_the_keeper_starts_a_killed_part_anew_and_a_job_goes_on(box: UpBox, part: str) -> None:
    job = box.said("submit", "-G", "1", "--", "sh", "-c", "sleep 3; echo survived").split()[-1]
    wait_until(lambda: "running" in box.said("status", job), what="it runs")
    killed = box.pids()[part]
    assert killed is not None
    box.kill(killed)
    wait_until(lambda: box.pids()[part] not in (None, killed), what="it is there again")
    box.said("wait", job)
    assert box.said("logs", job) == "survived\n"


def test_after_a_kill_of_the_keeper_its_parts_go_on(box: UpBox) -> None:
    box.said("up")
    parts = box.pids()
    box.kill(box.facts()["keeper_pid"])
    told = box.ask("up", "--status")
    assert told.returncode == 1
    assert "dlq up starts it" in told.stdout
    assert all(pid is not None and lives(pid) for pid in parts.values())
    box.said("up")
    assert box.facts()["state"] == "up"
    assert not any(lives(pid) for pid in parts.values() if pid is not None)


@pytest.mark.long("integration/test_up.py::test_after_a_kill_of_the_keeper_its_parts_go_on")
def test_a_record_of_processes_that_are_gone_or_others_by_now_does_no_harm(box: UpBox) -> None:
    box.said("down")
    running = box.root / "state" / "dlq" / "up" / "running.json"
    ours = [os.getpid(), 1]
    former = {"keeper": ours, "parts": {"master": ours}, "starts": {}, "record": ""}
    running.write_text(json.dumps(former))
    box.said("up")
    assert box.facts()["state"] == "up"
    box.said("down")
    running.write_text('{"keeper": [12')  # a full disk cut it short
    box.said("up")
    assert box.facts()["state"] == "up"


def test_down_asks_about_running_jobs_and_up_goes_on_with_the_rest(box: UpBox) -> None:
    box.said("up")
    runs = box.said("submit", "-G", "1", "--", "sleep", "300").split()[-1]
    waits = box.said("submit", "-G", "1", "--hold", "--", "true").split()[-1]
    wait_until(lambda: "running" in box.said("status", runs), what="it runs")
    refused = box.ask("down")
    assert refused.returncode == 2
    assert f"1 job runs ({runs}): cancel, with 5m00s to save" in refused.stderr
    assert box.facts()["state"] == "up"
    assert box.said("down", "--force") == "down\n"
    assert box.facts()["state"] == "down"
    assert box.facts()["ranks_here"] == 0
    box.said("up")
    assert "held" in box.said("status", waits)
    assert "cancelled" in box.said("status", runs)


@pytest.mark.long("unit/cli/up/test_up_words.py")
def test_down_by_force_kills_a_job_that_ignores_the_request_to_end(box: UpBox) -> None:
    box.said("up")
    deaf = "trap '' TERM; echo deaf; while :; do sleep 1; done"
    job = box.said("submit", "-G", "1", "--", "sh", "-c", deaf).split()[-1]
    wait_until(lambda: "deaf" in box.ask("logs", job).stdout, what="it ignores the signal")
    done = box.ask("down", "--force")
    assert (done.returncode, done.stdout) == (0, "down\n"), done.stderr
    assert f"job {job}: cancelled, with up to 30s to save and end; then it is killed" in done.stderr
    assert f"not ended, so killed: {job}" in done.stderr
    assert box.facts()["ranks_here"] == 0
    box.said("up")
    assert "cancelled" in box.said("status", job)


def test_a_tool_client_plans_submits_reads_and_cancels(box: UpBox) -> None:
    box.said("up")
    with mcp_session(box, "--allow-actions") as client:
        assert {"status", "submit", "cancel"} <= client.tools
        plan = client.told("submit_plan", command=["sh", "-c", "echo from a tool"], gpus="1")
        assert plan["would_run"] == "dlq submit --gpus=1 -- sh -c 'echo from a tool'"
        queued = client.told("submit", confirm=plan["confirm"])
        job = queued["jobs"][0]["job_id"] if "jobs" in queued else queued["job_id"]
        box.said("wait", job)
        assert client.told("logs_tail", job=job)["output"] == "from a tool\n"
        assert client.told("show", job=job)["jobs"][0]["job_id"] == job
        assert client.told("nodes")["nodes"]
        assert client.told("submit", confirm=plan["confirm"]) == queued  # no second job
        assert "ended already" in client.failure("cancel", jobs=[job])
        assert "64 GPUs" in client.failure("submit_plan", command=["true"], gpus="64")
    with mcp_session(box) as reader:
        assert not reader.tools & {"submit", "cancel"}


def test_a_dump_of_a_live_box_has_its_logs_and_no_secret(box: UpBox) -> None:
    box.said("up")
    job = box.said(
        "submit", "-G", "1", "--env", "KEY=hushhush", "--", "sh", "-c", "true hushhush"
    ).split()[-1]
    box.said("debug-dump", "-o", "dump.tar.gz", "--job", job)
    with tarfile.open(box.root / "dump.tar.gz") as archive:
        files = {each.name: archive.extractfile(each) for each in archive.getmembers()}
        texts = {name: file.read() for name, file in files.items() if file is not None}
    assert {"dlq-debug-dump/box/master.log", "dlq-debug-dump/job/show.json"} <= {*texts}
    assert [name for name, text in texts.items() if b"hushhush" in text] == []
    assert b'"state"' in texts["dlq-debug-dump/job/show.json"]


def test_another_machine_joins_by_one_command_and_the_token_is_good_once(box: UpBox) -> None:
    box.said("up")
    printed = box.said("up", "--invite", "--address", "127.0.0.1")
    echo, _, command = (words.split() for words in printed.partition(" | "))
    token = echo[-1]
    assert echo[:-1] == ["echo"]
    assert command[:3] == ["dlq", "up", "--join"]
    assert command[4:] == ["--token", "-"], "no list of processes shows the token"
    with up_box() as second, up_box() as third:
        given = ("--devices", "fake:3", "--name")
        second.said(*command[1:4], *given, "second", given=f"{token}\n")
        wait_until(lambda: "second" in box.said("nodes"), what="the node is there")
        assert second.facts()["joined"] is True
        refused = third.ask(*command[1:], *given, "third", given=f"{token}\n")
        assert refused.returncode == 2
        assert "token" in refused.stderr
        assert box.said("run", "-G", "3", "--", "hostname")  # only the second has three
        second.said("down")
        second.said("up")
        facts = second.facts()
        assert facts["state"] == "up"
        shutil.rmtree(facts["directory"])
        processes = [facts["keeper_pid"], *(part["pid"] for part in facts["parts"])]
        wait_until(lambda: not any(map(lives, processes)), what="a box without files has ended")


def test_a_box_that_is_open_to_others_stays_so(box: UpBox) -> None:
    box.said("up", "--invite", "--address", "127.0.0.1")
    before = box.pids()
    box.said("up", "--invite")
    assert box.pids() == before
