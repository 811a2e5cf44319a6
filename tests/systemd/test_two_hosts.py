"""The runbook on two real systemd hosts, in its order: install, run, restart, upgrade, remove.

The tests build on one another: each finds the cluster as the one before left it, with one gang that
counts from the third test to the last but one and must never notice anything.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_common.identity.pki import Role, parse_identity
from support.nspawn import Host, two_hosts
from support.runbook import Runbook
from support.systemd_hooks import hooked_master
from support.systemd_relay import RelayOfHead
from support.systemd_services import HOOK, NOTIFY, WEB, Notifier, PageOfHead
from support.systemd_site import AGENT, MASTER, Gang, Site
from support.waiting import wait_until
from support.wheels import build_wheel

pytestmark = pytest.mark.systemd

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted(path.name for path in (ROOT / "deploy/systemd").iterdir())
# What `systemd-analyze security` may say at most, from 0 to 10; the runbook states and explains it.
EXPOSURE = {
    "dlq-master.service": 2.0,
    "dlq-backup.service": 2.0,
    "dlq-hooks@.service": 2.0,
    "dlq-jobs.service": 2.0,
    "dlq-nodeagent.service": 9.0,
    "dlq-notify.service": 2.0,
    "dlq-provider@.service": 2.5,
    "dlq-web.service": 2.0,
}
NEVER_STARTS = "0.2.2"
# Files that come and go with any service, user or package, and are nobody's.
NOISE = re.compile(
    r"/(proc|sys|tmp|run/(systemd|log|udev|lock|agetty.reload)|var/(log|tmp|cache|lib/systemd)|home/ada|shared)(/|$)"
    r"|/etc/(passwd|group|shadow|gshadow|subuid|subgid)-$|/etc/\.pwd\.lock$|/root/\.config(/|$)"
    r"|/root/\.(bash_history|cache)(/|$)"
)


def installed(unit: str) -> str:
    """The unit by a name that can start: of a template, an instance."""
    return unit.replace("@.", "@1.")


def files_of(host: Host) -> set[str]:
    """Every path on its disk and in /run that could be ours."""
    listed = host.read("find / /run -xdev 2>/dev/null || true").splitlines()
    return {path for path in listed if not NOISE.search(path)}


@pytest.fixture(scope="module")
def releases(scratch: Path, wheel: Path) -> dict[str, Path]:
    """Wheels by version: as the runbook names them, and one whose agent does not start."""
    scripts = [block.script for block in Runbook(ROOT / "docs/running").blocks]
    named = re.findall(r"dlq-([0-9.]+)-py3", "".join(scripts))
    this, following = sorted(set(named))
    assert wheel.name.startswith(f"dlq-{this}-")
    return {
        this: wheel,
        following: build_wheel(scratch, version=following),
        NEVER_STARTS: build_wheel(scratch, version=NEVER_STARTS, broken=True),
    }


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """The file system that all hosts have, at /shared."""
    place = Path(tempfile.mkdtemp(prefix="dlq-systemd-shared-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def site(base: Path, releases: dict[str, Path], wheels: Path, shared: Path) -> Iterator[Site]:
    tag = f"dlq{os.getpid()}"
    with two_hosts(base, ("head", "gpu01"), {shared: "/shared"}, tag) as (head, gpu01):
        site = Site(head, gpu01, Runbook(ROOT / "docs/running"), shared)
        site.prepare([*releases.values(), ROOT / "deploy/install.sh"], wheels)
        yield site


@pytest.fixture(scope="module")
def before(site: Site) -> dict[str, set[str]]:
    """The files of each host before anything of ours."""
    return {host.name: files_of(host) for host in site.hosts}


@pytest.fixture(scope="module")
def gang(site: Site) -> Gang:
    return Gang(site)


@pytest.fixture(scope="module")
def page(site: Site) -> PageOfHead:
    return PageOfHead(site)


@pytest.fixture(scope="module")
def notifier(site: Site) -> Notifier:
    return Notifier(site)


@pytest.fixture(scope="module")
def relay(site: Site) -> RelayOfHead:
    return RelayOfHead(site)


@pytest.mark.usefixtures("before")
def test_the_documented_commands_make_a_cluster_of_two_nodes(site: Site) -> None:
    site.follow("Install", 0)
    site.follow("Install", 1)
    assert "Logged in to lab as root (admin)" in site.follow("The master")
    assert "active (running)" in site.follow("The master", 1)
    for host in site.hosts:
        token = site.follow("A node").split()[-1]
        site.follow("A node", 1, typed=f"{token}\n", on=host)
    site.wait_up("head", "gpu01")
    assert "gpu01" in site.follow("A node", 2)
    for host in site.hosts:
        assert site.property_of(host, AGENT, "StatusText") == f"node {host.name}"
    assert site.property_of(site.head, MASTER, "StatusText") == "serving lab at head:7320"


def test_a_first_job_runs_on_both(site: Site) -> None:
    out = site.follow("A first job")
    assert sorted(re.findall(r"rank \d is on (\w+)", out)) == ["gpu01", "head"], out


def test_a_web_server_is_woken_by_its_socket_and_users_sign_in_by_a_link(
    site: Site, page: PageOfHead
) -> None:
    site.follow("Install the server")
    page.configure()
    site.follow("Install the server", 1)
    assert site.property_of(site.head, WEB, "StatusText") == "serving https://head"
    site.head.run(f"systemctl stop {WEB}")
    assert site.property_of(site.head, WEB, "ActiveState") == "inactive"
    page.sign_in()
    assert site.property_of(site.head, WEB, "ActiveState") == "active"
    site.wait_up("head", "gpu01")
    job_id = site.head.read("dlq submit --parsable --hold --wrap true", user="ada")
    told = json.loads(page.read(f"/v1/jobs/{job_id}"))["job"]
    assert told["state"] == site.shown(job_id)["state"]
    for path in ("/", "/nodes", "/gpus", "/static/style.css"):
        assert len(page.read(path)) > 1000
    assert site.head.read("stat -c '%a %U' /var/lib/dlq-web") == "700 dlq-web"
    site.head.run(f"dlq cancel {job_id}", user="ada")


def test_a_notifier_calls_the_hook_of_a_user(site: Site, notifier: Notifier) -> None:
    site.follow("Set it up")
    notifier.configure()
    site.follow("Set it up", 1)
    # Its certificate is of its own role: the broker gave it, by its account alone.
    made = site.head.read("cat /var/lib/dlq-notify/identity/identity.crt")
    identity = parse_identity(made.encode())
    assert (identity.name, identity.role) == ("dlq-notify", Role.NOTIFIER)
    site.head.run(f"dlq notify add webhook {HOOK} --on ended", user="ada")
    assert ended_job(site, notifier)["user"] == "ada"


def ended_job(site: Site, notifier: Notifier) -> dict[str, object]:
    """The call about a job of ada's, which ends now."""
    job_id = site.head.read("dlq submit --parsable -G 1 --wrap true", user="ada")
    return notifier.tells(job_id)


