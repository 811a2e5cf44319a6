"""Data of a job: what it costs where, where it may not go, and the order of staging and job."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from random import Random

import pytest

from dlq.v1 import job_pb2
from dlq_broker import stage_program
from dlq_broker.choosing import RULES, ranked
from dlq_broker.data_file import DataList, named, need_at, read_data
from dlq_broker.doors import Accepted, Declined, Tried
from dlq_broker.offers import ClusterOffer, NoOffer, answer_facts, answer_from
from dlq_broker.staging_door import offer_with_data, submit_with_data
from dlq_common.errors import ConfigError, InvalidRequest
from support.fake_clusters import FakeCluster, an_offer

DIGEST = "ab" * 32
LIST = f"""
[clusters.lab]
home = "."
[data.imagenet]
digest = "sha256:{DIGEST}"
bytes = 12_000_000_000
source = "data1:/imagenet"
[data.imagenet.at]
lab = "/data/imagenet"
[transfer.roof]
cache = "/shared/ada/cache"
cache_gb = 100
mb_per_s = 100
price_per_gb = 0.02
"""


def listed(root: Path, text: str = LIST) -> DataList:
    (root / "clusters.toml").write_text(text)
    return read_data(root / "clusters.toml")


def a_spec(**more: str) -> bytes:
    named_data = {"DATA_IMAGENET": f"sha256:{DIGEST}"}
    spec = job_pb2.JobSpec(command=["train", "x y"], environment=named_data)
    for name, value in more.items():
        setattr(spec, name, value)
    spec.resources.gpu_count = 1
    return spec.SerializeToString(deterministic=True)


def test_offers_count_the_way_of_the_data_and_its_price(tmp_path: Path) -> None:
    data = listed(tmp_path)
    lab = offer_with_data("lab", data, a_spec(), lambda: an_offer("lab", 3_650.0, price=1.0))
    roof = offer_with_data("roof", data, a_spec(), lambda: an_offer("roof", 3_600.0, price=1.0))
    assert isinstance(lab, ClusterOffer)
    assert isinstance(roof, ClusterOffer)
    assert (lab.data_s, roof.data_s) == (0.0, 120.0)
    assert roof.told_start_s == lab.told_start_s + 120.0
    assert roof.cost == pytest.approx(8.0 + 12 * 0.02)
    ranking = ranked([roof, lab], RULES["soonest"], Random(1))
    assert [one.cluster for one in ranking.order] == ["lab", "roof"]
    assert answer_from(answer_facts(roof)) == roof, "a record keeps it"


@pytest.mark.parametrize(
    ("cluster", "only_there", "why"),
    [
        ("roof", True, "its data is not there: imagenet"),
        ("cellar", False, r"\[transfer.cellar\] names no cache"),
    ],
)
def test_a_cluster_that_cannot_have_the_data_is_not_asked(
    tmp_path: Path, cluster: str, only_there: bool, why: str
) -> None:
    import re

    answer = offer_with_data(
        cluster, listed(tmp_path), a_spec(), lambda: pytest.fail("asked"), only_there=only_there
    )
    assert isinstance(answer, NoOffer)
    assert re.search(why, answer.why)


def test_more_data_than_the_cache_may_hold_is_refused(tmp_path: Path) -> None:
    data = listed(tmp_path, LIST.replace("cache_gb = 100", "cache_gb = 1"))
    answer = offer_with_data("roof", data, a_spec(), lambda: pytest.fail("asked"))
    assert isinstance(answer, NoOffer)
    assert "more than the cache" in answer.why


def test_the_job_waits_for_its_data_and_a_repeat_makes_nothing_new(tmp_path: Path) -> None:
    data, roof, sent = listed(tmp_path), FakeCluster("roof"), list[bytes]()

    def submit(spec: bytes, key: str) -> Tried:
        sent.append(spec)
        return roof.submit(spec, key)

    placed = submit_with_data("roof", data, a_spec(), "h1.roof", submit)
    assert isinstance(placed, Accepted)
    stage, real = (job_pb2.JobSpec.FromString(spec) for spec in roof.specs)
    assert stage.name == "stage imagenet"
    assert (stage.resources.gpu_count, stage.resources.core_count) == (0, 1)
    assert [*stage.command] == [
        "/shared/ada/cache", "100000000000", "h1.roof", "imagenet", DIGEST, "12000000000",
        "data1:/imagenet",
    ]  # fmt: skip
    assert real.environment["DATA_IMAGENET"] == f"/shared/ada/cache/entries/{DIGEST}/data"
    assert [term.job_id for term in real.dependency.terms] == [roof.jobs["h1.roof-d"]]
    assert real.dependency.cancel_if_never
    assert submit_with_data("roof", data, a_spec(), "h1.roof", submit) == placed
    assert sorted(roof.jobs) == ["h1.roof", "h1.roof-d"]
    assert sent[2:] == sent[:2], "a master compares repeats byte by byte"


def test_where_the_data_lies_nothing_is_staged(tmp_path: Path) -> None:
    lab = FakeCluster("lab")
    submit_with_data("lab", listed(tmp_path), a_spec(), "h1.lab", lab.submit)
    (real,) = (job_pb2.JobSpec.FromString(spec) for spec in lab.specs)
    assert real.environment["DATA_IMAGENET"] == "/data/imagenet"
    assert [*real.command] == ["train", "x y"]
    assert not real.HasField("dependency")


def test_the_job_starts_behind_its_data_and_not_behind_any_of_several_jobs(tmp_path: Path) -> None:
    """Of one job, any is all. Of several, the staging job would be enough: that is refused."""
    data, spec = listed(tmp_path), job_pb2.JobSpec.FromString(a_spec())
    spec.dependency.any = True
    spec.dependency.terms.add(job_id="3", relation=job_pb2.DEPENDENCY_RELATION_AFTEROK)
    roof = FakeCluster("roof")
    submit_with_data("roof", data, spec.SerializeToString(), "h1.roof", roof.submit)
    real = job_pb2.JobSpec.FromString(roof.specs[1])
    assert (len(real.dependency.terms), real.dependency.any) == (2, False)
    spec.dependency.terms.add(job_id="4", relation=job_pb2.DEPENDENCY_RELATION_AFTEROK)
    both, other = spec.SerializeToString(), FakeCluster("roof")
    refused = submit_with_data("roof", data, both, "h2.roof", other.submit)
    assert isinstance(refused, Declined)
    assert "do not go together" in refused.why
    assert not other.jobs, "nothing is staged for it"
    no_offer = offer_with_data("roof", data, both, lambda: pytest.fail("asked"))
    assert isinstance(no_offer, NoOffer)
    assert isinstance(submit_with_data("lab", data, both, "h3.lab", other.submit), Accepted)


def test_a_refused_staging_job_is_the_answer(tmp_path: Path) -> None:
    roof = FakeCluster("roof", refuses="no room")
    answer = submit_with_data("roof", listed(tmp_path), a_spec(), "h1.roof", roof.submit)
    assert isinstance(answer, Declined)
    assert not roof.jobs


@pytest.mark.parametrize("script", ["", '#!/bin/bash\nexec cat "$DATA_IMAGENET/a"\n'])
def test_the_program_holds_its_data_and_keeps_it_for_a_day(tmp_path: Path, script: str) -> None:
    """The real job's program, run by a shell, over a real cache."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("it's here\n")
    digest, size = stage_program.manifest(str(source))
    cache = tmp_path / "a cache"
    text = LIST.replace(DIGEST, digest).replace("12_000_000_000", str(size))
    data = listed(tmp_path, text.replace("/shared/ada/cache", str(cache)))
    spec = job_pb2.JobSpec(environment={"DATA_IMAGENET": f"sha256:{digest}"}, script=script)
    if not script:
        spec.command.extend(["/bin/sh", "-c", 'cat "$DATA_IMAGENET/a"'])
    roof = FakeCluster("roof")
    submit_with_data("roof", data, spec.SerializeToString(), "h1.roof", roof.submit)
    real = job_pb2.JobSpec.FromString(roof.specs[1])

    def run() -> subprocess.CompletedProcess[str]:
        words = [*real.command]
        if real.script:
            (tmp_path / "job").write_text(real.script)
            words = ["/bin/sh", str(tmp_path / "job"), *words]
        environment = {**real.environment, "PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)}
        return subprocess.run(words, env=environment, text=True, capture_output=True)

    cache.mkdir(0o700)
    (cache / "locks").mkdir()
    missing = run()
    assert (missing.returncode, "not in" in missing.stderr) == (75, True)
    stage_program.DataCache(str(cache), 1e9).stage(digest, size, str(source), "h1.roof")
    (pin,) = (cache / "pins").iterdir()
    before_s = time.time()
    found = run()
    assert (found.stdout, found.returncode) == ("it's here\n", 0), found.stderr
    assert (cache / "pins").joinpath(pin.name).exists(), "it may be preempted, and start again"
    kept_s = float(pin.read_text()) - 86_400.0
    assert int(before_s) <= kept_s <= time.time()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (LIST.replace(f"sha256:{DIGEST}", "md5:1"), "data.imagenet.digest"),
        (LIST.replace("12_000_000_000", "-1"), "data.imagenet.bytes"),
        (LIST.replace("data1:/imagenet", "--delete"), "data.imagenet.source"),
        (LIST.replace("/data/imagenet", "data"), "data.imagenet.at"),
        (LIST.replace("/shared/ada/cache", "/a/../b"), "transfer.roof.cache"),
        (LIST.replace("mb_per_s = 100", "mb_per_s = 0"), "transfer.roof.mb_per_s"),
        (LIST.replace("price_per_gb", "price"), "transfer.roof.price"),
        (LIST.replace("[data.imagenet]", "[data.Image_Net]"), "is no name|data.imagenet"),
        ("data = 1\n", "'data' holds tables"),
    ],
)
def test_a_wrong_list_is_named(tmp_path: Path, wrong: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        listed(tmp_path, wrong)


def test_unknown_data_is_refused_in_words(tmp_path: Path) -> None:
    data = listed(tmp_path)
    with pytest.raises(InvalidRequest, match=r"no data is called 'imagenets'.*imagenet"):
        named(data, "imagenets")
    with pytest.raises(InvalidRequest, match="is not in the list"):
        need_at(data, {"DATA_X": f"sha256:{'00' * 32}"}, "roof")
    assert need_at(data, {"DATA_DIR": "/data", "HOME": "/"}, "roof") is None
