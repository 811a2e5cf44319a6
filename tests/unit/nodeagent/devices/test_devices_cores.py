"""How a host's cores are divided, by configuration, and which cores the master's numbers mean."""

from pathlib import Path

import pytest

from dlq_common.errors import ConfigError
from dlq_nodeagent.devices.cores import Division, JobCores, divide, host_cores
from dlq_nodeagent.model.mistakes import LaunchRefused

HOST = tuple(range(16))
GIB = 2**30


@pytest.mark.parametrize(
    ("wish", "gpus", "count"),
    [
        (Division(), 4, 0),  # as before there were jobs without GPUs
        (Division(cpus_per_gpu=3), 4, 4),
        (Division(cpus_per_gpu=8), 4, 0),
        (Division(cpus_per_gpu=3, job_cpus=1), 4, 1),
        (Division(job_cpus=6), 4, 6),
        (Division(), 0, 15),
        (Division(job_cpus=16), 0, 16),
        (Division(cpus=2), 0, 2),
        (Division(cpus=64, cpus_per_gpu=8), 4, 32),
    ],
)
def test_the_configuration_divides(wish: Division, gpus: int, count: int) -> None:
    assert divide(wish, HOST, 32 * GIB, gpus).count == count


def test_each_core_brings_its_share_of_the_memory() -> None:
    assert divide(Division(job_cpus=4), HOST, 32 * GIB, 2).memory_bytes == 2 * GIB
    wish = Division(job_cpus=4, cpus=8, memory_bytes=64 * GIB)
    assert divide(wish, HOST, 32 * GIB, 2).memory_bytes == 8 * GIB


@pytest.mark.parametrize(
    ("wish", "gpus", "words"),
    [
        (Division(job_cpus=17), 0, "17 cores for jobs without GPUs, and the node has 16"),
        (Division(job_cpus=16), 1, "16 cores for jobs without GPUs leave none for 1 GPUs"),
    ],
)
def test_what_cannot_be_divided_names_its_key(wish: Division, gpus: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        divide(wish, HOST, 32 * GIB, gpus)
    assert caught.value.what.startswith("node.job_cpus: ")


def test_numbers_begin_at_the_hosts_last_core_so_that_a_new_division_moves_none_that_stays() -> (
    None
):
    few, many = JobCores(4, GIB, HOST), JobCores(8, GIB, HOST)
    assert few.of((0, 3)) == many.of((0, 3)) == (12, 15)
    assert few.of_gpus == tuple(range(12))
    assert many.of_gpus == tuple(range(8))


def test_a_core_that_is_not_for_such_jobs_refuses_the_launch() -> None:
    with pytest.raises(LaunchRefused, match="gives 4 cores to jobs without GPUs: there is no num"):
        JobCores(4, GIB, HOST).of((3, 4))


def test_a_host_that_only_claims_its_cores_keeps_nobody_on_any() -> None:
    cores = divide(Division(cpus=64, job_cpus=32), HOST, 32 * GIB, 2)
    assert (cores.of((31,)), cores.of_gpus) == ((), ())


def test_threads_of_one_physical_core_stand_side_by_side(tmp_path: Path) -> None:
    for cpu in range(8):
        place = tmp_path / f"cpu{cpu}/topology"
        place.mkdir(parents=True)
        (place / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    assert host_cores(range(8), tmp_path) == (0, 4, 1, 5, 2, 6, 3, 7)
    assert host_cores(range(3), tmp_path / "none") == (0, 1, 2)
