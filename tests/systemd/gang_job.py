"""One rank of a gang of two that count together, for as long as nobody makes the file `stop`.

Standard library only: the hosts have no other. Each rank leaves what it sees of its host, and its
steps; a line that breaks ends both with an error, so steps that go on are proof of a living gang.
"""

import json
import os
import resource
import socket
import sys
import time
from pathlib import Path

PLACE = Path(sys.argv[1])
RANK = int(os.environ["DLQ_NODE_RANK"])
NAME = f"{RANK}.{os.environ['DLQ_ATTEMPT']}"


def facts() -> dict[str, object]:
    """The host as this rank sees it, and what its unit has let through."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    umask = os.umask(0o022)
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "uid": os.getuid(),
        "groups": sorted(os.getgroups()),
        "umask": umask,
        "mount_namespace": os.readlink("/proc/self/ns/mnt"),
        "seccomp_filters": status["Seccomp_filters"].strip(),
        "no_new_privs": status["NoNewPrivs"].strip(),
        "capabilities": status["CapBnd"].strip(),
        "oom_score_adj": int(Path("/proc/self/oom_score_adj").read_text()),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "locked": resource.getrlimit(resource.RLIMIT_MEMLOCK),
        "cgroups": Path("/proc/self/cgroup").read_text().split(),
        "environment": sorted(os.environ),
    }


def meet() -> socket.socket:
    """The line between rank 0, who waits, and rank 1, who calls until it is there."""
    port = int(os.environ["MASTER_PORT"])
    if RANK == 0:
        listener = socket.create_server(("0.0.0.0", port))
        line, _ = listener.accept()
        return line
    while True:
        try:
            return socket.create_connection((os.environ["MASTER_ADDR"], port), timeout=1.0)
        except OSError:
            time.sleep(0.1)


def count(line: socket.socket) -> int:
    """Step by step together; the number of steps."""
    line.settimeout(60.0)
    step = 0
    with (PLACE / f"steps.{NAME}").open("w", buffering=1) as steps:
        while True:
            stop = (PLACE / "stop").exists() if RANK == 0 else False
            line.sendall(b"s" if stop else b".")
            heard = line.recv(1)
            if not heard:
                raise SystemExit(f"rank {RANK}: the other one is gone after {step} steps")
            if stop or heard == b"s":
                return step
            step += 1
            steps.write(f"{step}\n")
            time.sleep(0.05)


def main() -> None:
    partial = PLACE / f".{NAME}"
    partial.write_text(json.dumps(facts()))
    Path("/tmp/of-ada").write_text(NAME)
    Path.home().joinpath("of-ada").write_text(NAME)
    partial.rename(PLACE / f"facts.{NAME}.json")
    sys.stdout.write(f"rank {RANK} counted {count(meet())} steps\n")


if __name__ == "__main__":
    main()
