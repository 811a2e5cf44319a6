"""Names of limits as Slurm 22.05.8 reads them, and values that the kernel holds."""

from __future__ import annotations

import pytest

from dlq_common.text.soft_limits import NAMES, UNLIMITED, check_soft_limits, read_limit_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", NAMES),
        ("ALL", NAMES),
        ("NONE", ()),
        ("STACK", ("STACK",)),
        ("RLIMIT_STACK,", ("STACK",)),
        ("STACK CORE", ("STACK", "CORE")),
        (" ", ()),
    ],
)
def test_names_are_read_as_slurm_reads_them(text: str, names: tuple[str, ...]) -> None:
    assert read_limit_names(text) == names


@pytest.mark.parametrize(
    ("text", "word"),
    [("WHAT", "WHAT"), ("stack", "stack"), ("STACK,ALL", "ALL"), ("NONE,STACK", "NONE")],
)
def test_a_word_that_is_no_limit_is_told(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=f"^{word}$"):
        read_limit_names(text)


@pytest.mark.parametrize("limits", [{"NICE": 1}, {"": 1}, {"STACK": -1}, {"STACK": 2**64}])
def test_what_the_kernel_does_not_know_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"is not one of|must be between"):
        check_soft_limits(limits)


def test_all_that_the_kernel_knows_passes() -> None:
    limits = dict.fromkeys(NAMES, UNLIMITED)
    assert check_soft_limits(limits) == limits