def test_hooks_run_in_a_unit_of_their_own(site: Site) -> None:
    with hooked_master(site) as hooks:
        done = hooks.submit("tame")
        assert "hook on_submit changed time limit from none to 1h" in done.err
        (first,) = hooks.processes()
        assert site.head.read(f"stat -c %U /proc/{first}") == "dlq-hooks"
        assert "memory" in site.head.read("dlq admin hooks show")
        assert hooks.submit("prowl").err.count("hook on_submit: all walls stand") == 1

        site.head.run(f"kill -KILL {first}")
        assert hooks.submit("tame").status == 0
        assert hooks.processes() != [first]

        hung = hooks.submit("hang")
        assert (hung.status != 0, "it took longer than 2 s" in hung.err) == (True, True), hung.err
        assert hooks.submit("tame").status == 0
        # The one that hung is ended by the kernel's alarm, a little later.
        wait_until(lambda: len(hooks.processes()) == 1, what="only one process is left")

        site.head.run("systemctl stop dlq-hooks.socket 'dlq-hooks@*.service'")
        gone = hooks.submit("tame")
        assert "without it no job is accepted" in gone.err
        site.head.run("systemctl start dlq-hooks.socket")
        site.head.run(f"systemctl restart {MASTER}")
        assert hooks.submit("tame").status == 0
        exposed = site.head.read("systemd-analyze security --no-pager dlq-hooks@1.service || true")
        (level,) = re.findall(r"Overall exposure level .*: ([0-9.]+)", exposed)
        assert float(level) <= 2.0


