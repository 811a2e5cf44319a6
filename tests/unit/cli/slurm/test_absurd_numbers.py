"""Numbers that no program needs are refused or cut, and end no command with a traceback."""

from __future__ import annotations

import pytest

from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.accounts.fields import FIELDS, columns_of
from dlq_cli.slurm.columns import FieldTable, Letter, heading
from dlq_cli.slurm.words import SlurmWords, column_width, seconds_between
from dlq_cli.spec.slurm.request import sbatch_layer
from dlq_cli.spec.values.given import Notes
from dlq_common.errors import InvalidRequest

NINES = "9" * 5_000  # more digits than Python reads


@pytest.mark.parametrize("text", ["", "-", "--5", "²", "٣", "1.5", " 1"])
def test_a_text_that_is_no_width_is_none(text: str) -> None:
    assert column_width(text) is None


def test_a_width_is_no_wider_than_the_memory_of_a_host() -> None:
    widths = [column_width(text) for text in ("8", "-8", NINES, f"-{NINES}")]
    assert widths == [8, -8, 65_536, -65_536]


def test_columns_of_absurd_widths_are_cut() -> None:
    table = FieldTable("squeue", "", [Letter[str]("JOBID", "i", ("jobid",), str)])
    for columns in (table.by_letters(f"%{NINES}i"), table.by_names(f"jobid:{NINES}")):
        assert len(heading(columns)) == 65_536
    assert heading(table.by_letters("%٣i")) == "%٣i"


def _iterating(text: str) -> SlurmWords:
    return SlurmWords({"iterate": text}, ())


def test_waits_between_lists_are_a_century_at_most() -> None:
    assert seconds_between(_iterating(NINES), "squeue") == 999_999_999
    for text in ("0", "²", "-1", ""):
        with pytest.raises(SlurmSays, match="--iterate"):
            seconds_between(_iterating(text), "squeue")


def test_sacct_takes_absurd_widths_for_none_or_cuts_them() -> None:
    usual = FIELDS["JobID"].width
    asked = columns_of(f"jobid%{NINES},jobid%--5,jobid%²,jobid%-7")
    assert [width for _, width in asked] == [65_536, usual, usual, -7]


def test_memory_of_more_digits_than_python_reads_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="Invalid --mem"):
        sbatch_layer(f"#!/bin/sh\n#SBATCH --mem={NINES}\ntrue\n", "job.sh", Notes())
