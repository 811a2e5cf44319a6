"""dlq's answers held against those that a real Slurm 22.05.8 gave to the same calls.

`make differ ARGS=--record` records them, on a machine that has Slurm.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from differ.calls import CALLS
from differ.compare import TOLD, UNTOLD, judge
from differ.explained import EXPLAINED
from differ.normal import normal_answer, normaliser
from differ.page import PAGE, page
from differ.pair import Answer, dlq_side
from differ.world import prepare
from support.host_account import CAN_MAKE_ACCOUNTS, free_name, host_account

pytestmark = [pytest.mark.integration]
RECORDED = json.loads((Path(__file__).parents[1] / "data" / "slurm_answers.json").read_text())


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that other accounts may enter: pytest's own are closed."""
    root = Path(tempfile.mkdtemp(prefix="dlqdiff", dir="/tmp"))
    os.chmod(root, 0o755)
    yield root
    shutil.rmtree(root)


@pytest.mark.long("integration/test_cli_slurm.py", "integration/test_cli_scancel.py")
@pytest.mark.skipif(not CAN_MAKE_ACCOUNTS, reason="needs root and useradd")
def test_every_answer_is_slurms_or_differs_as_the_table_says(place: Path) -> None:
    untold = []
    with host_account(free_name("s")) as who, dlq_side(place, who) as side:
        prepare(side)
        normal = normaliser(side, place)
        for one in RECORDED:
            call = one["call"]
            theirs = Answer(one["code"], one["out"], one["err"])
            ours = normal_answer(side.said(call), normal)
            if judge(call, theirs, ours, raw_equal=False).kind == UNTOLD:
                untold.append((call, theirs, ours))
    assert untold == []


def test_the_record_has_all_calls() -> None:
    assert [one["call"] for one in RECORDED] == list(CALLS)
    assert len(CALLS) >= 300


def test_an_answer_of_another_word_or_code_is_a_difference() -> None:
    theirs = Answer(0, "3 R\n", "")
    assert judge("squeue -h -o '%i %t'", theirs, Answer(0, "3 PD\n", ""), raw_equal=False).kind == (
        UNTOLD
    )
    assert judge("scancel 3", theirs, theirs._replace(code=1), raw_equal=False).kind == UNTOLD


def test_the_order_that_a_call_asks_for_is_compared() -> None:
    theirs, ours = Answer(0, "1\n2\n", ""), Answer(0, "2\n1\n", "")
    assert judge("squeue -h -o %i", theirs, ours, raw_equal=False).kind == TOLD
    assert judge("squeue -S i -h -o %i", theirs, ours, raw_equal=False).kind == UNTOLD


def test_each_reason_is_said_once_and_the_page_has_all() -> None:
    reasons = [one.reason for one in EXPLAINED]
    assert len(reasons) == len(set(reasons))
    assert PAGE.read_text() == page()
