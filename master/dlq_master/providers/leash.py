"""Becomes a program that is killed when who asked for it is gone: `python -I -S leash.py FD ACCOUNT
PROGRAM WORD...`.

FD is the reading end of a pipe to which nobody writes. It ends when the process at the other end
dies, for whatever reason. Beside the program then waits one process of its session that kills all
of that. Nothing is imported but what starts fast: this runs for each call. ACCOUNT is
`UID:GID:GROUP,...`, or empty.
"""

import os
import signal
import sys

FAILED = "leash: "  # begins what is said where the program cannot be run


def main(pipe: int, account: str, *words: str) -> None:
    """Never comes back."""
    watcher = os.fork()
    if watcher == 0:
        if os.fork() == 0:  # nobody's child: a program may wait for all of its own
            _watch(pipe)
        os._exit(0)
    os.waitpid(watcher, 0)
    os.close(pipe)
    try:
        _become(account)
        os.execvp(words[0], words)
    except OSError as error:
        os.write(2, f"{FAILED}{error}".encode())
        os._exit(1)


def _watch(pipe: int) -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # a program may say so to all
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # who reads what the program says waits until all have closed it
        os.dup2(nothing, stream)
    os.read(pipe, 1)
    os.killpg(0, signal.SIGKILL)


def _become(account: str) -> None:
    if account:
        user, group, groups = account.split(":")
        os.setgroups([int(one) for one in groups.split(",")])
        os.setgid(int(group))
        os.setuid(int(user))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
