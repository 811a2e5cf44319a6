"""The keeper of a box: it starts master, agent and page, and starts them anew when they end.

It is one process of the user, `python -m dlq_cli.up.keeper HOME`. Without a service manager nobody
restarts the keeper itself: its parts go on, jobs too, and the next `dlq up` starts another keeper.
That one ends the parts of its predecessor and starts its own. A restart of any part ends no job.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from dlq_cli.up.place import Box, read_box
from dlq_cli.up.processes import (
    AGENT,
    MASTER,
    PAGE,
    PARTS,
    KnownProcess,
    RunningParts,
    missing,
    program,
    read_running,
    sole_keeper,
)
from dlq_client.line.identity import CERTIFICATE_FILE
from dlq_common.errors import DlqError
from dlq_common.identity.files import write_private

LOOK_S = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
SETTLED_S = 60.0  # a part that lived so long is started at once when it ends
LARGEST_LOG_BYTES = 16 * 1024 * 1024
GPUS = "\0dlq-up-gpus"
"""A name of the whole machine, for the keeper that manages its real GPUs: it goes with it."""
# Of the user's environment: to find programs, libraries of the driver, and time zones.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR",
         "LD_LIBRARY_PATH", "SSL_CERT_FILE")  # fmt: skip


def command_of(box: Box, part: str) -> list[str]:
    """The command line of a part."""
    if part == MASTER:
        return [program("dlq-master"), "run", "--config", str(box.master / "master.toml")]
    if part == AGENT:
        return [program("dlq-nodeagent"), "run", "--config", str(box.state / "nodeagent.toml")]
    main = "from dlq_cli.main import main; main()"
    return [sys.executable, "-P", "-c", main, "--home", str(box.home), "web"]


def environment_of(box: Box, part: str) -> dict[str, str]:
    """The environment of a part: settings that change later come by it, above the files."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    kept["PATH"] = f"{Path(sys.executable).parent}:{kept.get('PATH', os.defpath)}"
    if part == MASTER:
        kept |= {"DLQ_LISTEN__API": box.api, "DLQ_LISTEN__JOIN": box.join}
        if box.address:
            kept["DLQ_LISTEN__ADVERTISE"] = f"{box.address}:{box.api.rpartition(':')[2]}"
    if part == AGENT:
        if box.address:
            kept["DLQ_NODE__ADDRESS"] = box.address
        kept["DLQ_NODE__DEVICES"] = box.devices
        if box.cores is not None:
            kept["DLQ_NODE__JOB_CPUS"] = str(box.cores)
        if group := jobs_group(box.name, Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")):
            kept["DLQ_NODE__CGROUP"] = group
    return kept


def jobs_group(name: str, own: Path, tree: Path) -> str:
    """The control group of the unit for jobs, where we are in the unit of the box; "" elsewhere."""
    unit = f"dlq-{name}.service"
    with suppress(OSError):
        for line in own.read_text().splitlines():
            above, found, _ = line.split(":", 2)[2].partition(f"/{unit}")
            group = f"{above}/dlq-{name}-jobs.service"
            if found and (tree / group.lstrip("/")).is_dir():
                return group
    return ""


class Keeper:
    """Runs until SIGTERM. SIGHUP: read the record again, and restart the parts that it changes."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._began_s: dict[str, float] = {}
        self._due_s: dict[str, float] = {}
        self._pause_s: dict[str, float] = {}
        self._starts: dict[str, int] = {}
        self._given: dict[str, tuple[list[str], dict[str, str]]] = {}
        self._stopped = self._again = False
        self._gpus: socket.socket | None = None

    def run(self) -> None:
        """Keep the parts until a signal, then end them in order."""
        hears, tells = socket.socketpair()
        for end in (hears, tells):
            end.setblocking(False)
        signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, self._read_again)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self._claim_gpus()
        self._end_former()
        while not self._stopped:
            self._turn()
            select.select([hears], [], [], LOOK_S)
            with suppress(BlockingIOError):
                hears.recv(4096)
        for part in reversed(PARTS):
            self._end(part)
        self._write()

    def _turn(self) -> None:
        if not self.box.lock.exists():
            _say(f"{self.box.state} is gone: the box ends")
            self._stopped = True
            return
        follows, self._again = self._again, False
        if follows:
            self._follow_record()
        for part in PARTS:
            self._reap(part)
            if part not in self._children and self._can_start(part):
                self._start(part)
            _cut(self.box.log(part))
        if follows:
            self._write()

    def _can_start(self, part: str) -> bool:
        if time.monotonic() < self._due_s.get(part, 0.0):
            return False
        if part == MASTER:
            return not self.box.joined and self.box.is_founded
        if part == AGENT:
            return self.box.has_node
        if self.box.joined or missing(PAGE):
            return False
        return (self.box.home / CERTIFICATE_FILE).exists() and self.box.login_socket.exists()

    def _start(self, part: str) -> None:
        self._due_s[part] = time.monotonic() + self._pause_s.get(part, FIRST_PAUSE_S)
        try:
            given = command_of(self.box, part), environment_of(self.box, part)
            with self.box.log(part).open("ab") as log:
                self._children[part] = subprocess.Popen(
                    given[0], env=given[1], cwd=self.box.state, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
        except (OSError, DlqError) as error:
            _say(f"{part} cannot be started: {error}")
            return
        self._given[part] = given
        self._began_s[part] = time.monotonic()
        self._starts[part] = self._starts.get(part, 0) + 1
        self._write()

    def _reap(self, part: str) -> None:
        child = self._children.get(part)
        if child is None or child.poll() is None:
            return
        del self._children[part]
        lived_s = time.monotonic() - self._began_s[part]
        pause_s = FIRST_PAUSE_S
        if lived_s < SETTLED_S:
            pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s.get(part, FIRST_PAUSE_S / 2))
        self._pause_s[part], self._due_s[part] = pause_s, time.monotonic() + pause_s
        _say(f"{part} ended with {child.returncode} after {lived_s:.0f} s; again in {pause_s:g} s")
        self._write()

    def _end(self, part: str) -> None:
        child = self._children.pop(part, None)
        if child is not None:
            KnownProcess.of(child.pid).end()
            child.wait()

    def _follow_record(self) -> None:
        """Restart the parts whose command or settings the record has changed."""
        try:
            self.box = read_box(self.box.home) or self.box
        except DlqError as error:
            _say(str(error))
            return
        for part in [*self._children]:
            if self._given[part] != (command_of(self.box, part), environment_of(self.box, part)):
                self._end(part)
                self._due_s[part] = 0.0

    def _end_former(self) -> None:
        """The parts of a keeper that was killed; a new master or agent cannot run beside them."""
        former = read_running(self.box)
        for part, known in () if former is None else former.parts.items():
            if known.lives():
                _say(f"{part} of a former keeper (process {known.pid}) is started anew")
                known.end()

    def _claim_gpus(self) -> None:
        if self.box.devices != "nvml":
            return
        self._gpus = socket.socket(socket.AF_UNIX)
        try:
            self._gpus.bind(GPUS)
            self._gpus.listen(1)
        except OSError:  # two users who both named the devices have been told
            self._gpus.close()

    def _write(self) -> None:
        parts = {part: KnownProcess.of(child.pid) for part, child in self._children.items()}
        ours, mark = KnownProcess.of(os.getpid()), self.box.mark
        running = RunningParts(ours, parts, self._starts, mark)
        try:
            write_private(self.box.running, running.text())
        except OSError as error:  # a full disk; the keeper goes on
            _say(f"{self.box.running}: {error.strerror}")

    def _stop(self, *_: object) -> None:
        self._stopped = True

    def _read_again(self, *_: object) -> None:
        self._again = True


def _cut(log: Path) -> None:
    """Keep the end of a log apart, and go on with an empty one: its writers append."""
    with suppress(OSError):
        if log.stat().st_size > LARGEST_LOG_BYTES:
            shutil.copyfile(log, log.with_suffix(".log.1"))
            os.truncate(log, 0)


def _say(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")
        sys.stderr.flush()


def main(home: str) -> int:
    """Keep the box of this identity directory; at once over when another keeper does."""
    box = read_box(Path(home))
    if box is None:
        _say(f"{home} has no box")
        return 1
    with sole_keeper(box) as sole:
        if not sole:
            _say("another keeper has this box")
            return 0
        Keeper(box).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
