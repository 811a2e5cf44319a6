"""A program on a terminal of its own: what it shows, keys pressed, and how it ends."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self

DEADLINE_S = 60.0


def _plain(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what whoever runs the tests thinks of colours."""
    return {key: value for key, value in environ.items() if key != "NO_COLOR"}


@contextmanager
def _hearing_ctrl_c() -> Iterator[None]:
    """A shell that runs the tests in the background has them ignore Ctrl-C, and who they start
    inherits that; a terminal's programs hear it. Set here and not in a `preexec_fn`: that makes a
    fork of all of this process, the threads of whose gRPC servers do not always survive it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Terminal:
    """Starts a program whose stdin, stdout and stderr are one pseudo terminal."""

    def __init__(self, command: list[str], environ: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        with _hearing_ctrl_c():
            self._process = subprocess.Popen(
                command, stdin=slave, stdout=slave, stderr=slave,
                env={**_plain(os.environ), "TERM": "xterm", "COLUMNS": "100", **environ},
                start_new_session=True, close_fds=True,
            )  # fmt: skip
        os.close(slave)
        self.shown = ""

    def expect(self, text: str) -> None:
        """Read until this text was shown; AssertionError with all that was, if it never is."""
        while text not in self.shown:
            assert self._read(), f"{text!r} was not shown, but: {self.shown}"

    def press(self, keys: str) -> None:
        """Keys on its keyboard."""
        os.write(self._master, keys.encode())

    def interrupt(self) -> None:
        """Ctrl-C, as the terminal driver sends it to the foreground."""
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Read to the end; the exit code."""
        deadline_s = time.monotonic() + DEADLINE_S
        while self._read():  # what goes on printing does not end either
            assert time.monotonic() < deadline_s, f"it did not end, but showed: {self.shown}"
        return self._process.wait(DEADLINE_S)

    def _read(self) -> bool:
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            ready, _, _ = select.select([self._master], [], [], 0.1)
            if ready:
                try:
                    data = os.read(self._master, 4096)
                except OSError:
                    return False
                self.shown += data.decode("utf-8", "replace").replace("\r\n", "\n")
                return bool(data)
            if self._process.poll() is not None:
                return False
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)
