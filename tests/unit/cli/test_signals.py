"""Signals by name and by number, wherever they are written."""

import subprocess
import sys

import pytest

from dlq_common.job_fields.reading.words import SignalAhead, read_save_signal, read_signal
from dlq_common.text.signals import signal_name


@pytest.mark.parametrize(
    ("text", "name"),
    [("USR1", "USR1"), ("sigusr2", "USR2"), ("10", "USR1"), (" 15 ", "TERM"), ("SIGHUP", "HUP")],
)
def test_a_name_or_linuxs_number_is_a_signal(text: str, name: str) -> None:
    assert signal_name(text) == name


@pytest.mark.parametrize("text", ["", "0", "99", "USR3", "SIG", "-10", "1" * 30])
def test_what_is_no_signal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a signal"):
        signal_name(text)


def test_specs_take_numbers_too() -> None:
    assert read_signal("B:10@90") == SignalAhead("USR1", 90)
    assert read_save_signal("12") == "USR2"
    with pytest.raises(ValueError, match="is not a signal to save on"):
        read_signal("9@90")


SPEAKING = """
import io, os, sys
from dlq_cli.output.said import say_line

class Slow(io.RawIOBase):
    def writable(self):
        return True
    def write(self, data):
        if b"outer" in bytes(data):
            say_line("inner")  # as the handler of a signal that comes just now
        os.write(2, data)
        return len(data)

sys.stderr = io.TextIOWrapper(io.BufferedWriter(Slow()), line_buffering=True)
say_line("outer")
"""


def test_a_handler_speaks_in_the_middle_of_another_line() -> None:
    done = subprocess.run([sys.executable, "-c", SPEAKING], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "inner\nouter\n")
