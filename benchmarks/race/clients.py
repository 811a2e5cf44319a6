"""Client processes that begin together: ready, go, done."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Self


class Clients:
    """Processes that say "ready", wait for a line, work, and say "done"."""

    def __init__(self, commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> None:
        self._processes = [
            subprocess.Popen(
                words,
                env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for words in commands
        ]  # fmt: skip

    def __enter__(self) -> Self:
        self._hear("ready")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def go(self) -> float:
        """Seconds from the start signal to the last one's end."""
        begin_s = time.perf_counter()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        self._hear("done")
        return time.perf_counter() - begin_s

    def _hear(self, word: str) -> None:
        for process in self._processes:
            assert process.stdout is not None
            said = process.stdout.readline().strip()
            if said != word:
                raise RuntimeError(f"a client said {said!r} instead of {word!r}")
