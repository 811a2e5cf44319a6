"""What `--cluster` takes: NODESxGPUS or a TOML file of node groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlq_simulator.errors import DataError, SimulateError, UsageError
from dlq_simulator.world.clusters import read_cluster

TWO_GROUPS = """
[[nodes]]
name = "p100"
count = 12
gpus = 4
gpu_type = "P100"
gpu_memory_gb = 16

[[nodes]]
count = 2
gpus = 8
"""


def test_nodes_times_gpus_is_one_group() -> None:
    cluster = read_cluster("15x4")
    assert (cluster.name, cluster.nodes, cluster.gpus) == ("15x4", 15, 60)
    assert [node_id for node_id, _ in cluster.each_node()][:2] == ["node-01", "node-02"]


def test_a_toml_file_lists_groups_in_order(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(TWO_GROUPS)
    cluster = read_cluster(str(path))
    assert (cluster.nodes, cluster.gpus) == (14, 64)
    assert cluster.groups[0].gpu_type == "P100"
    assert cluster.groups[0].memory_bytes == 16 * 2**30
    assert [node_id for node_id, _ in cluster.each_node()][-1] == "node-2"


@pytest.mark.parametrize("text", ["", "15", "x4", "15x", "15X4", "-1x4", "0x4", "3x0", "3x65"])
def test_other_words_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError):
        read_cluster(text)


def test_a_missing_file_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_cluster("nowhere.toml")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has no [[nodes]] table"),
        ("nodes = 3", "it has no [[nodes]] table"),
        ("nodes = [3]", "it is not a table"),
        ("[[nodes]", "it is not TOML"),
        ("[[nodes]]\ncount = 1", "gpus is not a whole number above 0"),
        ("[[nodes]]\ncount = true\ngpus = 1", "count is not a whole number above 0"),
        ("[[nodes]]\ncount = 1\ngpus = 1\ngpu_type = 3", "gpu_type is not a word"),
        ("[[nodes]]\ncount = 1\ngpu = 1", "unknown key 'gpu'; did you mean 'gpus'?"),
        ("[[node]]\ncount = 1", "unknown key 'node'; did you mean 'nodes'?"),
        ("[[nodes]]\ncount=1\ngpus=1\n[[nodes]]\ncount=1\ngpus=1", "the name 'node' is taken"),
    ],
)
def test_a_bad_file_is_a_data_error(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_cluster(str(path))
    assert why in str(caught.value)


def test_errors_name_their_exit_code() -> None:
    assert (UsageError.exit_code, DataError.exit_code, SimulateError.exit_code) == (2, 1, 1)
