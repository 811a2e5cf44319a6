"""`dlq up` on two booted hosts: units of a user's own systemd, sessions, reboots, a second machine.

The tests build on one another: each finds the box as the one before left it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.nspawn import two_hosts
from support.systemd_boxes import ENVIRONMENT, JOBS_UNIT, PARTS, RUNTIME, UNIT, USER, BoxHost
from support.waiting import wait_until

pytestmark = pytest.mark.systemd

# Notes every command line that it sees, as a curious user with `ps` would.
CURIOUS = """
import glob
seen = set()
with open("/root/seen", "w") as file:
    print("looks", flush=True)
    while True:
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as told:
                    line = told.read().replace(b"\\0", b" ").decode()
            except OSError:
                continue
            if line not in seen:
                seen.add(line)
                print(line, file=file, flush=True)
"""


@pytest.fixture(scope="module")
def machines(base: Path, wheel: Path, wheels: Path) -> Iterator[tuple[BoxHost, BoxHost]]:
    """`desk`, which gets a box, and `tower`, which joins it."""
    with two_hosts(base, ("desk", "tower"), {}, f"dlqup{os.getpid()}") as hosts:
        first, second = (BoxHost(host, wheel, wheels) for host in hosts)
        yield first, second


@pytest.fixture(scope="module")
def desk(machines: tuple[BoxHost, BoxHost]) -> BoxHost:
    return machines[0]


@pytest.fixture(scope="module")
def tower(machines: tuple[BoxHost, BoxHost]) -> BoxHost:
    return machines[1]


def test_a_box_is_a_unit_of_its_users_systemd_and_needs_no_root(desk: BoxHost) -> None:
    done = desk.login(
        "dlq up --devices fake:2 --at-login\n"
        "dlq run -G 1 -- sh -c 'echo $(id -un) on $(hostname)'\n"
        f"systemctl --user is-enabled {UNIT} {JOBS_UNIT}\n"
        f"systemctl --user show -p MainPID --value {UNIT}\n"
        "dlq up --status --json"
    )
    assert re.search(r"(?m)^up: cluster up-desk", done.out), done.out + done.err
    assert "Without linger it ends with your last session" in done.err
    assert "ada on desk\nenabled\n" in done.out
    (pid,) = re.findall(r"(?m)^(\d+)$", done.out)
    assert f'"keeper_pid":{pid},' in done.out
    desk.wait_logged_out()


def test_without_linger_it_ends_with_the_last_session_and_comes_with_the_next(
    desk: BoxHost,
) -> None:
    with desk.host.begun("exec cat", user=USER, login=True):
        job_id = desk.counting()
    wait_until(
        lambda: (
            desk.host.run("systemctl is-active user@1001", check=False).out != "active\n"
            and not desk.host.run(f"pgrep -u {USER} -f '{PARTS}'", check=False).out
        ),
        what="her systemd has ended, and her box and her job with it",
        timeout_s=120,
    )
    with desk.host.begun("exec cat", user=USER, login=True):
        desk.wait_up()
        desk.goes_on(job_id, 2)
        assert ends_of(desk, job_id) == ["node_lost"]
        desk.said(f"dlq cancel {job_id}; dlq wait {job_id} || true")


@pytest.fixture(scope="module")
def job(desk: BoxHost) -> str:
    """One that counts, in a box that lingers."""
    done = desk.login("loginctl enable-linger; dlq up --at-login")
    assert "it starts with this machine" in done.err
    return desk.counting("-w", "desk")


def test_with_linger_it_goes_on_after_its_user_has_logged_out(desk: BoxHost, job: str) -> None:
    wait_until(
        lambda: desk.host.read(f"loginctl show-user {USER} -p State --value") == "lingering",
        what="she has logged out",
    )
    desk.goes_on(job, 1)
    assert desk.facts()["state"] == "up"


@pytest.mark.parametrize("how", ["kill -s KILL --kill-who=main", "restart"])
def test_systemd_keeps_the_keeper_and_a_job_does_not_notice(
    desk: BoxHost, job: str, how: str
) -> None:
    before = desk.facts()
    desk.systemctl(f"{how} {UNIT}")
    wait_until(
        lambda: desk.property_of(UNIT, "MainPID") not in ("0", str(before["keeper_pid"])),
        what="there is another keeper",
    )
    after = desk.wait_up()
    assert str(after["keeper_pid"]) == desk.property_of(UNIT, "MainPID")
    former = {each["pid"] for each in before["parts"]}
    assert not former & {each["pid"] for each in after["parts"]}
    desk.goes_on(job, 1)
    assert ends_of(desk, job) == []


def test_another_machine_joins_by_the_printed_command_and_no_list_of_processes_shows_its_token(
    desk: BoxHost, tower: BoxHost
) -> None:
    command = desk.login("dlq up --invite --address desk").out.strip()
    found = re.fullmatch(r"echo (\S+) \| dlq up --join desk:7321 --token -", command)
    assert found, command
    (tower.host.root() / f"home/{USER}/join.sh").write_text(
        f"loginctl enable-linger\n{command} --devices fake:3 --at-login\n"
    )
    (tower.host.root() / "root/curious.py").write_text(CURIOUS)
    with tower.host.begun("exec python3 curious.py") as curious:
        assert curious.hear() == "looks"
        tower.login(". ~/join.sh")
    seen = (tower.host.root() / "root/seen").read_text()
    assert "up --join desk:7321 --token - --devices fake:3" in seen
    assert found[1] not in seen
    assert tower.wait_up()["joined"] is True
    # Only the tower has three.
    assert desk.said("dlq run -G 3 -- sh -c 'echo $(id -un) on $(hostname)'") == "ada on tower"


def test_a_port_of_a_job_on_the_other_machine_comes_through_the_relay(desk: BoxHost) -> None:
    serve = "python3 -m http.server --bind 127.0.0.1 --directory /etc 8765"
    job_id = desk.said(f"dlq submit --parsable -w tower -G 3 -- {serve}")
    wait_until(
        lambda: "running" in desk.said(f"dlq status {job_id}"), what="the job runs on the tower"
    )
    with desk.host.begun(
        f"{ENVIRONMENT}\nexec dlq forward -v {job_id} 8765:9765", user=USER
    ) as forward:
        assert forward.hear() == f"127.0.0.1:9765 -> port 8765 of job {job_id}"
        assert forward.hear_error() == "dlq: bytes go through the relay at 127.0.0.1:7323"
        fetch = "urllib.request.urlopen('http://127.0.0.1:9765/hostname').read().decode()"
        look = f'python3 -c "import urllib.request; print({fetch})"'
        assert wait_until(lambda: desk.host.run(look, check=False).out.strip(), what="it serves")
        assert desk.host.read(look) == "tower"
    desk.said(f"dlq cancel --kill {job_id}; dlq wait {job_id} || true")


def test_a_machine_that_has_joined_is_a_node_again_after_its_reboot(
    desk: BoxHost, tower: BoxHost
) -> None:
    job_id = desk.said("dlq submit --parsable -G 3 -- python3 ~/count.py")
    tower.goes_on(job_id, 1)
    tower.host.reboot()
    tower.goes_on(job_id, 2)
    assert ends_of(desk, job_id) == ["node_lost"]
    desk.said(f"dlq cancel {job_id}")


def test_it_starts_with_the_machine_and_a_job_that_answers_a_shutdown_runs_again(
    desk: BoxHost, job: str
) -> None:
    held = desk.said("dlq submit --parsable --hold -G 1 -- true")
    desk.host.reboot()
    desk.wait_up()
    desk.goes_on(job, 2)
    assert desk.host.read("loginctl list-sessions --no-legend") == ""
    refusals = "grep -c 'another agent speaks' ~/.local/state/dlq/up/logs/agent.log || true"
    assert desk.said(refusals).strip() == "0"
    assert (desk.shown(job)["state"], ends_of(desk, job)) == ("running", ["node_lost"])
    assert desk.shown(held)["state"] == "held"


def test_daemons_that_are_down_leave_jobs_and_find_them_again(desk: BoxHost, job: str) -> None:
    asked = desk.login("dlq down", check=False)
    assert (asked.status, f"1 job runs ({job})" in asked.err) == (2, True), asked.err
    desk.login("dlq down --leave-jobs")
    assert desk.property_of(UNIT, "ActiveState") == "inactive"
    assert desk.facts()["state"] == "down"
    desk.goes_on(job, 2)
    desk.login("dlq up")
    desk.goes_on(job, 2)
    assert str(desk.facts()["keeper_pid"]) == desk.property_of(UNIT, "MainPID")


def test_down_ends_it_until_the_next_start_of_the_machine(desk: BoxHost, job: str) -> None:
    done = desk.login("dlq down --force")
    assert "it starts again at your next login" in done.err
    assert desk.property_of(UNIT, "ActiveState") == "inactive"
    assert desk.host.read(f"pgrep -u {USER} -f '{PARTS}' || true") == ""
    desk.host.reboot()
    desk.wait_up()
    assert desk.shown(job)["state"] == "cancelled"


def test_units_that_are_taken_away_start_nothing(desk: BoxHost) -> None:
    desk.login("dlq up --not-at-login")
    assert desk.facts()["state"] == "up"
    left = f"find ~/.config/systemd -name '*dlq*'; {RUNTIME}; systemctl --user list-unit-files"
    assert "dlq" not in desk.said(left)
    desk.host.reboot()
    assert desk.host.read("loginctl list-users --no-legend").split()[1] == USER
    assert desk.facts()["state"] == "down"
    desk.login("dlq up")
    assert desk.facts()["state"] == "up"


def ends_of(desk: BoxHost, job_id: str) -> list[str]:
    """How the attempts of a job have ended that are over."""
    attempts = desk.shown(job_id)["attempts"]
    return [each["state"] for each in attempts[:-1]]
