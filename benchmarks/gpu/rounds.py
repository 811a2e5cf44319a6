"""A training is suspended and resumed again and again: the times of each round, and its losses.

    python -m benchmarks.gpu.rounds [--rounds 200] [--bytes N] [--job-python PROGRAM]
                                    [--stand-in numpy]

It has two children: one that holds GPU memory too, and one that does not use CUDA. In each round it
makes a step. Where the driver can, and there is a second GPU of the type, every round ends on the
other one. The exit code is 1 if a loss or the state differs from a training without suspension. So
it is if the memory of the child has changed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.gpu.check import ClaimBroken, CouldNot
from benchmarks.gpu.jobs.notes import Notes
from benchmarks.gpu.machine import STAND_INS, Machine, interpreter
from benchmarks.gpu.site import Site
from benchmarks.gpu.watching import Watched, wait
from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import Bytes
from dlq_nodeagent.devices.port import RELEASED_MEMORY_BYTES
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.runtimes.process.shim_process import session_pids
from dlq_nodeagent.suspension.port import (
    MoveBroken,
    MoveOrder,
    MoveRefused,
    NotOnRecord,
    SuspendConfig,
)
from dlq_nodeagent.suspension.standstill import SessionStandstill
from dlq_nodeagent.suspension.suspender import HostSuspender, open_suspender

ROUNDS, BYTES = 200, 2 * 10**9
START_S, STEP_S = 20.0, 0.01
CHILD_BYTES = 64 << 20


@dataclass
class Mover:
    """Moves one process with its children, as the agent moves a rank."""

    suspender: HostSuspender
    order: MoveOrder

    @classmethod
    def of(cls, suspender: HostSuspender, pid: int) -> Mover:
        """`pid` leads a session."""
        uuids = tuple(device.uuid for device in suspender.devices.devices()[:1])
        still = SessionStandstill(lambda: frozenset(session_pids(pid, 0)))
        return cls(suspender, MoveOrder(key=RankKey("1", 1, 0), uuids=uuids, still=still))

    def round(self, onto: tuple[str, ...] = ()) -> tuple[float, float]:
        """Seconds of both ways. `onto`: it is on these GPUs afterwards; empty: on the same."""
        try:
            order = self._recorded()
            out_s = self.suspender.suspend(order).took_s
            back_s = self.suspender.resume(replace(order, onto=onto)).took_s
        except (MoveRefused, MoveBroken) as error:
            raise CouldNot(f"the process was not moved: {error}") from None
        self.order = replace(self.order, uuids=onto or self.order.uuids)
        return out_s, back_s

    def other(self) -> tuple[str, ...]:
        """Another GPU of the type, to which it may come back; empty: there is none."""
        found = self.suspender.devices.devices()
        here = next(device for device in found if device.uuid in self.order.uuids)
        others = [it.uuid for it in found if it != here and it.gpu_type == here.gpu_type]
        return tuple(others[:1]) if not self.suspender.own_only else ()

    def _recorded(self) -> MoveOrder:
        """The order with the processes that leave, which the agent puts on record before."""
        try:
            self.suspender.suspend(self.order)
        except NotOnRecord as found:
            return replace(self.order, pids=found.pids, nbytes=found.nbytes)
        raise CouldNot("the process does not use CUDA")


@dataclass
class Rounds:
    """All rounds of one training. `whole`: the memory of the child is as it was."""

    seconds: list[tuple[float, float]] = field(default_factory=list)
    processes: int = 0
    on_others: int = 0
    differ: int = 0
    same_state: bool = False
    whole: bool = False

    def broken(self) -> str:
        """The first difference from a training that was never suspended; empty: there is none."""
        if self.differ:
            return f"{self.differ} losses differ"
        if not self.same_state:
            return "the state differs"
        return "" if self.whole else "the memory of its child is not as it was"


def opened(nbytes: int) -> HostSuspender:
    """The agent's own code on the driver of this host, with room for so many bytes."""
    config = SuspendConfig(memory=Bytes(2 * nbytes + 2 * CHILD_BYTES), spare=Bytes(0))
    return open_suspender(config, Watched().devices, RELEASED_MEMORY_BYTES, SteadyClock())


