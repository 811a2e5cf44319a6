"""Texts without the values that must differ: instants, short times, people, places, ports."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from differ.pair import Answer, Side

_INSTANT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
_CTIME = r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}"
_EPOCH = r"\b1[789]\d{8}\b"
# Less than ten minutes, which is longer than a run of the differ.
_BRIEF = r"(?<!ExitCode=)(?<![\d:.-])(?:00:0\d|\d):\d\d(?!\d*[:\d])"

_CPU_TIME = r"\b\d\d:\d\d\.\d{3}\b"


def normaliser(side: Side, root: Path) -> Callable[[str], str]:
    """The texts of one side. Blanks around a replaced value go with it: columns are padded."""
    rules: Sequence[tuple[str, str]] = (
        (r"(?<=Sid=)\S+:\d+", "<session>"),
        (re.escape(str(side.home)), "<home>"),
        (re.escape(str(root)), "<root>"),
        (rf"{_CTIME} \(\d+\)|{_INSTANT}|{_CTIME}|{_EPOCH}", "<at>"),
        (rf"{_BRIEF}|{_CPU_TIME}", "<run>"),
        (_cut(side.who.pw_name), "<user>"),
        (rf"\b(?:{side.who.pw_uid}|{side.who.pw_gid})\b", "<uid>"),
        (
            rf"\b{re.escape(socket.gethostname().partition('.')[0])}\b|\b127\.0\.0\.1\b|\blocalhost\b",
            "<host>",
        ),
        (r"\b3[12]\d{3}\b", "<port>"),
    )
    compiled = [(re.compile(rf"[ ]*(?:{pattern})[ ]*"), word) for pattern, word in rules]

    def normal(text: str) -> str:
        if text.startswith("{"):
            return _shape(json.loads(text))
        for pattern, word in compiled:
            text = pattern.sub(f" {word} ", text)
        return text

    return normal


def _cut(name: str) -> str:
    """A name, or what a narrow column leaves of it: `dlqsf7d6`, `dlqsf7d69+`."""
    least = 6
    tail = "".join(f"(?:{re.escape(char)}" for char in name[least:]) + ")?" * len(name[least:])
    return rf"\b{re.escape(name[:least])}{tail}\+?"


def normal_answer(answer: Answer, normal: Callable[[str], str]) -> Answer:
    """All three parts."""
    return Answer(answer.code, normal(answer.out), normal(answer.err))


def _shape(value: object, name: str = "") -> str:
    """The keys of JSON, in their order, and the kinds of values; of a list its longest entry."""
    if isinstance(value, dict):
        return "".join(_shape(each, f"{name}.{key}") for key, each in value.items())
    if isinstance(value, list):
        shapes = [_shape(each, f"{name}[]") for each in value]
        return max(shapes, key=len, default=f"{name}[]\n")
    kind = "number" if isinstance(value, int | float) else type(value).__name__
    return f"{name} {kind}\n"
