"""Doubts about a job whose output files have no place: it would fail at its start, perhaps days
after its submission.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dlq_cli.spec.check import doubts
from dlq_cli.spec.fields import put
from dlq_cli.spec.validate import finish
from dlq_cli.spec.values.given import Layer
from dlq_common.job_fields.table.output_files import STDERR, STDOUT

MISSING = "here, and the job fails where its node has none"


def doubted(directory: Path, **keys: str) -> list[str]:
    layer: Layer = {}
    for name, value in {"command": "train", **keys}.items():
        put(layer, {"output": STDOUT.key, "error": STDERR.key}.get(name, name), value, f"--{name}")
    return list(doubts(finish(layer, directory=str(directory))))


@pytest.mark.parametrize("place", ["nodir", "a/b/c", "/no/such/place", "~"])
def test_a_missing_directory_of_an_output_file_is_told(tmp_path: Path, place: str) -> None:
    told = f"--output: there is no directory '{place}' {MISSING}"
    assert doubted(tmp_path, output=f"{place}/%j.out") == [told]
    told = f"--error: there is no directory '{place}' {MISSING}"
    assert doubted(tmp_path, output="/dev/null", error=f"{place}/x") == [told]


@pytest.mark.parametrize("output", ["x.out", "there/x.out", "logs/%j/x.out", "/dev/null"])
def test_a_place_that_is_there_or_is_made_is_no_doubt(tmp_path: Path, output: str) -> None:
    (tmp_path / "there").mkdir()
    assert doubted(tmp_path, output=output) == []


def test_a_host_that_has_not_the_jobs_directory_does_not_know(tmp_path: Path) -> None:
    assert doubted(tmp_path / "on-the-nodes", output="nodir/x.out") == []
    assert doubted(tmp_path, output="nodir/x.out", image="docker.io/a/b:1") == []
