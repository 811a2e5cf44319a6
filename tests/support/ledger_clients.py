"""Users of a cluster whose daemons die: they write down every answer, and a program that knows
nothing of the product compares it with what the jobs wrote themselves (ledger_check.py).
"""

import json
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from support.cutting_proxy import CuttingProxy
from support.fake_clock import SeededIds
from support.harness import Daemons
from support.waiting import wait_while_it_moves

LOST_REPLIES = 0.10
DRAIN_S = 180.0  # without the end of any job
USUAL_PAUSES_S = (0.1, 0.6)  # of a client between two jobs


class Client(threading.Thread):
    """A user who submits, sometimes asks again, sometimes cancels, and writes down every answer."""

    def __init__(
        self,
        daemons: Daemons,
        address: str,
        number: int,
        promises: "Promises",
        seed: int,
        *,
        pauses_s: tuple[float, float] = USUAL_PAUSES_S,
    ) -> None:
        super().__init__(name=f"client-{number}")
        self._daemons = daemons
        self._address = address
        self._chance = random.Random(f"{seed}/{number}")
        self._ids = SeededIds(seed * 1_000 + number)
        self._promises = promises
        self._pauses_s = pauses_s
        self._enough = threading.Event()
        self.failure: BaseException | None = None

    def stop(self) -> None:
        """Finish the request at hand, then leave."""
        self._enough.set()

    def run(self) -> None:
        try:
            with self._daemons.connect_as_user(self._address) as line:
                jobs = Jobs(line)
                while not self._enough.wait(self._chance.uniform(*self._pauses_s)):
                    self._one_job(jobs)
        except BaseException as failure:  # noqa: BLE001 - raised again by the test
            self.failure = failure

    def _one_job(self, jobs: Jobs) -> None:
        nodes = self._chance.choice((1, 1, 1, 1, 2))
        # A rank of a gang that fails ends the others, which is not what is looked at here.
        code = self._chance.choice((0, 0, 3, 77)) if nodes == 1 else 0
        seconds = self._chance.choice((0.0, 0.1, 0.5, 1.0, 3.0, 6.0))
        spec = self._daemons.ledger_job(seconds, code, nodes=nodes)
        key = self._ids.request_id()
        job_id = ""
        for _ in range(self._chance.choice((1, 1, 1, 2))):
            job_id = jobs.submit(spec, request_id=key).job.job_id
            self._promises.write(
                what="accepted", request_id=key, job_id=job_id, exit_code=code, ranks=nodes
            )
        if self._chance.random() < 0.08:
            state = jobs.cancel(job_id).state
            self._promises.write(
                what="cancelled", job_id=job_id, state=job_pb2.JobState.Name(state)
            )


class Promises:
    """The clients' own record."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.touch()

    def write(self, **facts: object) -> None:
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps(facts) + "\n")


class Worker(Protocol):
    """A thread that works until it is told to stop, and keeps what it failed with."""

    failure: BaseException | None

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def join(self) -> None: ...


@contextmanager
def at_work(crowd: Sequence[Worker]) -> Iterator[None]:
    """All of them at work until the end of the block; then the first failure is raised."""
    for client in crowd:
        client.start()
    try:
        yield
    finally:
        for client in crowd:
            client.stop()
        for client in crowd:
            client.join()
    for client in crowd:
        if client.failure is not None:
            raise client.failure


@contextmanager
def load(
    daemons: Daemons, seed: int, clients: int = 3, pauses_s: tuple[float, float] = USUAL_PAUSES_S
) -> Iterator[CuttingProxy]:
    """Clients at work until the end of the block; then everything that was accepted runs out, and
    the run is judged."""
    promises = Promises(daemons.root / "promises")
    with CuttingProxy(daemons.api, share=LOST_REPLIES, seed=seed).running() as proxy:
        crowd = [
            Client(daemons, proxy.address, number, promises, seed, pauses_s=pauses_s)
            for number in range(clients)
        ]
        with at_work(crowd):
            yield proxy


def drain(daemons: Daemons) -> dict[str, int]:
    """Wait until every job has ended and let the checker judge. A long queue on a busy machine is
    no hang: only if no job ends for a while, it gives up.
    """
    with daemons.connect() as line:
        jobs = Jobs(line)
        wait_while_it_moves(
            lambda: not living(jobs), lambda: living(jobs), what="jobs end", still_s=DRAIN_S
        )
        daemons.write_rows(jobs)
    return daemons.judge()


def living(jobs: Jobs) -> int:
    """So many jobs that have not ended."""
    return sum(not job.HasField("end_time") for job in jobs.list(user="*").jobs)


def kill_at_random(daemons: Daemons, master: int, agents: int, chance: random.Random) -> None:
    """So many kills, each at a random moment; every third one hits a daemon that still starts."""
    pause = threading.Event()
    victims = ["master"] * master + [chance.choice(daemons.agents) for _ in range(agents)]
    chance.shuffle(victims)
    for victim in victims:
        pause.wait(chance.uniform(0.0, 1.0))
        daemons.kill(victim)
        pause.wait(chance.uniform(0.0, 0.7))
        daemons.start(victim)
        if chance.random() < 0.67:
            daemons.wait_for(victim)
    for name in ("master", *daemons.agents):
        daemons.wait_for(name)
