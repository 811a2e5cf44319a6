"""What of a job's output may reach a terminal, however the stream is cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlq_cli.output.terminal import LONGEST_SEQUENCE, TerminalFilter

ESC = "\x1b"


def shown(*pieces: bytes) -> bytes:
    terminal = TerminalFilter()
    return b"".join(map(terminal.feed, pieces)) + terminal.finish()


@pytest.mark.parametrize(
    "text",
    [
        "step 1\n",
        "50 %\r100 %\n",
        "a\tb\bc\n",
        "Grüße, 你好, 🚀\n",
        f"{ESC}[31mred{ESC}[0m\n",
        f"{ESC}[1;38;2;10;20;30mtrue{ESC}[m\n",
        f"{ESC}[38:5:196mcolons{ESC}[00m\n",
        "[31m is text without its escape\n",
    ],
)
def test_text_and_colours_are_shown_as_they_are(text: str) -> None:
    assert shown(text.encode()) == text.encode()


@pytest.mark.parametrize(
    "order",
    [
        f"{ESC}]0;a title\x07",
        f"{ESC}]52;c;cm0gLXJmIH4=\x07",
        f"{ESC}]8;;http://evil.example{ESC}\\",
        f"{ESC}[2J",
        f"{ESC}[H",
        f"{ESC}[1A",
        f"{ESC}[?1049h",
        f"{ESC}[6n",
        f"{ESC}[>4;2m",
        f"{ESC}[4 q",
        f"{ESC}[21t",
        f"{ESC}Pq#0;2;0;0;0{ESC}\\",
        f"{ESC}_Gf=100;AAAA{ESC}\\",
        f"{ESC}^private{ESC}\\",
        f"{ESC}Xstring{ESC}\\",
        f"{ESC}c",
        f"{ESC}7",
        f"{ESC}(0",
        f"{ESC}#8",
        "\x9b2J",
        "\x9d0;title\x9c",
        "\x90q\x9c",
        "\x84",
        "\x07",
        "\x00",
        "\x0b\x0c",
        "\x7f",
        "\x0e\x0f",
    ],
)
def test_what_orders_a_terminal_about_is_not_shown(order: str) -> None:
    data = f"before{order}after\n".encode()
    assert shown(data) == b"beforeafter\n"
    assert shown(*(bytes([byte]) for byte in data)) == b"beforeafter\n", "cut at every byte"


def test_raw_control_bytes_beyond_ascii_are_not_passed_on() -> None:
    assert shown(b"a\x9b2Jb\n") == "a\ufffd2Jb\n".encode()


def test_a_string_without_an_end_does_not_hide_the_lines_after_it() -> None:
    assert shown(f"a{ESC}]0;title".encode(), b" goes on\nb\n") == b"a\nb\n"


def test_a_sequence_without_an_end_is_not_kept_for_ever() -> None:
    terminal = TerminalFilter()
    out = terminal.feed(f"a{ESC}[".encode())
    for _ in range(1000):
        out += terminal.feed(b"1;" * LONGEST_SEQUENCE)
    assert ESC.encode() not in out + terminal.feed(b"m") + terminal.finish()


def test_a_colour_that_was_left_on_ends_with_the_output() -> None:
    assert shown(f"{ESC}[31mred".encode()) == f"{ESC}[31mred{ESC}[0m".encode()


@given(
    st.binary(max_size=100)
    | st.text("\x1b[]P_^X\\\x07\x9b\x9c0;m?2J\nab ", max_size=100).map(str.encode)
)
@example(b"\x1b\x1b[2J")
@example(b"\x1b]\x1b[2J")
def test_no_order_survives_and_cuts_change_nothing(data: bytes) -> None:
    whole = shown(data)
    assert shown(*(bytes([byte]) for byte in data)) == whole
    text = re.sub(r"\x1b\[[0-9;:]*m", "", whole.decode())
    assert not re.search(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]", text)
