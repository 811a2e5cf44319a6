"""Indexes of arrays as Slurm 22.05 writes them (measured; beside `squeue -h -o %i`)."""

from __future__ import annotations

import pytest

from dlq_cli.slurm.jobs.array_text import slurm_indexes


@pytest.mark.parametrize(
    ("indexes", "limit", "text"),
    [
        ([0, 1, 2, 3], 0, "0-3"),
        ([0, 1, 2, 3, 4, 5], 2, "0-5%2"),
        ([1, 3], 0, "1,3"),
        ([1, 3, 5], 0, "1,3,5"),
        ([2, 4, 6, 9], 0, "2,4,6,9"),
        ([0, 5, 10, 15, 20], 0, "0,5,10,15,20"),
        ([0, 2, 4, 6, 8, 10], 0, "0,2,4,6,8,10"),
        ([*range(0, 13, 2)], 0, "0-12:2"),
        ([*range(5, 106, 10)], 2, "5-105:10%2"),
        ([*range(0, 1001, 200)], 0, "0-1000:200"),
        ([0, 2, 4, 6, 8, 10, 13], 0, "0,2,4,6,8,10,13"),
        ([0, 1, 2, 3, 10, 20, 30], 0, "0-3,10,20,30"),
        ([7, 8], 0, "7-8"),
    ],
)
def test_indexes(indexes: list[int], limit: int, text: str) -> None:
    assert slurm_indexes(indexes, limit) == text


MANY = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1001, 1002, 1500, 1600, 1700, 1800, 1900]


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (None, "1-2,4,8,16,32,64,128,256,512,1000-1002,1500,1600,1700,1800,1..."),
        ("20", "1-2,4,8,16,32,64..."),
        ("0", "1-2,4,8,16,32,64,128,256,512,1000-1002,1500,1600,1700,1800,1900"),
        ("x", "1-2,4,8,16,32,64,128,256,512,1000-1002,1500,1600,1700,1800,1..."),
    ],
)
def test_a_long_list_is_cut(length: str | None, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_BITSTR_LEN", raising=False)
    if length is not None:
        monkeypatch.setenv("SLURM_BITSTR_LEN", length)
    assert slurm_indexes(MANY) == text
