"""What a trace and a cluster come to for policies that rent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlq_simulator.errors import DataError, UsageError
from dlq_simulator.priced.instance import RentingInstance, instance_of
from dlq_simulator.traces import parse_trace, read_trace
from dlq_simulator.world.clusters import read_cluster
from dlq_simulator.world.speed import Speed

GPUAAS = Path(__file__).parents[3] / "data" / "traces" / "gpuaas"
HEADER = "job_id,submit_time_s,num_gpus,duration_s,min_workers,max_workers,gpu_type,due_s,weight\n"
CATALOGUE = """
rent_at_most = 3
[[catalogue]]
name = "a4"
gpus = 4
gpu_type = "A"
price_per_hour = 4.0
boot_s = 60
minimum_billing_s = 600
[[catalogue]]
name = "b2"
gpus = 2
gpu_type = "B"
speed = 2.0
price_per_hour = 5
"""


def made(rows: str, directory: Path, cluster: str = CATALOGUE) -> RentingInstance:
    path = directory / "rent.toml"
    path.write_text(cluster)
    return instance_of(parse_trace("t.csv", HEADER + rows), read_cluster(str(path)), Speed())


def test_sizes_and_speeds_make_the_times_of_each_type(tmp_path: Path) -> None:
    instance = made("j,10,2,100,1,4,,500,0.5\n", tmp_path)
    (job,) = instance.jobs
    assert (job.due_s, job.weight, instance.nodes) == (510, 0.5, 3)
    assert instance.catalogue.types[0].boot_s == 60
    assert instance.catalogue.types[0].minimum_billing_s == 600
    assert job.time_s.tolist() == [[200, 100, 200 / 3, 50], [100, 50, np.inf, np.inf]]


def test_a_job_of_one_size_and_type_runs_on_nothing_else(tmp_path: Path) -> None:
    (job,) = made("j,0,2,100,,,B,500,\n", tmp_path).jobs
    assert np.argwhere(np.isfinite(job.time_s)).tolist() == [[1, 1]]
    assert job.weight == 1


def test_the_files_times_count_where_it_has_them() -> None:
    trace = read_trace(str(GPUAAS / "exp-10-100-0" / "Lof_Selectjobs.csv.gz"))
    instance = instance_of(trace, read_cluster(str(GPUAAS / "table_2.toml")), Speed())
    first = instance.jobs[0]
    assert (first.submit_s, first.due_s, first.weight) == (0.0, 16728.012, 0.007245)
    assert first.time_s[instance.catalogue.kinds.index("K80"), 2] == 24709.374
    assert first.time_s[instance.catalogue.kinds.index("M60"), 0] == 41654.007
    assert (len(instance.jobs), instance.nodes) == (100, 10)


def test_equal_nodes_can_be_rented_without_a_catalogue() -> None:
    trace = parse_trace("t.csv", HEADER + "j,0,2,100,1,4,,500,\n")
    instance = instance_of(trace, read_cluster("3x4"), Speed())
    assert (instance.nodes, instance.catalogue.most.tolist()) == (3, [4])


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("j,0,2,100,1,4,,,\n", r"line 2, column due_s; job 'j' has no due date"),
        ("j,0,8,100,,,,500,\n", r"line 2, column num_gpus; job 'j' fits on no node"),
        ("j,0,2,100,,,C,500,\n", "fits on no node"),
    ],
)
def test_rows_that_cannot_be_rented_for_name_their_cell(
    rows: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=told):
        made(rows, tmp_path)


def test_a_cluster_that_says_nothing_of_renting_is_refused(tmp_path: Path) -> None:
    two = '[[nodes]]\nname = "a"\ncount = 1\ngpus = 4\n[[nodes]]\nname = "b"\ncount = 1\ngpus = 2\n'
    with pytest.raises(UsageError, match="does not name the machines to rent"):
        made("j,0,2,100,1,4,,500,\n", tmp_path, two)
    with pytest.raises(UsageError, match="it has 0 nodes"):
        made("j,0,2,100,1,4,,500,\n", tmp_path, CATALOGUE.replace("rent_at_most = 3", ""))
