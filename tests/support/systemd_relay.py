"""The relay on booted hosts: jobs that answer, forwards into them, and its process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from support.echo_jobs import ECHO, said_port
from support.nspawn import Conversation, Host
from support.systemd_site import MASTER, Site
from support.waiting import wait_until

PORT = 7323
PROGRAM = "dlq_master.relay.program"
# One connection. For each number that it reads it sends so many bytes, and compares the answer.
TALK = """
import os, socket, sys, threading
line = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=120)
print("connected", flush=True)
for asked in sys.stdin:
    data = os.urandom(int(asked))
    print("sends", flush=True)
    sender = threading.Thread(target=line.sendall, args=(data,))
    sender.start()
    back = bytearray()
    while len(back) < len(data) and (piece := line.recv(1 << 20)):
        back += piece
    sender.join()
    print("the same" if back == data else f"{len(back)} bytes, or others", flush=True)
"""


class RelayOfHead:
    """The relay that the master's unit on `head` runs, and ada's jobs to which it leads."""

    def __init__(self, site: Site) -> None:
        self.site = site
        (site.shared / "echo.py").write_text(ECHO)
        (site.shared / "talk.py").write_text(TALK)

    def pid(self) -> str:
        """Of its process, a child of the master; "" while there is none."""
        master = self.site.property_of(self.site.head, MASTER, "MainPID")
        return self.site.head.read(f"pgrep -P {master} -f {PROGRAM} || true")

    def wait_for_another(self, former: str) -> str:
        """Wait until another relay has connections of both hosts; its process."""
        wanted = {*self.site.head.machine.addresses.values()}

        def look() -> str:
            pid = self.pid()
            return pid if pid not in ("", former) and self.peers(pid) == wanted else ""

        return wait_until(look, what="both hosts have a line to another relay")

    def peers(self, pid: str) -> set[str]:
        """The addresses at the other ends of the connections that this process has."""
        told = self.site.head.read(f"ss -Htnp state established sport = :{PORT}")
        lines = [line for line in told.splitlines() if f"pid={pid}," in line]
        return {line.split()[3].rpartition(":")[0] for line in lines}

    def walls(self, pid: str) -> str:
        """What the kernel says of the rights and the view of a process on `head`."""
        names = "^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp)"
        links = " ".join(f"/proc/{pid}/ns/{each}" for each in ("mnt", "net", "user"))
        look = f"grep -E '{names}' /proc/{pid}/status; cat /proc/{pid}/cgroup; readlink {links}"
        return self.site.head.read(look)

    @contextmanager
    def echoing(self, node: str) -> Iterator[tuple[str, int]]:
        """A job of ada's on this node, and the port on which it answers."""
        head = self.site.head
        words = f"dlq submit --parsable -w {node} -G 1 -- python3 /shared/echo.py"
        job_id = head.read(words, user="ada")
        try:
            logs = f"dlq logs {job_id}"
            yield job_id, said_port(lambda: head.run(logs, user="ada", check=False).out)
        finally:
            head.run(f"dlq cancel --kill {job_id}", user="ada", check=False)

    @contextmanager
    def forwarded(self, job_id: str, port: int) -> Iterator[tuple[Conversation, Conversation]]:
        """A `dlq forward` on `head`, and a program with one connection through it."""
        head = self.site.head
        forward = f"exec dlq forward -v {job_id} {port}:0"
        with head.begun(forward, user="ada") as line:
            found = re.match(r"127\.0\.0\.1:(\d+) -> port", line.hear())
            assert found
            with head.begun(f"exec python3 /shared/talk.py {found[1]}", user="ada") as talk:
                assert talk.hear() == "connected"
                yield line, talk

    def take_identity_to(self, host: Host) -> None:
        """Let ada's commands work there, as with a home that both hosts share."""
        where = "home/ada/.config/dlq"
        host.run("install -d -m 0700 .config .config/dlq", user="ada")
        for name in self.site.head.read(f"ls /{where}").split():
            source = self.site.head.root() / where / name
            if source.is_file():
                (host.root() / where / name).write_bytes(source.read_bytes())
        host.run(f"chown -R ada: /{where} && chmod 0600 /{where}/*")
