"""`did you mean`: the nearest known word to a mistyped one."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the known word nearest to `word`, empty when none is near."""
    import difflib

    # A word of a megabyte must not cost a quadratic comparison.
    close = difflib.get_close_matches(word[:64].lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
