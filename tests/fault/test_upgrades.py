"""Upgrades and downgrades under load: whatever each release has acknowledged, the other knows.

Former releases and this tree take turns on the same state directories, while clients submit and
jobs run (tests/support/two_releases.py). Only the way back to the last release needs a cluster
without jobs. The ledger of the jobs says what was lost (tests/support/ledger_check.py). `make
upgrades N=100` changes the whole cluster a hundred times between the last release and this tree,
and ten times between a near one and this tree.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import Dependency, Relation, Term
from dlq_master.model.jobs.job import Job
from dlq_master.store.batch import Batch
from dlq_master.store.sqlite.halves import Writer
from dlq_master.store.sqlite.open import create_database
from support.ledger_clients import Client, Promises, at_work, drain, load
from support.pair_releases import PairReleases
from support.postgres_site import PostgresSite, need_postgres, postgres_site
from support.proofs import proved
from support.stored_values import a_job, first_batch, mixed_batch
from support.two_releases import (
    LAST,
    NAMED,
    NEAR,
    PAIRED,
    PRESENT,
    NoHistory,
    Releases,
    former_release,
)
from support.wheels import ROOT

N = int(os.environ.get("N", "100"))
SEED = int(os.environ.get("SEED", "1"))
AT_ONCE = 10  # changes, then all jobs run out: jobs wait while daemons change
LOADED = """
import sys
from pathlib import Path
from dlq_master.store.reader import Reader
from dlq_master.store.writer import Writer
path = Path(sys.argv[1])
Writer(path).close()
print(len(Reader(path).load().jobs))
"""


@pytest.fixture(scope="module")
def former() -> dict[str, Path]:
    try:
        return {name: former_release(name) for name in (LAST, NEAR)}
    except NoHistory as error:
        pytest.skip(str(error))


def turns(changes: int) -> list[str]:
    """So many changes between the last release and this tree, in both directions; then a tenth as
    many between a near one and this tree.
    """
    last = [PRESENT if number % 2 else LAST for number in range(changes + 1)]
    near = [NEAR if number % 2 == 0 else PRESENT for number in range(max(2, changes // 10))]
    return [*last, *([] if last[-1] == PRESENT else [PRESENT]), *near]


def stretches(releases: Sequence[str]) -> Iterator[list[str]]:
    """Changes under one load, at most AT_ONCE; jobs wait meanwhile, and run out afterwards.

    A change back to the last release stands alone, on a cluster without jobs. Its agents do not
    read this tree's records of ranks, and its masters do not read a job that was started again.
    """
    stretch: list[str] = []
    for release in releases:
        if stretch and (release == LAST or len(stretch) == AT_ONCE):
            yield stretch
            stretch = []
        if release == LAST:
            yield [LAST]
        else:
            stretch.append(release)
    if stretch:
        yield stretch


def changes_with(release: str, releases: Sequence[str]) -> int:
    """So many changes lead to this release or away from it."""
    return sum(release in pair for pair in pairwise(releases))


def changed_under_load(root: Path, former: dict[str, Path], *releases: str) -> dict[str, int]:
    """Begin with the first release, and go to each other one; the counts of the ledger's judge."""
    daemons, chance = Releases(root, former, releases[0]), random.Random(SEED)
    replies = cuts = 0
    found: dict[str, int] = {}
    with daemons.up():
        for number, stretch in enumerate(stretches(releases[1:])):
            if stretch == [LAST]:
                daemons.change_all(LAST, chance)
                continue
            with load(daemons, SEED * 1_000 + number) as proxy:
                for release in stretch:
                    daemons.change_all(release, chance)
            replies, cuts = replies + proxy.replies, cuts + proxy.cuts
            found = drain(daemons)
            print(f"{sum(daemons.changes.values())} daemons: {json.dumps(found)}", flush=True)  # noqa: T201 - a run takes minutes
        for name in ("master", *daemons.agents):
            assert daemons.seen(name) == set(releases)
        proved(
            "upgrades",
            changes=len(releases) - 1,
            changes_with_the_last_release=changes_with(LAST, releases),
            changes_with_a_near_one=changes_with(NEAR, releases),
            daemons_changed=sum(daemons.changes.values()),
            kills=sum(daemons.kills.values()),
            replies=replies,
            replies_lost=cuts,
            seed=SEED,
            **found,
        )
    return found


@pytest.mark.long("unit/master/store/test_store_open.py")
def test_this_tree_takes_over_from_the_last_release_goes_back_to_a_near_one_and_loses_nothing(
    tmp_path: Path, former: dict[str, Path]
) -> None:
    found = changed_under_load(tmp_path, former, LAST, PRESENT, NEAR, PRESENT)
    assert found["accepted"] > 0
    assert found["more_than_one_attempt"] == 0


