"""Signals as people write them."""

from __future__ import annotations

from signal import Signals


def signal_name(text: str) -> str:
    """`USR1` of `USR1`, `sigusr1` or `10` (Linux's number, as in Slurm). ValueError for others."""
    word = text.strip().upper().removeprefix("SIG")
    try:
        found = Signals(int(word)) if word.isdecimal() else Signals[f"SIG{word}"]
    except (KeyError, ValueError):
        raise ValueError(f"{text[:40]!r} is not a signal") from None
    return found.name.removeprefix("SIG")
