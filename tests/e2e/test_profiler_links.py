"""Two hosts and a slow link: what the traffic on the fast one foretells is what then happens."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from scipy.stats import spearmanr

from dlq_profiler.directory import profile_directories
from dlq_profiler.injection import built, injected
from dlq_profiler.prediction import predict
from dlq_profiler.records.control import write_control
from dlq_profiler.results import JobProfile
from support.profiled_jobs import JOBS, TORCHRUN
from support.shaped_link import ShapedLink, shaped_link, why_no_links

pytestmark = [pytest.mark.e2e, pytest.mark.torch, pytest.mark.netns]

SLOW_MBIT = 200
SLACK = 0.10
LEAST_SPEARMAN = 0.9
PORT = 29_731
# Model, by how much it is shrunk, and the seconds that an iteration computes, on no CPU of this
# host: what it is busy with besides must not count as computing.
TRAININGS = (
    ("vgg16", 8, 0.1), ("vgg16", 16, 0.1), ("alexnet", 8, 0.3), ("googlenet", 1, 0.6),
    ("resnet50", 4, 1.0), ("gpt", 8, 1.8), ("vgg16", 64, 1.6), ("inception3", 32, 1.5),
)  # fmt: skip


class Trained(NamedTuple):
    """One training on both links."""

    rho: float
    slowdown: float
    low: float
    high: float

    @property
    def within(self) -> bool:
        return self.low * (1 - SLACK) <= self.slowdown <= self.high * (1 + SLACK)


@pytest.fixture(scope="module")
def link() -> Iterator[ShapedLink]:
    if missing := why_no_links():
        pytest.skip(missing)
    with shaped_link() as made:
        yield made


def test_rho_foretells_who_suffers_from_a_slow_link(link: ShapedLink, tmp_path: Path) -> None:
    batches = []
    for batch in range(2):  # a busy host may spoil one, hardly both
        found = [
            trained(link, tmp_path / f"{batch}-{place}", *training)
            for place, training in enumerate(TRAININGS)
        ]
        order = float(spearmanr([one.rho for one in found], [one.slowdown for one in found])[0])
        batches.append((order, found))
        if order >= LEAST_SPEARMAN and all(one.within for one in found):
            return
    pytest.fail(f"in both batches: {batches}")


def trained(link: ShapedLink, where: Path, model: str, shrunk: int, compute_s: float) -> Trained:
    link.shape(None)
    fast_s, profile = run(link, where, model, shrunk, compute_s)
    link.shape(SLOW_MBIT)
    slow_s, _ = run(link, where.with_name(f"{where.name}-slow"), model, shrunk, compute_s)
    predicted = predict(profile, {"slow": SLOW_MBIT * 1e6 / 8})
    assert predicted is not None, profile.traffic
    found = predicted["slow"]
    return Trained(found.rho, slow_s / fast_s, found.bounds.low, found.bounds.high)


def run(
    link: ShapedLink, where: Path, model: str, shrunk: int, compute_s: float
) -> tuple[float, JobProfile]:
    """Seconds of an iteration, as the job says, and its profile; a host for each of two ranks."""
    parts = built()
    assert parts is not None
    python = TORCHRUN.with_name("python")
    directories = [where / host for host in link.hosts]
    with ExitStack() as stack:
        ranks = []
        for rank, directory in enumerate(directories):
            directory.mkdir(parents=True)
            write_control(directory)
            environment = {
                **os.environ, **injected(os.environ, directory, parts),
                "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": link.addresses[0],
                "MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": "wire0", "OMP_NUM_THREADS": "1",
            }  # fmt: skip
            words = (python, JOBS / "ddp_job.py", model, "--iterations", "6",
                     "--shrunk", str(shrunk), "--compute-s", str(compute_s))  # fmt: skip
            ranks.append(
                stack.enter_context(
                    subprocess.Popen(
                        link.command(rank, words),
                        env=environment,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                )
            )
        told = [rank.communicate(timeout=600)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    profile, refused = profile_directories(directories)
    assert refused == ()
    return float(json.loads(told[0])["period_s"]), profile