def test_bytes_of_a_forward_go_through_a_relay_in_the_masters_unit(
    site: Site, relay: RelayOfHead
) -> None:
    way = "dlq: bytes go through the relay at head:7323"
    with (
        relay.echoing("gpu01") as (job_id, port),
        relay.forwarded(job_id, port) as (forward, talk),
    ):
        assert forward.hear_error() == way
        first = relay.wait_for_another("")
        master = site.property_of(site.head, MASTER, "MainPID")
        assert relay.walls(first) == relay.walls(master)

        talk.say(str(64 << 20))
        assert talk.hear() == "sends"
        site.head.run(f"kill -KILL {first}")
        assert talk.hear() == "the same"
        assert forward.hear_error().startswith("dlq: bytes go through the master: ")
        assert forward.hear_error() == way
        relay.wait_for_another(first)
        talk.say("1000000")
        assert (talk.hear(), talk.hear()) == ("sends", "the same")
        assert site.property_of(site.head, MASTER, "MainPID") == master


def test_ssh_from_one_host_into_a_job_of_the_other_goes_through_the_relay(
    site: Site, relay: RelayOfHead
) -> None:
    relay.take_identity_to(site.gpu01)
    with relay.echoing("head") as (job_id, _):
        look = f"dlq ssh {job_id} 'hostname; id -un; echo $DLQ_JOB_ID; exit 3'"
        done = site.gpu01.run(look, user="ada", check=False)
        assert (done.status, done.out.split(), done.err) == (3, ["head", "ada", job_id], "")
        with site.gpu01.begun(f"exec dlq ssh {job_id} cat", user="ada") as session:
            session.say("before")
            assert session.hear() == "before"
            first = relay.wait_for_another("")
            site.head.run(f"kill -KILL {first}")
            session.say("after")
            assert session.hear() == "after"
            relay.wait_for_another(first)
            session.say("again")
            assert session.hear() == "again"
    site.gpu01.run("rm -rf .config/dlq", user="ada")


@pytest.mark.parametrize("unit", [WEB, NOTIFY])
def test_a_service_for_users_comes_back_after_a_kill(
    site: Site, page: PageOfHead, notifier: Notifier, unit: str
) -> None:
    for how in ("systemctl kill -s KILL --kill-who=main {unit}", "kill -STOP {pid}"):
        pid = site.property_of(site.head, unit, "MainPID")
        site.head.run(how.format(unit=unit, pid=pid))
        if unit == WEB and "KILL" in how:
            assert page.read("/livez")  # this caller waits in the socket
        wait_for_another(site, site.head, unit, pid)
    if unit == WEB:
        page.sign_in()
        assert page.read("/v1/jobs")
    else:
        assert ended_job(site, notifier)["user"] == "ada"


