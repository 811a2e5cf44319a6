"""Names of output files against the answers of Slurm 22.05."""

import json
from pathlib import Path

import pytest

from dlq_common.text.output_patterns import (
    NO_ARRAY_TASK,
    OutputNames,
    check_output_pattern,
    expand_output_pattern,
)

ANSWERS = Path(__file__).parents[3] / "data" / "slurm_output_patterns.json"


def names(job_id: int, *, array: bool) -> OutputNames:
    return OutputNames(
        job_id=job_id,
        array_id=job_id,
        array_index=7 if array else NO_ARRAY_TASK,
        job_name="my job",
        user="root",
        host="vm",
    )


def test_every_pattern_names_the_file_that_slurm_wrote() -> None:
    answers = json.loads(ANSWERS.read_text(encoding="utf-8"))
    assert len(answers) >= 100
    wrong = [
        (pattern, ours, theirs)
        for pattern, job_id, array, theirs in answers
        if Path(ours := expand_output_pattern(pattern, names(job_id, array=array))) != Path(theirs)
    ]
    assert wrong == []


def test_an_array_task_has_the_number_of_its_array_and_its_own() -> None:
    task = OutputNames(
        job_id=12, array_id=9, array_index=3, job_name="x", user="u", host="h", node_rank=1, task=2
    )
    assert expand_output_pattern("%A_%a.%j.%n.%t", task) == "9_3.12.1.2"


def test_a_value_that_looks_like_a_specifier_is_not_expanded_again() -> None:
    odd = OutputNames(job_id=1, array_id=1, job_name="%j", user="u", host="h")
    assert expand_output_pattern("%x", odd) == "%j"


def test_a_width_of_many_digits_is_no_large_file_name() -> None:
    wide = expand_output_pattern(f"%{'9' * 4000}j", names(1, array=False))
    assert wide == "0000000001"


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [("", "empty"), ("logs/", "directory"), ("a\nb", "control"), ("x" * 5000, "longer")],
)
def test_a_pattern_that_names_no_file_is_refused_by_name(pattern: str, fault: str) -> None:
    with pytest.raises(ValueError, match=f"--output.*{fault}"):
        check_output_pattern(pattern, "--output")
