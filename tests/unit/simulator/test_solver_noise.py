"""What native code prints is nobody's: neither in the document on stdout nor beside the notes."""

from __future__ import annotations

import os

import pytest

from dlq_simulator.refusals import silent_stdout


def test_lines_of_a_solver_are_dropped_and_ours_are_not(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with silent_stdout():
        os.write(1, b"HiGHS\n")
        os.write(2, b"ours\n")
    os.write(1, b"document\n")
    assert tuple(capfd.readouterr()) == ("document\n", "ours\n")