def test_deadlines_are_promised_or_refused_with_an_offer_and_questions_are_answered(
    site: Site,
) -> None:
    # By the system's own Python. Whoever cannot read what the master tells promises and foresees
    # nothing.
    def submit(deadline: str) -> tuple[int, str]:
        words = f"--deadline {deadline} --work 1h -G 2 -- sleep 900"
        done = site.head.run(f"dlq submit --wait-admission {words}", user="ada", check=False)
        return done.status, done.out + done.err

    code, promised = submit("3h")
    assert (code, " is guaranteed" in promised) == (0, True), promised
    code, refused = submit("65m")  # an hour of work, its margin and its pauses take longer
    assert (code, " is not guaranteed" in refused) == (6, True), refused
    assert "the earliest that could be promised: --deadline" in refused

    command = "dlq estimate --json -G 2 -t 1h -- sleep 900"
    assert json.loads(site.head.read(command, user="ada"))["missing"] is None
    waits = site.head.read("dlq submit --parsable -G 2 -t 1h -- sleep 900", user="ada")
    # The twin looks at a state that is at most a minute old.
    what_if = "dlq what-if --json --add-nodes 1x2"
    wait_until(
        lambda: json.loads(site.head.read(what_if))["starts"],
        what="the job that waits is in the answer",
        timeout_s=180,
    )
    site.head.run(f"dlq cancel {waits}", user="ada")
    planner = site.head.read("dlq admin policy show")
    assert not re.search(r"failed [1-9]|of no use [1-9]", planner), planner
    for said in (promised, refused):
        (job_id,) = re.findall(r"(?m)^job (\d+) is ", said)
        site.head.run(f"dlq cancel {job_id}; dlq wait {job_id} || true", user="ada")


def test_systemd_finds_nothing_wrong_with_the_units(site: Site) -> None:
    for host, units in (
        (site.head, UNITS),
        (site.gpu01, ["dlq-nodeagent.service", "dlq-jobs.service"]),
    ):
        paths = " ".join(f"/etc/systemd/system/{unit}" for unit in units)
        done = host.run(f"systemd-analyze verify --man=no {paths}", check=False)
        assert (done.status, done.out, done.err) == (0, "", "")
        assert host.read("systemctl list-units --failed --no-legend 'dlq-*'") == ""


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.endswith(".service")])
def test_no_service_is_more_exposed_than_the_runbook_says(site: Site, unit: str) -> None:
    bound = EXPOSURE[unit]
    assert f"most {bound}" in (ROOT / "docs/running/services.md").read_text()
    command = (
        f"systemd-analyze security --no-pager --threshold={round(bound * 10)} {installed(unit)}"
    )
    done = site.head.run(command, check=False)
    assert done.status == 0, done.out


def test_a_job_sees_the_host_as_its_user_does(site: Site, gang: Gang) -> None:
    assert {facts["host"] for facts in gang.facts} == {"head", "gpu01"}
    for rank, facts in enumerate(gang.facts):
        host = gang.host_of(rank)
        assert facts["mount_namespace"] == host.read("readlink /proc/1/ns/mnt")
        assert host.read("cat /tmp/of-ada /home/ada/of-ada") == f"{rank}.1" * 2
        assert (facts["uid"], facts["umask"]) == (1001, 0o022)
        # What the host's own first process has (systemd-nspawn gives it some), and not one more.
        assert facts["seccomp_filters"] == host.read(
            "sed -n 's/^Seccomp_filters:\t//p' /proc/1/status"
        )
        assert facts["no_new_privs"] == "1"
        assert int(facts["capabilities"], 16) == 0
        assert facts["oom_score_adj"] == 0
        assert facts["files"][0] == facts["files"][1]
        assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "INVOCATION_ID"} & set(facts["environment"])


def test_a_jobs_groups_are_not_the_agents(gang: Gang) -> None:
    for facts in gang.facts:
        groups = dict(line.split(":", 2)[1:] for line in facts["cgroups"])
        for kind in ("memory", "pids", "cpu"):
            assert groups[kind].startswith("/system.slice/dlq-jobs.service/dlq/"), groups


