"""Real systemd hosts on this machine: systemd-nspawn, one network namespace each, joined by a
bridge.

A host is a booted Debian: an overlay over a base that they share, in a control group subtree of its
own. What is written to it survives its reboot and nothing else. Needs root, systemd-nspawn,
debootstrap and iproute2.
"""

from __future__ import annotations

import hashlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from support.waiting import wait_until

PACKAGES = (
    "systemd,systemd-sysv,dbus,iproute2,procps,python3,python3-venv,passwd,adduser,logrotate,"
    # What a host with users has: their sessions, their systemd, their rights, and OpenSSH.
    "libpam-systemd,dbus-user-session,polkitd,openssh-server,openssh-client"
)
SUITE = "bookworm"
GROUPS = Path("/sys/fs/cgroup")
HIERARCHIES = (
    "systemd", "unified", "memory", "pids", "cpu", "cpuacct", "cpuset", "freezer", "devices",
    "blkio",
)  # fmt: skip
# nspawn mounts v1 hierarchies read-only; with them writable before systemd looks, limits hold.
INIT = """
for c in memory pids cpu cpuacct cpuset freezer devices blkio; do
    [ ! -d /sys/fs/cgroup/$c ] || mount -o remount,bind,rw /sys/fs/cgroup/$c
done
exec /usr/lib/systemd/systemd
"""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A login as on a console: PAM opens a session, which ends with the script.
LOGIN = ("systemd-run", "--quiet", "--wait", "--pipe", "--collect", "--property=PAMName=login")


class HostFailed(AssertionError):
    """A command on a host ended otherwise than it should; the text has its output."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a command on a host ended."""

    status: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Machine:
    """What is booted as a host: its disk, its name here (of groups and namespaces), what it
    mounts.
    """

    name: str
    disk: Path
    tag: str
    binds: dict[Path, str]
    addresses: dict[str, str]


class Conversation:
    """The lines of a program that runs on a host."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def hear(self, timeout_s: float = 120.0) -> str:
        """Its next line."""
        assert self._process.stdout is not None
        return self._line_of(self._process.stdout, timeout_s)

    def hear_error(self, timeout_s: float = 120.0) -> str:
        """Its next line for people."""
        assert self._process.stderr is not None
        return self._line_of(self._process.stderr, timeout_s)

    def _line_of(self, stream: IO[bytes], timeout_s: float) -> str:
        ready, _, _ = select.select([stream], [], [], timeout_s)
        assert ready, "it says nothing"
        line = stream.readline().decode()
        if not line:
            assert self._process.stderr is not None
            raise HostFailed(f"it has ended: {self._process.stderr.read().decode()}")
        return line.rstrip("\n")


# Of our daemons, for whoever has to find out why something failed.
LAST_WORDS = "journalctl -n 30 -o cat -u 'dlq-*'"


@dataclass(slots=True)
class Host:
    """One booted host; `pid` is its systemd, seen from here."""

    machine: Machine
    pid: int
    spawn: subprocess.Popen[bytes]

    @property
    def name(self) -> str:
        return self.machine.name

    def reboot(self) -> None:
        """Shut it down in order, and boot it again."""
        _stop(self)
        fresh = _boot(self.machine)
        self.pid, self.spawn = fresh.pid, fresh.spawn
        _settle(self)

    def run(
        self,
        script: str,
        *,
        user: str = "root",
        login: bool = False,
        check: bool = True,
        timeout_s: float = 600.0,
        typed: str = "",
    ) -> Done:
        """Run a script by `bash -eu` in the host, in the account `user`; with `login` in a session
        of theirs, which ends with the script.

        `typed` is its standard input.
        """
        ran = subprocess.run(
            self._command(script, user, login=login),
            input=typed,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        done = Done(ran.returncode, ran.stdout, ran.stderr)
        if check and done.status:
            log = self.run(LAST_WORDS, check=False)
            said = f"{done.out}{done.err}{log.out}"
            raise HostFailed(f"{self.name}$ {script}\nended with {done.status}\n{said}")
        return done

    def read(self, script: str, *, user: str = "root") -> str:
        """What a script prints."""
        return self.run(script, user=user).out.strip()

    @contextmanager
    def begun(
        self, script: str, *, user: str = "root", login: bool = False
    ) -> Iterator[Conversation]:
        """A script that runs meanwhile, and is killed at the end."""
        told = f"echo $$\n{script}"
        pipe = subprocess.PIPE
        with subprocess.Popen(
            self._command(told, user, login=login),
            stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0,
        ) as process:  # fmt: skip
            begun = Conversation(process)
            pid = begun.hear()
            try:
                yield begun
            finally:
                self.run(f"kill -KILL {pid}", check=False)

    def _command(self, script: str, user: str, *, login: bool = False) -> list[str]:
        shell = ["/bin/bash", "-eu", "-o", "pipefail", "-c", f"cd\n{script}"]
        home = "/root" if user == "root" else f"/home/{user}"
        if login:
            shell = [*LOGIN, f"--uid={user}", *shell]
        elif user != "root":
            shell = ["runuser", "-u", user, "--", *shell]
        return [
            "nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "-C",
            "env", "-i", f"PATH={PATH}", f"HOME={home}", f"USER={user}", "LANG=C.UTF-8", *shell,
        ]  # fmt: skip

    def root(self) -> Path:
        """The host's file system, seen from here."""
        return Path(f"/proc/{self.pid}/root")


