"""Nothing of a running job and its steps is told to another user of the host, by any command."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from strangers.site import Account
from support.waiting import wait_until

SECRET = "kestrel7731"
SCRIPT = f"""\
#!/bin/sh
#SBATCH --job-name={SECRET}-name --comment={SECRET}-comment --gres=gpu:1
# {SECRET}-script
export {SECRET}=1
srun --job-name={SECRET}-step sh -c 'echo {SECRET}-out; echo up > up; sleep 600' {SECRET}-word
"""


@pytest.fixture(scope="module")
def job(accounts: dict[str, Account]) -> Iterator[str]:
    """A running job of the first account, with a step."""
    owner = accounts["dlq"]
    owner.write(f"{SECRET}.sh", SCRIPT)
    said = owner.run("sbatch", "--parsable", f"{SECRET}.sh", f"{SECRET}-argument")
    owner.until("up")
    yield said.stdout.strip()
    owner.run("scancel", said.stdout.strip())


READING = (
    "squeue -a", "squeue -o %all -h", "squeue -O Name:40,Command:40,Comment:40",
    "squeue -s -o %60j", "squeue --json", "squeue -s",
    "squeue -j {job}",
    "sacct -a -X -P -o ALL", "sacct -a -P -o ALL", "sacct -a --json", "sacct -j {job} -P -o ALL",
    "scontrol show job {job}", "scontrol show job", "scontrol show step {job}.0",
    "scontrol show step", "scontrol write batch_script {job} -", "scontrol listpids {job}",
    "sstat -a -j {job}", "sdiag", "sshare -a", "sacctmgr show user", "sinfo --json",
    "scontrol show node --json", "dlq status -a", "dlq status -a --json", "dlq show {job}",
    "dlq show {job} --json", "dlq logs {job}", "dlq events", "dlq events {job}", "dlq why {job}",
    "dlq history", "dlq nodes --json", "dlq usage", "dlq queues --json",
)  # fmt: skip


@pytest.mark.parametrize("command", READING)
def test_another_user_reads_nothing_of_it(
    accounts: dict[str, Account], job: str, command: str
) -> None:
    done = accounts["dlq-other"].run(*command.format(job=job).split(), check=False)
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "command",
    ["squeue -O Name:40", "squeue -s -o %60j", "sacct -P -o ALL", "scontrol show job {job}",
     "dlq logs {job}", "scontrol write batch_script {job} -", "scontrol show step {job}.0",
     "dlq show {job} --json"],
)  # fmt: skip
def test_its_owner_reads_it(accounts: dict[str, Account], job: str, command: str) -> None:
    """So the commands of the tests here have something to tell."""
    owner = accounts["dlq"]
    wait_until(
        lambda: SECRET in owner.run(*command.format(job=job).split()).stdout,
        what=f"{command} tells of it", timeout_s=30.0,
    )  # fmt: skip


ACTING = (
    "scancel {job}", "scancel {job}.0", "scancel -s KILL {job}", "scancel -b -s TERM {job}",
    "scontrol requeue {job}", "scontrol hold {job}", "scontrol update JobId={job} TimeLimit=1",
    "srun --jobid={job} --overlap id", "sattach {job}.0", "dlq exec {job} -- id",
    "dlq cancel -y {job}", "dlq pause -y {job}", "dlq attach {job}", "dlq signal {job} TERM",
)  # fmt: skip


@pytest.mark.parametrize("command", ACTING)
def test_another_user_changes_nothing_of_it(
    accounts: dict[str, Account], job: str, command: str
) -> None:
    owner, other = accounts["dlq"], accounts["dlq-other"]
    done = other.run(*command.format(job=job).split(), check=False)
    assert SECRET not in done.stdout + done.stderr
    assert f"uid={owner.who.pw_uid}" not in done.stdout
    assert owner.run("squeue", "-h", "-o", "%T", "-j", job).stdout == "RUNNING\n"
    assert owner.run("squeue", "-h", "-o", "%l", "-j", job).stdout == "UNLIMITED\n"


def test_another_user_of_the_host_reads_no_secret_of_its_processes_and_files(
    accounts: dict[str, Account], job: str
) -> None:
    """The variables of its processes have the key by which ranks know each other."""
    other = accounts["dlq-other"]
    look = (
        "for p in /proc/[0-9]*; do cat $p/environ; ls -l $p/fd; readlink $p/cwd; done 2>/dev/null;"
        f"find {accounts['dlq'].home.parent} -name 'steps*' -o -name beat -o -name stdin"
        " -o -name plan 2>/dev/null | while read f; do cat $f; done 2>/dev/null; true"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", look], user=other.who.pw_uid, group=other.who.pw_gid, extra_groups=[],
        capture_output=True, check=True, cwd="/tmp", stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert SECRET.encode() not in done.stdout
    assert b"DLQ_STEP_KEY" not in done.stdout


def test_the_commands_servers_socket_is_closed_to_others(accounts: dict[str, Account]) -> None:
    owner, other = accounts["dlq"], accounts["dlq-other"]
    owner.run("squeue")
    at = Path(owner.home) / ".config" / "dlq" / "run"
    words = ["/bin/sh", "-c", f"ls {at}; cd {at}"]
    done = subprocess.run(
        words, user=other.who.pw_uid, group=other.who.pw_gid, extra_groups=[], cwd="/tmp",
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert done.stdout == b""


def test_nothing_of_a_call_is_left_for_the_next(accounts: dict[str, Account]) -> None:
    """One process of the server takes call after call."""
    owner = accounts["dlq"]
    script = owner.write("calls.sh", """\
export SQUEUE_FORMAT=%i-mine TZ=Asia/Tokyo; squeue -h > first; unset SQUEUE_FORMAT TZ
for n in 1 2 3 4 5 6 7 8; do squeue -h -o %j; done > others
mkdir gone; cd gone; rmdir ../gone; squeue -h -o %i > ../in_gone; cd ..
umask 000; sbatch --parsable -H --gres=gpu:1 --wrap true > held; umask 077
SBATCH_JOB_NAME=fromenv sbatch --parsable -H --gres=gpu:1 --wrap true > named
sbatch --parsable -H --gres=gpu:1 --wrap true > plain
for each in named plain; do squeue -h -o %j -j $(cat $each); done > names
squeue -h <&- > closed; squeue -h -o %i >&- 2> no_stdout; squeue -h -o %i > after
scancel $(cat held) $(cat named) $(cat plain)
(ulimit -f 0; squeue > limited) 2> limited_error; squeue -h -o %i > unlimited
""")  # fmt: skip
    owner.run("/bin/sh", script)

    def read(name: str) -> str:
        return (owner.home / name).read_text()

    assert "-mine" in read("first")
    assert "-mine" not in read("others")
    assert read("names") == "fromenv\nwrap\n"
    assert read("after")
    assert read("unlimited")
    assert read("in_gone")