@pytest.mark.parametrize("how", ["systemctl restart", "systemctl kill -s KILL --kill-who=main"])
def test_the_gang_does_not_notice_that_its_agents_are_restarted(
    site: Site, gang: Gang, how: str
) -> None:
    for host in site.hosts:
        pid = site.property_of(host, AGENT, "MainPID")
        host.run(f"{how} {AGENT}")
        wait_for_another(site, host, AGENT, pid)
    gang.goes_on()
    site.wait_up("head", "gpu01")
    gang.running()


def test_the_gang_does_not_notice_that_its_agents_are_away(site: Site, gang: Gang) -> None:
    for host in site.hosts:
        host.run(f"systemctl stop {AGENT}")
        assert site.property_of(host, AGENT, "ActiveState") == "inactive"
    gang.goes_on()
    for host in site.hosts:
        host.run(f"systemctl start {AGENT}")
    site.wait_up("head", "gpu01")
    gang.running()


def test_the_group_of_the_jobs_cannot_be_restarted_by_mistake(site: Site, gang: Gang) -> None:
    done = site.gpu01.run("systemctl restart 'dlq-*.service'", check=False)
    assert "Operation refused" in done.err
    site.wait_up("gpu01")
    gang.running()


@pytest.mark.parametrize("unit", [AGENT, MASTER])
def test_a_daemon_that_hangs_is_killed_by_its_watchdog_and_comes_back(
    site: Site, gang: Gang, unit: str
) -> None:
    pid = site.property_of(site.head, unit, "MainPID")
    site.head.run(f"kill -STOP {pid}")
    wait_for_another(site, site.head, unit, pid)
    log = site.head.read(f"journalctl -u {unit} --grep 'Watchdog timeout' -o cat")
    assert "Watchdog timeout" in log
    gang.goes_on()
    site.wait_up("head", "gpu01")
    gang.running()


def test_who_logs_in_while_the_master_restarts_waits(site: Site, gang: Gang) -> None:
    site.head.run(f"systemctl restart --no-block {MASTER}")
    assert "Logged in" in site.head.read("dlq login", user="ada")
    site.wait_up("head", "gpu01")
    gang.running()


def test_an_upgrade_restarts_the_daemons_under_the_gang(
    site: Site, gang: Gang, releases: dict[str, Path]
) -> None:
    # One that was cut short before leaves a half-made release, which is made anew.
    digest = hashlib.sha256(releases["0.2.1"].read_bytes()).hexdigest()[:8]
    half_made = site.head.root() / f"opt/dlq/releases/0.2.1-{digest}/bin"
    half_made.mkdir(parents=True)
    (half_made / "python3").write_text("half a file")

    pids = [site.property_of(host, AGENT, "MainPID") for host in site.hosts]
    served = {unit: site.property_of(site.head, unit, "MainPID") for unit in (WEB, NOTIFY)}
    assert site.follow("Upgrade, and back").split()[-1] == "0.2.1"
    for unit, old in served.items():
        assert site.property_of(site.head, unit, "ActiveState") == "active"
        now = site.property_of(site.head, unit, "MainPID")
        assert now != old
        command = site.head.read(f"tr '\\0' ' ' < /proc/{now}/cmdline")
        assert f"/opt/dlq/releases/0.2.1-{digest}/bin/" in command, command
    for host, pid in zip(site.hosts, pids, strict=True):
        assert site.property_of(host, AGENT, "MainPID") != pid
        at = host.read("readlink -f /usr/local/bin/dlq-nodeagent")
        assert at == f"/opt/dlq/releases/0.2.1-{digest}/bin/dlq-nodeagent"
    assert site.head.read("ls /var/backups/dlq").startswith("dlq-")
    site.wait_up("head", "gpu01")
    gang.running()


