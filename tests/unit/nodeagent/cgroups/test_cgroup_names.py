"""Agents that share a host do not share control groups."""

from pathlib import Path

from dlq_nodeagent.cgroups.detect import detect, node_group


def test_nodes_of_two_clusters_with_one_name_have_groups_of_their_own(tmp_path: Path) -> None:
    assert node_group("n1", tmp_path / "one") != node_group("n1", tmp_path / "two")


def test_the_next_agent_over_the_same_directory_has_the_same_groups(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert node_group("n1", tmp_path / "state") == node_group("n1", tmp_path / "link" / "state")


def test_the_longest_node_id_still_gives_the_name_of_a_group(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    for name in ("mounts", "cgroup"):
        (tmp_path / "self" / name).write_text("")
    assert detect(node_group("n" * 64, tmp_path), proc=tmp_path).mode == "none"
