"""The words with which `dlq up` refuses, and the units that it writes."""

from __future__ import annotations

import os
import platform
import re
import signal
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration

from dlq.v1.job_pb2 import Job
from dlq_cli.app import App
from dlq_cli.up import asking, making, steps, units
from dlq_cli.up.keeper import environment_of, jobs_group
from dlq_cli.up.looking import box_facts, isolation
from dlq_cli.up.place import Box
from dlq_cli.up.processes import AGENT
from dlq_common.errors import ConfigError, DlqError, InvalidRequest
from dlq_nodeagent.devices.choose import check_devices_word
from support.cli_run import Dlq


@pytest.fixture
def box(tmp_path: Path) -> Box:
    for name in ("logs", "agent", "master"):
        (tmp_path / name).mkdir()
    return Box(
        home=tmp_path / "h%1", name="up", state=tmp_path, machine="m", node="n1", cluster="up-lab",
        devices="fake:2xH100-80GB", api="127.0.0.1:7320", join="127.0.0.1:7321",
    )  # fmt: skip


def test_a_machine_without_gpus_is_told_how_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    said = Dlq(tmp_path)("up")
    assert said.code == 2
    assert "no GPU can be used here" in said.err
    assert "dlq up --devices fake:2" in said.err
    assert not (tmp_path / "s").exists()


def test_without_a_box_status_and_down_say_so(tmp_path: Path) -> None:
    said = Dlq(tmp_path)("up", "--status")
    assert (said.code, said.out) == (1, "no box: `dlq up` makes one\n")
    assert Dlq(tmp_path)("up", "--status", "--json").out == '{"schema":"dlq.v1","box":null}\n'
    assert "has no box" in Dlq(tmp_path)("down").err


@pytest.mark.parametrize("word", ["fake:0", "fake:2;rm", "fake:", "amd", "fake:2xH100-80GB\n"])
def test_devices_that_no_agent_knows_make_no_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    said = Dlq(tmp_path / "home")("up", "--devices", word)
    assert said.code == 2
    assert "--devices" in said.err
    assert not (tmp_path / "s").exists()
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    "word", ["none", "fake:2xH100-80GB", "fake:8xA100-40GB@/faults", "fake:1xA100-40GB+idle"]
)
def test_devices_that_the_agent_knows_stay_as_they_are(word: str) -> None:
    check_devices_word(word)
    assert steps.devices_of(word) == word


@pytest.mark.parametrize(
    ("address", "refusal", "words"),
    [
        ("192.0.2.9:7321", ConfigError, "root cannot join"),
        ("lab.example:7321", ConfigError, "root cannot join"),
        ("192.0.2.9", InvalidRequest, "not HOST:PORT"),
    ],
)
def test_a_machine_that_cannot_join_keeps_its_token(
    box: Box, monkeypatch: pytest.MonkeyPatch, address: str, refusal: type[DlqError], words: str
) -> None:
    ran: list[str] = []
    monkeypatch.setattr("dlq_cli.up.steps.os.geteuid", lambda: 0)
    monkeypatch.setattr("dlq_cli.up.steps.making.join", lambda *_: ran.append("join"))
    app = App(home=box.home, flags={})
    with pytest.raises(refusal, match=words):
        steps.join(app, replace(box, joined=True), address, "dlq1.1.a.b", at_login=None)
    assert ran == []
    assert not (box.home / "up.json").exists()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlq_cli.up.making.missing", lambda part: "scipy")
    with pytest.raises(ConfigError, match="scipy is not installed") as raised:
        making.check_parts("master")
    assert raised.value.hint == "pip install 'dlq[all]'"


def test_a_taken_port_is_said_and_the_usual_ones_are_left_to_others() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="in use by another program"):
            making.free_ports(taken.getsockname()[1])
    api, join = making.free_ports(None)
    assert api != join


def test_a_port_that_somebody_took_meanwhile_is_said(box: Box) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        from dataclasses import replace

        with pytest.raises(ConfigError, match=f"port {port} is in use") as raised:
            making.check_ports(replace(box, api=f"127.0.0.1:{port}"))
    assert "dlq up --port" in raised.value.hint


def test_a_user_without_an_account_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 3_999_999)
    with pytest.raises(ConfigError, match="uid 3999999 has no account"):
        making.check_account()


def test_the_last_words_of_a_part_are_its_error(box: Box) -> None:
    log = box.log("agent")
    assert making.last_words(log) == "it has no log"
    log.write_text('{"event": "agent_started", "level": "info"}\n')
    assert making.last_words(log) == "its log says nothing"
    log.write_text('{"event": "lost", "level": "error", "error": "no way"}\n{"level": "info"}\n')
    assert making.last_words(log) == "lost no way"
    log.write_text("dlq-nodeagent: no driver\n")
    assert making.last_words(log) == "dlq-nodeagent: no driver"


def test_what_does_not_hold_without_root_is_said_once_in_words(box: Box) -> None:
    box.log("agent").write_text(
        '{"event": "no_cgroups", "why": "not writable", "level": "warning"}\n' * 2
        + '{"event": "gpus_not_exclusive", "why": "no filter", "level": "warning"}\n'
    )
    first, *rest = isolation(box)
    assert first.startswith("jobs run as ")
    assert [line.partition(" (")[0][:30] for line in rest] == [
        "memory, cores and processes of",
        "a job can open the GPUs of ano",
    ]