def test_a_release_that_does_not_start_is_taken_back_by_itself(site: Site, gang: Gang) -> None:
    wheel = f"/root/dlq-{NEVER_STARTS}-py3-none-manylinux_2_34_x86_64.whl"
    done = site.gpu01.run(
        f"sh /root/install.sh --wheel {wheel} --find-links /root/wheels", check=False
    )
    assert done.status == 1
    assert re.search(r"release 0\.2\.2-\w+ does not start; 0\.2\.1-\w+ serves again", done.err)
    assert site.gpu01.read("dlq version --client").endswith("0.2.1")
    site.wait_up("gpu01")
    gang.running()


def test_the_same_again_changes_nothing_and_keeps_what_jobs_run_from(
    site: Site, gang: Gang
) -> None:
    look = "readlink /opt/dlq/current /opt/dlq/previous; ls /opt/dlq/releases"
    for host in site.hosts:
        before = host.read(look)
        site.follow("Upgrade, and back", on=host)
        assert host.read(look) == before
    # Neither current nor previous there; the gang's shim was started from it.
    assert "0.2.0-" in site.gpu01.read("ls /opt/dlq/releases")
    assert "0.2.0-" not in site.gpu01.read("readlink /opt/dlq/current /opt/dlq/previous")
    site.wait_up("head", "gpu01")
    gang.running()


def test_the_way_back_is_one_command(site: Site, gang: Gang) -> None:
    # Its release before is the one that did not start, which it finds out.
    done = site.gpu01.run(site.runbook.take("Upgrade, and back", 1).script, check=False)
    assert done.status == 1
    site.follow("Upgrade, and back", 1, on=site.head)
    assert site.head.read("dlq version --client").endswith("0.2.0")
    site.wait_up("head", "gpu01")
    gang.running()


def test_the_way_back_leads_behind_a_release_that_knew_no_services_for_users(
    site: Site, page: PageOfHead, notifier: Notifier, gang: Gang
) -> None:
    before = site.head.root() / f"opt/dlq/{os.readlink(site.head.root() / 'opt/dlq/previous')}"
    for name in ("dlq-web", "dlq-notify"):
        for path in ("bin", "share/dlq/systemd", "share/dlq/sysusers.d", "share/dlq/tmpfiles.d"):
            for one in (before / path).glob(f"{name}*"):
                one.unlink()
    said = site.head.run("sh /root/install.sh --roll-back").out
    assert f"this release has no {WEB}: it is stopped" in said
    assert site.property_of(site.head, MASTER, "ActiveState") == "active"
    there = site.head.read("cd /etc/systemd/system; ls -p | grep -v / | grep dlq").split()
    assert not {WEB, NOTIFY, "dlq-web.socket"} & set(there)
    site.head.run("sh /root/install.sh --roll-back")
    site.head.run(f"systemctl start dlq-web.socket {WEB} {NOTIFY}")
    page.sign_in()
    assert ended_job(site, notifier)["user"] == "ada"
    notifier.end_receiver()
    site.wait_up("head", "gpu01")
    gang.running()


def test_a_node_gets_a_new_key_under_its_jobs(site: Site, gang: Gang) -> None:
    key = site.gpu01.read("sha256sum /var/lib/dlq-agent/identity.key")
    token = site.follow("Renew by hand").split()[-1]
    site.follow("Renew by hand", 1, typed=f"{token}\n")
    assert site.gpu01.read("sha256sum /var/lib/dlq-agent/identity.key") != key
    site.wait_up("gpu01")
    gang.running()


def test_a_master_is_restored_from_its_backup_under_the_gang(site: Site, gang: Gang) -> None:
    assert "dlq-" in site.follow("Back up now")
    assert site.head.read("stat -c '%a %U' /var/backups/dlq/dlq-*").splitlines()[-1] == "700 dlq"
    lost = site.head.read("dlq submit --parsable --hold --wrap true", user="ada")
    site.follow("Restore")
    site.wait_up("head", "gpu01")
    assert site.head.run(f"dlq show {lost}", user="ada", check=False).status != 0
    gang.running()