@pytest.mark.torture
def test_many_upgrades_and_downgrades_lose_nothing(tmp_path: Path, former: dict[str, Path]) -> None:
    found = changed_under_load(tmp_path, former, *turns(N))
    assert found["accepted"] > 0
    assert found["more_than_one_attempt"] == 0


@pytest.fixture
def site() -> Iterator[PostgresSite]:
    need_postgres()
    with postgres_site() as made:
        yield made


def changed_pair(root: Path, site: PostgresSite, changes: int) -> dict[str, int]:
    """Two masters and two agents, each to a former release and back, under one load."""
    try:
        former = {PAIRED: former_release(PAIRED)}
    except NoHistory as error:
        pytest.skip(str(error))
    daemons, chance = PairReleases(root, site.primary, former), random.Random(SEED)
    promises = Promises(root / "promises")
    # A busy machine must not end with a long queue.
    crowd = [
        Client(daemons, "", number, promises, SEED, pauses_s=(0.5, 2.0)) for number in range(2)
    ]
    with daemons.up():
        daemons.start_standby()
        with at_work(crowd):
            for number in range(changes):
                daemons.change_all(PRESENT if number % 2 else PAIRED, chance)
        found = drain(daemons)
        for name in daemons.releases:
            assert daemons.seen(name) == {PAIRED, PRESENT}
        proved(
            "upgrades of a pair",
            changes_of_a_pair=changes,
            daemons_changed=sum(daemons.changes.values()),
            kills=sum(daemons.kills.values()),
            seed=SEED,
            **found,
        )
    return found


@pytest.mark.long("integration/test_masters.py")
def test_a_pair_goes_back_to_a_former_release_and_forth_and_loses_nothing(
    tmp_path: Path, site: PostgresSite
) -> None:
    found = changed_pair(tmp_path, site, 2)
    assert found["accepted"] > 0
    assert found["more_than_one_attempt"] == 0


@pytest.mark.torture
def test_many_upgrades_and_downgrades_of_a_pair_lose_nothing(
    tmp_path: Path, site: PostgresSite
) -> None:
    found = changed_pair(tmp_path, site, max(2, N // 5 // 2 * 2))
    assert found["accepted"] > 0
    assert found["more_than_one_attempt"] == 0


def test_the_changes_are_those_between_the_last_release_and_this_tree() -> None:
    for count in (1, 6, 100):
        those = turns(count)
        assert those[0] == LAST
        assert changes_with(LAST, those) == count + (those[count] == LAST)
        assert changes_with(NEAR, those) >= 2
        assert all(PRESENT in pair and len(set(pair)) == 2 for pair in pairwise(those))
        parts = [*stretches(those[1:])]
        assert [each for part in parts for each in part] == those[1:]
        assert all(part == [LAST] or LAST not in part for part in parts)


def written(path: Path, *more: Batch) -> Path:
    """A database that this tree has written, with rows of every table."""

    async def write() -> None:
        writer = Writer(path)
        for batch in (first_batch(), mixed_batch(), *more):
            await writer.commit(batch)
        writer.close()

    create_database(path)
    asyncio.run(write())
    return path


def loaded_by(release: Path, path: Path) -> subprocess.CompletedProcess[str]:
    """This release opens this database, migrates it and loads it."""
    return subprocess.run(
        [sys.executable, "-P", "-c", LOADED, str(path)],
        env={"PYTHONPATH": str(release)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long("unit/master/store/test_store_open.py")
@pytest.mark.parametrize("name", [LAST, NEAR])
def test_a_former_release_loads_each_table_that_this_one_writes(
    tmp_path: Path, former: dict[str, Path], name: str
) -> None:
    done = loaded_by(former[name], written(tmp_path / "dlq.db"))
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


@pytest.mark.long("unit/master/store/test_store_open.py")
@pytest.mark.parametrize(
    ("job", "word"),
    [
        (a_job(9, depends=Dependency((Term(Relation.AFTERCORR, JobId(1)),))), "aftercorr"),
        (a_job(9, own_spec=True), "own_spec"),
    ],
)
def test_the_last_release_refuses_a_job_that_it_does_not_understand(
    tmp_path: Path, former: dict[str, Path], job: Job, word: str
) -> None:
    """It would run another job than the one that was submitted. A restore leads back to it."""
    done = loaded_by(former[LAST], written(tmp_path / "dlq.db", Batch(jobs=[job])))
    assert done.returncode != 0
    assert word in done.stderr


def test_the_last_release_is_the_newest_of_the_change_log() -> None:
    """A release that is made names its own commit here, in the next commit."""
    told = re.findall(r"(?m)^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text())
    assert json.loads(NAMED.read_text())[LAST]["version"] == told[0]