def test_the_fields_of_a_box_are_documented_in_their_order(box: Box) -> None:
    page = Path(__file__).resolve().parents[4] / "docs/reference/json.md"
    section = page.read_text().split("\n## Box\n")[1]
    facts = box_facts(box)
    assert re.findall(r"(?m)^\| `(\w+)`", section) == list(facts)
    assert (facts["state"], facts["keeper_pid"], facts["ranks_here"]) == ("down", None, 0)


def test_a_machine_that_joined_says_that_the_first_one_steers_its_jobs(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    assert asking.impact_of(box, []) == ""
    monkeypatch.setattr("dlq_cli.up.asking.jobs_here", lambda box: [17])
    assert "only the first machine can cancel them" in asking.impact_of(
        replace(box, joined=True), None
    )
    assert "the master does not answer" in asking.impact_of(box, None)


def test_the_unit_runs_the_keeper_and_leaves_jobs_alone(box: Box) -> None:
    made = units.units(box)
    assert list(made) == ["dlq-up-jobs.service", "dlq-up.service"]
    text = made["dlq-up.service"]
    assert "KillMode=process" in text
    assert f'dlq_cli.up.keeper "{box.home}"'.replace("%", "%%") in text
    jobs = made["dlq-up-jobs.service"]
    assert "Delegate=yes" in jobs
    assert f'dlq_cli.up.units "{box.home}"'.replace("%", "%%") in jobs
    assert "KillSignal=SIGKILL" in jobs


def test_before_the_jobs_of_a_unit_end_their_guards_are_killed(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(box, machine=platform.node()).save()
    with subprocess.Popen(["sleep", "3600"]) as guard:
        monkeypatch.setattr("dlq_cli.up.units.jobs_here", lambda known: [guard.pid])
        units.main(str(box.home))
        assert guard.wait(60.0) == -signal.SIGKILL


def test_jobs_of_a_unit_live_beside_it(tmp_path: Path) -> None:
    own, tree = tmp_path / "cgroup", tmp_path / "tree"
    app = "user.slice/user-1000.slice/user@1000.service/app.slice"
    own.write_text(f"0::/{app}/dlq-up.service\n")
    assert jobs_group("up", own, tree) == ""
    (tree / app / "dlq-up-jobs.service").mkdir(parents=True)
    assert jobs_group("up", own, tree) == f"/{app}/dlq-up-jobs.service"
    own.write_text("0::/user.slice/session-3.scope\n")
    assert jobs_group("up", own, tree) == ""


class Systemctl:
    """In the place of systemd: keeps the calls, and answers with a code."""

    def __init__(self, code: int = 0, stderr: str = "") -> None:
        self.calls: list[list[str]] = []
        self._code, self._stderr = code, stderr

    def __call__(self, words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.calls.append(words[2:])
        return subprocess.CompletedProcess(words, self._code, "", self._stderr)


def test_units_are_written_enabled_and_taken_away(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl, environ = Systemctl(), {"XDG_CONFIG_HOME": str(tmp_path / "c")}
    monkeypatch.setattr("dlq_cli.up.units.subprocess.run", systemctl)
    units.install(box, environ)
    assert units.is_installed(box, environ)
    assert ["enable", "dlq-up-jobs.service", "dlq-up.service"] in systemctl.calls
    assert units.is_current(box, environ)
    jobs = units.unit_dir(environ) / "dlq-up-jobs.service"
    jobs.write_text("of another release")
    assert not units.is_current(box, environ)
    units.remove(box, environ)
    assert not units.is_installed(box, environ)
    assert systemctl.calls[-1] == ["daemon-reload"]


def test_without_a_systemd_of_this_user_nothing_is_written(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl = Systemctl(1, "Failed to connect to bus: No medium found\n")
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "c")}
    monkeypatch.setattr("dlq_cli.up.units.subprocess.run", systemctl)
    with pytest.raises(ConfigError, match="No medium found"):
        units.install(box, environ)
    assert not units.is_installed(box, environ)


def test_the_words_about_linger_say_what_ends_with_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq_cli.up.units.LINGER", tmp_path)
    assert "loginctl enable-linger" in units.login_words(at_login=True)
    import os
    import pwd

    (tmp_path / pwd.getpwuid(os.geteuid()).pw_name).touch()
    assert "after you log out" in units.login_words(at_login=True)


def test_cores_for_jobs_without_gpus_reach_the_agent_and_leave_one_for_gpus(box: Box) -> None:
    here = len(os.sched_getaffinity(0))
    assert "DLQ_NODE__JOB_CPUS" not in environment_of(box, AGENT)
    given = environment_of(steps.with_cores(box, here - 1), AGENT)
    assert given["DLQ_NODE__JOB_CPUS"] == str(here - 1)
    with pytest.raises(InvalidRequest, match=f"{here - 1} at most"):
        steps.with_cores(box, here)
    assert steps.with_cores(replace(box, devices="none"), here).cores == here


@pytest.mark.parametrize(
    ("own", "force", "given_s"),
    [([300], False, 300), ([300], True, 30), ([5], True, 5), ([5, 20], True, 20)],
)
def test_jobs_may_save_for_their_own_grace_and_by_force_for_half_a_minute(
    own: list[int], force: bool, given_s: float
) -> None:
    jobs = [Job(job_id="1", grace_duration=Duration(seconds=each)) for each in own]
    assert asking.grace_s(jobs, force=force) == given_s
