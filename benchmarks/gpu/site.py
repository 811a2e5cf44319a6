"""One master and one agent on this machine's GPUs, and jobs of ours there."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.check import ClaimBroken, CouldNot
from benchmarks.gpu.evidence import AGENT_LOG
from benchmarks.gpu.jobs.notes import Notes, now_s
from benchmarks.gpu.machine import PASSED, PATIENCE, Machine, no_account, no_shim
from benchmarks.gpu.watching import Watched, wait

if TYPE_CHECKING:
    from benchmarks.support.living import Living

NODE = "gpu"
# One core for a job without GPUs; and what the agent sees is known at once.
AGENT = """
[node]
job_cpus = 1
[suspend]
memory = "256GiB"
spare = "1GiB"
[gpus]
look_every = "1s"
figures_every = "1s"
"""
ENDED = ("completed", "failed", "cancelled", "timed_out")
STATE_EVERY_S = 2.0 * PATIENCE  # the state of a job that we wait for; it takes a process to ask
ASK_S = 0.5  # between two commands of ours
LAST_LINES = 8  # of the output of a job that ended too early


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job, and what it noted."""

    job_id: str
    notes: Notes
    site: Site = field(repr=False, compare=False)

    def noted(self, what: str, patience_s: float, count: int = 1) -> dict[str, Any]:
        """Its note of this word, as soon as there are so many. Raises ClaimBroken, and does so at
        once when the job has ended without it.
        """
        look_at_s = now_s() + STATE_EVERY_S

        def seen() -> bool:
            nonlocal look_at_s
            found = len(self.notes.all(what)) >= count
            if not found and now_s() >= look_at_s:
                self._refuse_if_ended(what, count)
                look_at_s = now_s() + STATE_EVERY_S
            return found

        wait(seen, patience_s, f"job {self.job_id} noted {what!r}")
        return self.notes.all(what)[count - 1]

    def _refuse_if_ended(self, what: str, count: int) -> None:
        job = self.site.job(self)
        if job["state"] not in ENDED or len(self.notes.all(what)) >= count:
            return
        last = " | ".join(self.site.output(self, LAST_LINES).strip().splitlines())
        raise ClaimBroken(
            f"job {self.job_id} ended ({job['state']}, {job['end_reason']}) before it noted "
            f"{what!r}; its last output: {last or 'none'}"
        )


@dataclass
class Site:
    """A check works with this. `cluster` is started when it is first asked for."""

    machine: Machine
    root: Path
    _cluster: Living | None = None
    _jobs: list[Submitted] = field(default_factory=list)

    @property
    def cluster(self) -> Living:
        """A master and an agent on the real devices. Raises CouldNot where they cannot be."""
        if self._cluster is None:
            if why := no_account() or no_shim():
                raise CouldNot(why)
            # Late: most checks need no master, and no package that only a master needs.
            from benchmarks.support.living import Living

            living = Living(self.root)
            living.environment |= {name: os.environ[name] for name in PASSED if name in os.environ}
            self._cluster = living.__enter__()
            # Only tests set this: a check must see a GPU that is given out too early.
            spoiled = os.environ.get("GPU_FREE_BELOW")
            more = f'free_below = "{spoiled}"\n' if spoiled else ""
            living.start_agent(NODE, "nvml", AGENT + more)
        return self._cluster

    @property
    def agent_log(self) -> str:
        """All that the agent has written."""
        return (self.root / AGENT_LOG).read_text(errors="replace")

    @cached_property
    def gpu_count(self) -> int:
        """GPUs of this machine."""
        return len(Watched().devices.devices())

    def submit(self, program: str, *words: object, on_gpus: bool = True) -> Submitted:
        """Queue one of our programs (benchmarks/gpu/jobs); its notes are its first word.

        It asks for all GPUs, and works on the first: that is the one that checks watch.
        """
        notes = self.root / f"notes.{len(self._jobs)}"
        environment = [f"--env={name}={it}" for name, it in self.machine.environment().items()]
        kind = [f"--gpus={self.gpu_count}"] if on_gpus else ["--gpus=0", "--cpus=1"]
        command = self.command(program, str(notes), *words)
        said = self.cluster.run("dlq", "submit", "--parsable", *kind, *environment, "--", *command)
        self._jobs.append(Submitted(said.strip(), Notes(notes), self))
        return self._jobs[-1]

    def command(self, program: str, *words: object) -> list[str]:
        """The command of one of our programs."""
        module = f"benchmarks.gpu.jobs.{program}"
        return [self.machine.job_python, "-m", module, *map(str, words)]

    def environment(self) -> Mapping[str, str]:
        """For a program of ours that runs beside dlq."""
        return {**os.environ, **self.machine.environment()}

    def job(self, submitted: Submitted) -> dict[str, Any]:
        """The job as `dlq show` has it."""
        found: dict[str, Any] = self.ask("show", submitted.job_id)["jobs"][0]
        return found

    def gpu(self) -> dict[str, Any]:
        """The first GPU as `dlq gpus` has it."""
        found: dict[str, Any] = self.ask("gpus")["gpus"][0]
        return found

    def ask(self, *words: str) -> dict[str, Any]:
        """A command of ours, with --json."""
        found: dict[str, Any] = json.loads(self.cluster.run("dlq", *words, "--json"))
        return found

    def ended(self, submitted: Submitted, patience_s: float = 30.0) -> dict[str, Any]:
        """The job, as soon as it has ended. Raises ClaimBroken."""
        what = f"job {submitted.job_id} has ended"
        wait(lambda: self.job(submitted)["state"] in ENDED, patience_s, what, ASK_S)
        return self.job(submitted)

    def output(self, submitted: Submitted, lines: int | str = "all") -> str:
        """The last lines of a job's output, or why they cannot be had."""
        try:
            return self.cluster.run("dlq", "logs", "-n", str(lines), submitted.job_id)
        except RuntimeError as error:
            return str(error)

    def keep_outputs(self) -> None:
        """Put the output of each job beside the logs of the daemons."""
        for job in self._jobs:
            (self.root / f"output.{job.job_id}").write_text(self.output(job))

    def close(self) -> None:
        """End jobs and daemons, whatever has happened."""
        if self._cluster is not None:
            with suppress(Exception):
                self.end_jobs()
            self._cluster.__exit__(None, None, None)
        end_all(self.root)

    def end_jobs(self) -> None:
        """Cancel what still runs or waits, and wait for it."""
        left = [job for job in self._jobs if self.job(job)["state"] not in ENDED]
        for job in left:
            self.ask("cancel", "-y", job.job_id)
        for job in left:
            self.ended(job)


@contextmanager
def opened(machine: Machine, root: Path) -> Iterator[Site]:
    """A site that is closed again."""
    site = Site(machine, root)
    try:
        yield site
    finally:
        site.close()


def end_all(root: Path) -> None:
    """Kill all that still names this directory: daemons and jobs of a check that was ended."""
    word = os.fsencode(str(root))
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            words = Path(entry.path, "cmdline").read_bytes().split(b"\0")
            if any(each.startswith(word) for each in words):
                os.kill(int(entry.name), signal.SIGKILL)