def test_what_runs_jobs_is_not_removed(site: Site, gang: Gang) -> None:
    done = site.gpu01.run(site.runbook.take("Remove").script, check=False)
    assert done.status == 1
    assert "1 ranks of jobs run here: drain the node first" in done.err
    gang.running()


def test_the_gang_ends_well_after_all_that(gang: Gang) -> None:
    out = gang.stop()
    counted = [int(number) for number in re.findall(r"rank \d counted (\d+) steps", out)]
    assert len(counted) == 2, out
    assert min(counted) > 100
    assert gang.shown()["state"] == "completed"
    assert len(gang.shown()["attempts"]) == 1


OBLIGING = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open(f"/shared/gang/obliging.{os.environ['DLQ_ATTEMPT']}.{os.environ['DLQ_NODE_RANK']}", "w").close()
time.sleep(3600)
"""  # noqa: E501


def test_a_job_whose_host_reboots_has_neither_completed_nor_failed_and_starts_again(
    site: Site, gang: Gang
) -> None:
    # Told to leave by SIGTERM, as at a shutdown, it ends with 0: that must not be taken for
    # success.
    (site.shared / "obliging.py").write_text(OBLIGING)
    words = "-N 2 --gpus-per-node 1 -- python3 /shared/obliging.py"
    job_id = site.head.read(f"dlq submit --parsable {words}", user="ada")

    def begun(attempt: int) -> bool:
        return len(list(gang.place.glob(f"obliging.{attempt}.*"))) == 2

    wait_until(lambda: begun(1), what="both ranks have begun")
    site.gpu01.reboot()
    assert site.property_of(site.gpu01, AGENT, "ActiveState") == "active"
    try:
        wait_until(lambda: begun(2), what="both have begun again", timeout_s=120)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{site.story(job_id)}") from None
    shown = site.shown(job_id)
    assert (shown["state"], shown["attempts"][0]["state"]) == ("running", "node_lost")
    site.head.run(f"dlq cancel {job_id}; dlq wait {job_id} || true", user="ada")


def test_a_web_server_that_is_taken_away_lets_nobody_in(site: Site) -> None:
    site.follow("Remove the server")
    assert site.property_of(site.head, WEB, "ActiveState") == "inactive"
    assert site.head.read("ss -Hltn 'sport = :443'") == ""


def test_nothing_of_it_is_left_when_it_is_removed(site: Site, before: dict[str, set[str]]) -> None:
    wait_until(
        lambda: not site.gpu01.run("pgrep -x dlq-shim", check=False).out, what="the shims have left"
    )
    site.follow("Remove")
    site.follow("Remove", 1)
    assert set(site.nodes()) == {"head"}
    site.follow("Remove", 2)
    for host in site.hosts:
        assert sorted(files_of(host) - before[host.name]) == []
        assert host.read("systemctl list-units --all --no-legend 'dlq*'") == ""
        assert host.read("systemctl list-unit-files --no-legend 'dlq*' || true") == ""
        accounts = "dlq dlq-web dlq-notify dlq-provider dlq-hooks"
        assert host.read(f"getent passwd {accounts} || true; getent group {accounts} || true") == ""
        assert host.read("find /sys/fs/cgroup -name '*dlq*'") == ""
        assert host.read("ps -eo args | grep '[d]lq' || true") == ""
        mounts = host.read("awk '$2 ~ /dlq/' /proc/mounts")
        assert mounts == ""


def test_every_command_of_the_runbook_has_been_run(site: Site) -> None:
    assert site.runbook.unused() == []


def wait_for_another(site: Site, host: Host, unit: str, pid: str) -> None:
    """Wait until the unit serves again, with another process."""

    def is_another() -> bool:
        active = site.property_of(host, unit, "ActiveState") == "active"
        return active and site.property_of(host, unit, "MainPID") not in ("0", pid)

    wait_until(is_another, what=f"{unit} on {host.name} is another process", timeout_s=90)