def trained(site: Site, suspender: HostSuspender, nbytes: int, rounds: int) -> Rounds:
    """Suspend a training once in each of its steps but the last, before which it would end."""
    words = (nbytes, f"--steps={rounds + 1}", f"--step-s={STEP_S}")
    with started(site, "train", *words, name="whole") as (_, notes):
        wait(lambda: notes.all("ended"), START_S + rounds, "a training has ended")
        expected = notes.all("ended")[0]
    pace, seen = site.root / "pace", Rounds()
    pace.write_bytes(b"")
    with (
        _family(site, (*words, f"--pace={pace}")) as (process, notes, child),
        pace.open("ab", buffering=0) as steps,
    ):
        mover = Mover.of(suspender, process.pid)
        for _ in range(rounds):
            steps.write(b".")
            seen.seconds.append(mover.round(onto := mover.other()))
            seen.on_others += bool(onto)
        seen.processes = len(mover.order.still.pids())
        steps.write(b".")
        wait(lambda: notes.all("ended"), START_S + rounds, "the suspended training has ended")
        ended = notes.all("ended")[0]
        os.kill(child.all("holding")[0]["pid"], signal.SIGTERM)
        wait(lambda: child.all("whole"), START_S, "the child has looked at its memory")
        seen.whole = child.all("whole")[0]["whole"]
    seen.differ = sum(a != b for a, b in zip(ended["losses"], expected["losses"], strict=True))
    seen.same_state = ended["digest"] == expected["digest"]
    return seen


@contextmanager
def started(
    site: Site, program: str, size: int, *words: object, name: str = ""
) -> Iterator[tuple[subprocess.Popen[bytes], Notes]]:
    """One of our programs in a session of its own."""
    path = site.root / f"notes.{name or size}"
    with _session(site, site.command(program, path, size, *words)) as process:
        yield process, Notes(path)


@contextmanager
def _family(
    site: Site, words: tuple[object, ...]
) -> Iterator[tuple[subprocess.Popen[bytes], Notes, Notes]]:
    """A training with its children, once it trains and the child holds its memory."""
    notes, child = Notes(site.root / "notes.moved"), Notes(site.root / "notes.child")
    holds = shlex.join(site.command("hold", site.root / "notes.child", CHILD_BYTES))
    trains = shlex.join(site.command("train", site.root / "notes.moved", *words))
    script = f"sleep 100000 & {holds} & exec {trains}"
    with _session(site, ["/bin/sh", "-c", script]) as process:
        wait(lambda: child.all("holding"), START_S, "the child holds its memory")
        wait(lambda: notes.all("trains"), START_S, "the training has begun")
        yield process, notes, child


@contextmanager
def _session(site: Site, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=site.environment(), start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> None:
    """Tell each round, and what differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--bytes", type=int, default=BYTES)
    parser.add_argument("--job-python", default="", help="it has PyTorch (default: python3)")
    parser.add_argument("--stand-in", default="", choices=("", *STAND_INS))
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    machine = Machine(interpreter(chosen.job_python, chosen.stand_in), chosen.stand_in)
    if why := machine.lacks(("nvml", "cuda", "torch")):
        sys.exit(f"not here: {why}")
    suspender = opened(chosen.bytes)
    if suspender.why_not:
        sys.exit(f"not here: {suspender.why_not}; 570 or newer suspends")
    with tempfile.TemporaryDirectory() as root:
        try:
            seen = trained(Site(machine, Path(root)), suspender, chosen.bytes, chosen.rounds)
        except (ClaimBroken, CouldNot) as error:
            sys.exit(str(error))
    if chosen.json:
        print(json.dumps({**vars(seen), "broken": seen.broken()}))
    else:
        for number, (out_s, back_s) in enumerate(seen.seconds, 1):
            print(f"round {number}: off in {out_s:.3f} s, back in {back_s:.3f} s")
        print(f"{seen.processes} processes; {seen.on_others} rounds ended on another GPU")
    sys.exit(seen.broken() or 0)


if __name__ == "__main__":
    main()