def base_system(cache: Path) -> Path:
    """A minimal Debian with systemd and Python, made once and kept in `cache`."""
    key = hashlib.sha256(f"{SUITE} {PACKAGES}".encode()).hexdigest()[:8]
    base = cache / f"{SUITE}-{key}"
    if base.exists():
        return base
    unfinished = cache / f"{base.name}.incomplete"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    _check(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(unfinished)])
    (unfinished / "etc/machine-id").write_text("")
    shutil.rmtree(unfinished / "var/cache/apt", ignore_errors=True)
    unfinished.rename(base)
    return base


@contextmanager
def two_hosts(
    base: Path, names: Sequence[str], binds: dict[Path, str], tag: str
) -> Iterator[list[Host]]:
    """Boot a host for each name, with `binds` (here: there) and with names that resolve."""
    addresses = {name: f"10.77.0.{at}" for at, name in enumerate(names, start=1)}
    disks = Path(tempfile.mkdtemp(prefix=f"{tag}-"))
    machines = [
        Machine(name, disks / name / "root", f"{tag}-{name}", binds, addresses) for name in names
    ]
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, disks)
        undo.callback(_remove_network, names, tag)
        _make_network(addresses, tag)
        hosts = []
        for machine in machines:
            undo.callback(_remove_groups, machine.tag)
            undo.enter_context(_disk(base, machine))
            host = _boot(machine)
            undo.callback(_stop, host)
            hosts.append(host)
        for host in hosts:
            _settle(host)
        yield hosts


