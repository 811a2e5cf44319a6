"""The database servers of `make demo-ha`, where they are missing."""

from pathlib import Path

import pytest

import cluster
import servers


@pytest.mark.parametrize("found", [None, "14", "broken"])
def test_a_host_without_postgresql_is_told_what_to_install(
    tmp_path: Path, found: str | None
) -> None:
    if found is not None:
        (tmp_path / found / "bin").mkdir(parents=True)
        (tmp_path / found / "bin/initdb").touch()
    told = r"PostgreSQL 15 or newer.*apt-get install postgresql"
    with pytest.raises(servers.Missing, match=told):
        servers.programs(tmp_path)


def test_the_newest_one_is_taken(tmp_path: Path) -> None:
    for version in ("15", "9", "17"):
        (tmp_path / version / "bin").mkdir(parents=True)
        (tmp_path / version / "bin/initdb").touch()
    assert servers.programs(tmp_path) == tmp_path / "17/bin"


def test_a_port_is_given_once() -> None:
    """Servers begin to listen after all ports are chosen."""
    ports = cluster.free_ports(3) + cluster.free_ports(3)
    assert len(set(ports)) == 6
