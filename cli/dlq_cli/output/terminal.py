"""A job's output for a terminal: its text and its colours, and nothing else that a terminal obeys.

A terminal obeys some of its input: titles, the clipboard, the cursor, answers typed for the reader.
The output of a job is not trusted with that.
"""

from __future__ import annotations

import codecs
import re

# Text, and the controls that output cannot do without: backspace, tab, newline, carriage return.
_TEXT = re.compile(r"[^\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]+")
# DCS, SOS, OSC, PM, APC: the bytes up to a terminator are not for the screen.
_STRING = re.compile(r"\x1b[PX\]^_]|[\x90\x98\x9d\x9e\x9f]")
_STRING_END = re.compile(r"[\x07\x18\x1a\x1b\x9c\n]")
_CSI = re.compile(r"(?:\x1b\[|\x9b)([0-?]*)([ -/]*)([@-~])")
_UNFINISHED = re.compile(r"(?:(?:\x1b\[|\x9b)[0-?]*[ -/]*|\x1b[ -/]*)\Z")
_ESCAPE = re.compile(r"\x1b[ -/]*[0-~]")
_COLOUR = re.compile(r"[0-9;:]*")
_RESET = b"\x1b[0m"
# No colour is longer; a longer beginning is not kept until its end comes.
LONGEST_SEQUENCE = 128


def screened(text: str) -> str:
    """A whole text as a terminal may show it: operators read the scripts of others."""
    stream = TerminalFilter()
    return (stream.feed(text.encode("utf-8", "replace")) + stream.finish()).decode()


class TerminalFilter:
    """Filters one stream that comes in pieces, cut anywhere; bytes that are not UTF-8 show as
    such.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished = ""
        self._in_string = False
        self._coloured = False

    def feed(self, data: bytes) -> bytes:
        """The part of the stream that may be shown so far; a cut sequence waits for its end."""
        return self._shown(self._decoder.decode(data)).encode("utf-8")

    def finish(self) -> bytes:
        """The rest at the end of the stream, and the terminal's own colour again."""
        rest = self._shown(self._decoder.decode(b"", final=True)).encode("utf-8")
        return rest + (_RESET if self._coloured else b"")

    def _shown(self, piece: str) -> str:
        text, at = self._unfinished + piece, 0
        self._unfinished = ""
        kept: list[str] = []
        while at < len(text):
            if self._in_string:
                at = self._after_string(text, at)
            elif found := _TEXT.match(text, at):
                kept.append(found[0])
                at = found.end()
            elif found := _STRING.match(text, at):
                self._in_string = True
                at = found.end()
            elif found := _CSI.match(text, at):
                kept.append(self._colour(found))
                at = found.end()
            elif found := _UNFINISHED.match(text, at):
                if len(found[0]) <= LONGEST_SEQUENCE:
                    self._unfinished = found[0]
                at = found.end()
            elif found := _ESCAPE.match(text, at):
                at = found.end()
            else:
                at += 1
        return "".join(kept)

    def _after_string(self, text: str, at: int) -> int:
        """The end of the string: its terminator, or a newline, so that none hides the rest."""
        end = _STRING_END.search(text, at)
        if end is None:
            return len(text)
        self._in_string = False
        # A newline is shown; an escape is the beginning of the terminator, or of something else.
        return end.start() if end[0] in "\n\x1b" else end.end()

    def _colour(self, sequence: re.Match[str]) -> str:
        """The sequence if it selects colours (SGR), nothing otherwise."""
        parameters, between, final = sequence.groups()
        if final != "m" or between or not _COLOUR.fullmatch(parameters):
            return ""
        self._coloured = parameters.strip("0;") != ""
        return f"\x1b[{parameters}m"
