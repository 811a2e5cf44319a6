"""A program of a cluster's user with a controlling terminal, as a login has it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Mapping

DEADLINE_S = 60.0


class Session:
    """A program with a controlling terminal."""

    def __init__(self, environ: Mapping[str, str], *words: str) -> None:
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.chdir("/tmp")
            shell = {"SHELL": "/bin/sh", "PS1": "$ ", "TERM": "xterm"}
            os.execve(words[0], list(words), {**os.environ, **environ, **shell})
        self.shown = ""

    def mode(self) -> list[object]:
        """The settings of the terminal."""
        found: list[object] = termios.tcgetattr(self._master)
        return found

    def resize(self, columns: int, rows: int) -> None:
        """Another size of the window."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def press_until(self, keys: str, text: str) -> None:
        """Press again and again, until this is shown: what goes nowhere is lost."""
        end_s = time.monotonic() + DEADLINE_S
        while text not in self.shown:
            assert time.monotonic() < end_s, self.shown
            self.press(keys)
            for _ in range(5):
                self._read()

    def expect(self, text: str) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while text not in self.shown:
            assert time.monotonic() < end_s, self.shown
            self._read()

    def end(self) -> int:
        end_s = time.monotonic() + DEADLINE_S
        while os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            self._read()
            assert time.monotonic() < end_s, self.shown
        self.last_mode = self.mode()
        os.close(self._master)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], 0.2)
        if ready:
            try:
                data = os.read(self._master, 4096)
            except OSError:
                return False
            self.shown += data.decode(errors="replace").replace("\r\n", "\n")
            return bool(data)
        return True


def interrupt(session: Session) -> None:
    """Ctrl-C for a program of the shell; it flushes the keys behind it, so its echo is awaited."""
    session.press("sh -c 'echo be; echo gun; exec sleep 1000'\n")  # said by the program itself
    session.expect("be\ngun\n")
    session.press("\x03")
    session.expect("^C\n$ ")
