"""Data staged by a job of a real cluster, before the job that reads it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from support.cli_run import Dlq, Said
from support.harness import Daemons

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/broker/test_data.py::test_the_program_holds_its_data_and_keeps_it_for_a_day"
    ),
]


BLOB = 600_000_000  # of zeros: reading it takes a second or two


class WithCores(Daemons):
    """Its nodes give a core to jobs without GPUs."""

    def _make_agent(self, name: str) -> None:
        super()._make_agent(name)
        config = self.root / f"{name}.toml"
        config.write_text(config.read_text().replace("[node]\n", "[node]\njob_cpus = 1\n"))


class DataSite:
    """One cluster, and a user with data that lies elsewhere."""

    def __init__(self, root: Path, cluster: Daemons) -> None:
        self.root, self.home, self.cluster = root, cluster.root / "home", cluster
        self.source, self.cache = root / "source", root / "cache"
        self.source.mkdir()
        (self.source / "words").write_text("it is here\n")
        with (self.source / "blob").open("wb") as file:
            file.truncate(BLOB)

    def dlq(self, *words: str) -> Said:
        with chdir("/tmp"):
            return Dlq(self.home, self.cluster.environment())(*words, patience_s=120.0)

    def said(self, *words: str) -> str:
        done = self.dlq(*words)
        assert done.code == 0, done.err
        return done.out

    def list_it(self) -> None:
        """The user's list, with what `dlq data describe` says."""
        told = self.said("data", "describe", "words", str(self.source))
        place = f'[transfer.a]\ncache = "{self.cache}"\ncache_gb = 1\nmb_per_s = 100\n'
        (self.home / "clusters.toml").write_text(f'[clusters.a]\nhome = "."\n{told}{place}')


@pytest.fixture
def site() -> Iterator[DataSite]:
    root = Path(tempfile.mkdtemp(prefix="dlqdata", dir="/tmp"))
    try:
        (root / "a").mkdir()
        with WithCores(root / "a", ("n1",)).up() as cluster:
            yield DataSite(root, cluster)
    finally:
        shutil.rmtree(root)


def test_a_job_reads_what_a_job_before_it_has_staged(site: DataSite) -> None:
    site.list_it()
    words = ("submit", "--to", "a", "--data", "words", "--gpus", "1", "--parsable", "--")
    done = site.dlq(*words, "/bin/sh", "-c", 'cat "$DATA_WORDS/words"')
    assert done.code == 0, done.err
    assert "GB of data come first" in done.err
    job = done.out.strip()
    assert site.dlq("wait", job).code == 0, site.said("show", job)
    assert site.said("logs", job) == "it is here\n"
    stage = f"a:{int(job.partition(':')[2]) - 1}"
    assert "stage words" in site.said("show", stage)
    assert "staged words: sha256:" in site.said("logs", stage)
    assert len(list((site.cache / "pins").iterdir())) == 1, "its data stays a day"

    ahead = site.said("data", "stage", "words", "--at", "a").strip()
    assert site.dlq("wait", ahead).code == 0
    (site.source / "words").write_text("other\n")  # and with it another content
    (site.home / "clusters.toml").write_text(
        (site.home / "clusters.toml").read_text().replace(f"bytes = {BLOB + 11}", "bytes = 1")
    )
    shutil.rmtree(site.cache)
    failed = site.said("data", "stage", "words", "--at", "a").strip()
    assert site.dlq("wait", failed).code != 0
    assert "other content" in site.said("logs", failed)
