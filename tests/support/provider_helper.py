"""As systemd serves `dlq-provider.socket`: `python -m support.provider_helper SOCKET ACCOUNT`.

It becomes the account, and has a runner for each connection. The interpreter of the tests may lie
in a directory that the account cannot read. So everything is imported before, and the leash is run
by an interpreter of the host.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import sys

from dlq_master.providers import runner

HOST_PYTHON = shutil.which("python3", path="/usr/bin:/bin")


def serve(path: str, account: str) -> None:
    """Never comes back."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        os.chmod(path, 0o666)
        listening.listen()
        if os.getuid() == 0:
            _become(account)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.dup2(connection.fileno(), 0)
                connection.close()
                runner.main()
            connection.close()


def _become(account: str) -> None:
    sys.executable = HOST_PYTHON or sys.executable
    known = pwd.getpwnam(account)
    os.setgroups([])
    os.setgid(known.pw_gid)
    os.setuid(known.pw_uid)


if __name__ == "__main__":
    serve(*sys.argv[1:])