@contextmanager
def _disk(base: Path, machine: Machine) -> Iterator[None]:
    """An overlay: the base, and what this host writes, which is at first its name and all
    others'.
    """
    disk = machine.disk
    upper, work = disk.with_name("upper"), disk.with_name("work")
    for path in (disk, upper, work):
        path.mkdir(parents=True)
    layers = f"lowerdir={base},upperdir={upper},workdir={work}"
    _check(["mount", "-t", "overlay", "overlay", "-o", layers, str(disk)])
    try:
        hosts = "".join(f"{address} {name}\n" for name, address in machine.addresses.items())
        (disk / "etc/hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
        (disk / "etc/hostname").write_text(f"{machine.name}\n")
        yield
    finally:
        _check(["umount", str(disk)])


def _make_network(addresses: dict[str, str], tag: str) -> None:
    switch = f"{tag}-switch"
    _check(["ip", "netns", "add", switch])
    _check(["ip", "-n", switch, "link", "add", "br0", "type", "bridge"])
    _check(["ip", "-n", switch, "link", "set", "br0", "up"])
    for at, (name, address) in enumerate(addresses.items()):
        space = f"{tag}-{name}"
        _check(["ip", "netns", "add", space])
        link = f"ip -n {switch} link add port{at} type veth peer name host0 netns {space}"
        _check(shlex.split(link))
        _check(shlex.split(f"ip -n {switch} link set port{at} master br0 up"))
        _check(shlex.split(f"ip -n {space} addr add {address}/24 dev host0"))
        _check(shlex.split(f"ip -n {space} link set host0 up"))
        _check(shlex.split(f"ip -n {space} link set lo up"))


def _remove_network(names: Sequence[str], tag: str) -> None:
    for space in (*(f"{tag}-{name}" for name in names), f"{tag}-switch"):
        subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def _boot(machine: Machine) -> Host:
    _make_groups(machine.tag)
    command = [
        "systemd-nspawn", "--quiet", f"--directory={machine.disk}", "--register=no",
        "--keep-unit", f"--machine={machine.tag}", f"--hostname={machine.name}",
        f"--network-namespace-path=/run/netns/{machine.tag}", "--kill-signal=SIGRTMIN+3",
        "--link-journal=no", "--console=passive",
        *(f"--bind={here}:{there}" for here, there in machine.binds.items()),
        "/bin/sh", "-c", INIT,
    ]  # fmt: skip
    join = "".join(f"echo $$ > {at / machine.tag}/cgroup.procs; " for at in _hierarchies())
    spawn = subprocess.Popen(
        ["/bin/sh", "-c", f"{join}exec {shlex.join(command)}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    pid = wait_until(lambda: _child_of(spawn), what=f"{machine.name} starts")
    return Host(machine, pid, spawn)


def _child_of(spawn: subprocess.Popen[bytes]) -> int:
    """The host's first process: nspawn's child that is number 1 in a namespace of its own."""
    assert spawn.poll() is None, f"systemd-nspawn ended with {spawn.returncode}"
    for pid in Path(f"/proc/{spawn.pid}/task/{spawn.pid}/children").read_text().split():
        with suppress(FileNotFoundError):
            status = Path(f"/proc/{pid}/status").read_text()
            if f"NSpid:\t{pid}\t1\n" in status and "Name:\tsystemd\n" in status:
                return int(pid)
    return 0


def _settle(host: Host) -> None:
    """Wait until it has booted."""
    wait_until(
        lambda: (
            host.run("systemctl is-system-running --wait", check=False).out.strip()
            in ("running", "degraded")
        ),
        what=f"{host.name} has booted",
        timeout_s=60,
    )


def _stop(host: Host) -> None:
    """Shut it down; what does not go within its time is cut off."""
    with suppress(ProcessLookupError):
        os.kill(host.pid, signal.SIGRTMIN + 3)
    try:
        host.spawn.wait(60)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.kill(host.pid, signal.SIGKILL)
        host.spawn.wait(30)
    propagate = Path("/run/systemd/nspawn/propagate", host.machine.tag)
    shutil.rmtree(propagate, ignore_errors=True)


def _hierarchies() -> list[Path]:
    return [GROUPS / name for name in HIERARCHIES if (GROUPS / name).is_dir()]


def _make_groups(group: str) -> None:
    for at in _hierarchies():
        (at / group).mkdir(exist_ok=True)
        if at.name == "cpuset":  # a new cpuset is empty, and takes nobody
            for name in ("cpuset.cpus", "cpuset.mems"):
                (at / group / name).write_text((at / name).read_text())


def _remove_groups(group: str) -> None:
    for at in _hierarchies():
        for path in sorted((at / group).rglob("*"), reverse=True):
            if path.is_dir():
                with suppress(OSError):
                    path.rmdir()
        with suppress(FileNotFoundError):
            (at / group).rmdir()


def _check(command: list[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise HostFailed(f"{shlex.join(command)}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")
