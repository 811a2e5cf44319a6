"""Jobs that mean harm, run as mallory: each a shell script that ends within seconds, or fights its
end.

`$ROOT` is where the daemons' state is, `$LAIR` her own directory, `$PREY` a word that stands only
in secrets of alice's. What a script found it writes into `$LAIR/found`; what it could change
carries the name `mallory-was-here`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from attack.site import MALLORY, AttackedSite
from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_common.errors import DlqError
from support.broker_login import SYSTEM_PYTHON
from support.fake_clock import SeededIds

SCRIPTS = {
    "kills all that it may": "kill -9 -1; sleep 5",
    "kills its parent": "sleep 0.3; kill -9 $PPID; sleep 5",
    "hears no signal": "trap '' TERM INT HUP USR1 USR2 QUIT; sleep 4; exit 0",
    "leaves a daemon": "setsid sh -c 'trap \"\" TERM HUP; sleep 600' </dev/null >/dev/null 2>&1 & "
                       "exit 0",
    "leaves a daemon of a daemon": "(setsid setsid nohup sleep 600 >/dev/null 2>&1 &) ; exit 3",
    "forks": "for i in 1 2 3 4 5 6 7; do for j in 1 2 3 4 5 6 7; do sleep 3 & done; done "
             "2>/dev/null; exit 0",
    "looks for secrets in files": 'grep -rls "$PREY-" "$ROOT" /dev/shm >> "$LAIR/found" '
                                  '2>/dev/null; exit 0',
    "looks for secrets in processes":
        'grep -ls "$PREY-" /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ >> "$LAIR/found" '
        '2>/dev/null; exit 0',
    "looks for keys":
        'for f in $(find "$ROOT" -name "*.key" -o -name "dlq.db*" -o -name "audit*" 2>/dev/null); '
        'do '
        '  head -c1 "$f" >/dev/null 2>&1 && echo "$f" >> "$LAIR/found"; done; exit 0',
    "writes wherever it may":
        'for d in $(find "$ROOT" -type d 2>/dev/null); do case $d in "$LAIR"*) ;; '
        '  *) : > "$d/mallory-was-here" ;; esac 2>/dev/null; done; exit 0',
    "claims checkpoints to come":
        'n=$DLQ_JOB_ID; while [ $n -lt $((DLQ_JOB_ID + 30)) ]; do n=$((n+1)); '
        'd=$(dirname "$(dirname "$DLQ_CHECKPOINT_DIR")"); mkdir -m 777 -p "$d/$n/1" || ln -s '
        '"$LAIR" "$d/$n.x"; '
        "done 2>/dev/null; exit 0",
    "makes links of its own places":
        'cd "$(dirname "$DLQ_BEAT_FILE")" || exit 1; rm -rf ./*; ln -s /etc/shadow beat; ln -s '
        '"$ROOT/master/dlq.db" done; '
        'ln -s /dev/zero "$DLQ_BEAT_FILE"; ln -s .. up; mkfifo pipe; exit 0',
    "makes a pipe of its beat": 'rm -f "$DLQ_BEAT_FILE"; mkfifo "$DLQ_BEAT_FILE"; sleep 3; exit 0',
    "tells lies of its steps":
        'for n in 99999999999999999999999 -1 nan "" "{}" "[[" \'{"step":1e999}\' '
        '\'{"step":-5,"v":[]}\'; do '
        'printf "%s\\n" "$n" > "$DLQ_BEAT_FILE"; sleep 0.2; done; head -c 3000000 /dev/urandom > '
        '"$DLQ_BEAT_FILE"; exit 0',
    "lies of checkpoints":
        's="$DLQ_CHECKPOINT_DIR/step-000009"; mkdir -p "$s"; ln -s /etc/shadow "$s/model"; '
        'ln -s "$ROOT/master" "$DLQ_CHECKPOINT_DIR/step-000010"; head -c 200000 /dev/zero > '
        '"$s/COMMITTED"; exit 0',
    "prints what terminals obey": "printf '\\033]0;gone\\007\\033[2J\\033[31m\\202\\377\\376\\000\\r\\n'; exit 5",  # noqa: E501
    "prints a line without end": "head -c 9000000 /dev/zero | tr '\\\\0' a; exit 6",
    "prints what looks like a record": "echo '{\"v\":1,\"exit_code\":0,\"state\":\"COMPLETED\"}' "
                                       ">&2; exit 7",
    "floods": "timeout 3 yes mallory; exit 0",
    "closes what it has": "exec 0<&- 1>&- 2>&-; exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; sleep 1; "
                          "exit 8",
    "asks for more rights":
        'cp /bin/sh "$LAIR/sh-$$"; chmod 6777 "$LAIR/sh-$$"; id -u; su -c id root </dev/null; '
        'mount -t tmpfs x "$LAIR"; '
        'unshare -r true; chroot / true; exec 2>/dev/null; exit 9',
    "knocks at every socket":
        f'{SYSTEM_PYTHON} -I -c "\n'
        "import glob, socket, os, sys\n"
        "for path in glob.glob(sys.argv[1] + '/**/*.sock', recursive=True):\n"
        "    for text in (b'\\0' * 5000, b'{' * 70000, "
        "b'{\\\"v\\\":1,\\\"uid\\\":0,\\\"csr\\\":\\\"x\\\"}\\n'):\n"
        "        try:\n"
        "            s = socket.socket(socket.AF_UNIX); s.settimeout(1); s.connect(path); "
        "s.sendall(text)\n"
        "            s.recv(10)\n"
        "        except OSError: pass\n"
        '" "$ROOT"; exit 0',
    "takes memory": f"timeout 3 {SYSTEM_PYTHON} -I -c 'x = bytearray(150 << 20); import time; "
                    "time.sleep(2)'; exit 0",
    "traces its parent":
        f"{SYSTEM_PYTHON} -I -c 'import ctypes, os; c = ctypes.CDLL(None); [c.ptrace(16, p, 0, 0) "
        "for p in "
        "range(1, 60000) if os.path.exists(\"/proc/%d\" % p)]'; exit 0",
}  # fmt: skip
PREY = "dlq-canary"


class HostileUser(threading.Thread):
    """Mallory: submits one of SCRIPTS after the other, and now and then does something to one of
    them.
    """

    def __init__(self, site: AttackedSite, seed: int) -> None:
        super().__init__(name="mallory")
        self._site = site
        self._chance = random.Random(seed)
        self._ids = SeededIds(seed)
        self._enough = threading.Event()
        self.submitted: dict[str, str] = {}  # job id -> which script
        self.failure: BaseException | None = None

    def stop(self) -> None:
        """Finish the request at hand, then leave."""
        self._enough.set()

    def run(self) -> None:
        try:
            with self._site.connect_person("mallory") as line:
                jobs = Jobs(line)
                while not self._enough.wait(self._chance.uniform(0.2, 1.5)):
                    self._one(jobs)
        except BaseException as failure:  # noqa: BLE001 - raised again by the test
            self.failure = failure

    def _one(self, jobs: Jobs) -> None:
        name = self._chance.choice(sorted(SCRIPTS))
        job_id = jobs.submit(self.spec(name), request_id=self._ids.request_id()).job.job_id
        self.submitted[job_id] = name
        other = self._chance.choice(sorted(self.submitted))
        with suppress(DlqError):  # most of them have ended
            meddle: list[Callable[[str], object]] = [
                jobs.cancel, jobs.hold, jobs.release, jobs.resume, lambda job: jobs.cancel(job, kill=True),  # noqa: E501
            ]  # fmt: skip
            self._chance.choice(meddle)(other)

    def spec(self, name: str) -> job_pb2.JobSpec:
        """One of SCRIPTS as a job."""
        site = self._site
        spec = job_pb2.JobSpec(
            name="hostile", command=["/bin/sh", "-c", SCRIPTS[name]], working_directory=str(site.lair)  # noqa: E501
        )  # fmt: skip
        here = {
            "ROOT": str(site.root),
            "LAIR": str(site.lair),
            "PREY": PREY,
            "PATH": "/usr/bin:/bin",
        }
        for key, value in here.items():
            spec.environment[key] = value
        spec.resources.gpu_count = 1
        spec.preempt.grace_duration.FromSeconds(2)
        return spec


def left_running() -> list[str]:
    """Command lines of mallory's processes that are still there."""
    found = []
    for process in _processes():
        with suppress(OSError):
            status = (process / "status").read_text()
            if f"\nUid:\t{MALLORY}\t" in status and "\nState:\tZ" not in status:
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def harm_done(site: AttackedSite) -> list[str]:
    """What mallory could read that is not hers, and what of hers lies where it should not."""
    found = site.lair / "found"
    wrongs = [f"mallory read {line}" for line in _lines(found)]
    for path in site.root.rglob("mallory-was-here"):
        own = path.parent.stat().st_uid == MALLORY
        if not own and "checkpoints" not in path.parts:
            wrongs.append(f"mallory wrote {path}")
    return wrongs


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _processes() -> list[Path]:
    return [path for path in Path("/proc").iterdir() if path.name.isdigit()]
