"""The process of hooks: `python -I -m dlq_hooks.program [UID:GID]`, its line as standard input.

The master writes frames of JSON, four bytes of length before each, and this process answers each
with one. The first frame holds the text of the operator's file and the limits. The process needs no
right to read that file, and a restart runs the very text that was accepted. Standard output and
error lead nowhere; the answer to a call has the prints of the hook.
"""

from __future__ import annotations

import base64
import collections
import datetime
import fnmatch
import functools
import io
import itertools
import json
import math
import os
import re
import socket
import string
import struct
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, fields
from typing import Any, Final

from dlq_hooks import walls
from dlq_hooks.values import Hold, HookAttempt, HookContext, HookUser, Refuse, SubmittedSpec

# Hooks may import these too where the account cannot read the interpreter's own files.
COMMON: Final = (base64, collections, datetime, fnmatch, functools, itertools, math, re, string)
MOST_SAID: Final = 2_000
MOST_WORDS: Final = 500
MOST_WARNINGS: Final = 20
SLACK_S: Final = 2.0  # after the limit of the master; then the kernel ends the process
LENGTH: Final = struct.Struct(">I")


class BadReturn(Exception):
    """A hook returned what it may not."""


def main(account: str = "") -> None:
    """Serve the line that is standard input, until it ends."""
    stands = walls.become(account)
    line = socket.socket(fileno=os.dup(0))
    _close_streams()
    if line.getsockname() == "":  # of a pair: the other end is our parent
        walls.follow_master()
    hello = _read(line)
    stands += walls.limit(hello["memory_bytes"])
    walls.watch_call(hello["load_s"])
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        hooks, fault = _load(hello["source"], hello["file"])
    walls.watch_call(0)
    facts = {"hooks": sorted(hooks), "walls": stands, "uid": os.getuid()}
    _write(line, {"fault": fault, "said": said.getvalue()[-MOST_SAID:], **facts})
    while True:
        asked = _read(line)
        walls.watch_call(asked["limit_s"] + SLACK_S)
        answer = _answer(hooks, asked)
        walls.watch_call(0)
        _write(line, {**answer, "number": asked["number"], "memory_bytes": walls.resident_bytes()})


# --- helpers, in order of use ---------------------------------------------------------------------


def _close_streams() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _read(line: socket.socket) -> dict[str, Any]:
    (length,) = LENGTH.unpack(_exactly(line, LENGTH.size))
    found = json.loads(_exactly(line, length))
    assert isinstance(found, dict)
    return found


def _exactly(line: socket.socket, count: int) -> bytes:
    """The next bytes. The master has gone where there are none: so does this process."""
    parts = bytearray()
    while len(parts) < count:
        more = line.recv(min(count - len(parts), 1 << 16))
        if not more:
            os._exit(0)
        parts += more
    return bytes(parts)


def _write(line: socket.socket, told: Mapping[str, Any]) -> None:
    content = json.dumps(told).encode()
    line.sendall(LENGTH.pack(len(content)) + content)


def _load(source: str, file: str) -> tuple[dict[str, Callable[..., Any]], str]:
    """The functions of the file that are named as hooks are, or why there are none."""
    space: dict[str, Any] = {"__name__": "dlq_hooks_file", "__file__": file}
    try:
        exec(compile(source, file, "exec", dont_inherit=True), space)
    except BaseException as error:  # noqa: BLE001 - whatever the file raises, it is no good
        return {}, _words(error, file)
    return {name: space[name] for name in _CALLS if callable(space.get(name))}, ""


def _answer(hooks: Mapping[str, Callable[..., Any]], asked: Mapping[str, Any]) -> dict[str, Any]:
    said = io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            answer = _CALLS[asked["hook"]](hooks[asked["hook"]], asked["told"])
        json.dumps(answer)
    except BaseException as error:  # noqa: BLE001 - a hook may raise anything, SystemExit too
        answer = {"fault": _words(error, asked["file"])}
    return {**answer, "said": said.getvalue()[-MOST_SAID:]}


def _submit(hook: Callable[..., Any], told: Mapping[str, Any]) -> dict[str, Any]:
    before, given = SubmittedSpec(**told["job"]), SubmittedSpec(**told["job"])
    context: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in told["context"].items()
    }
    # A copy by JSON: the hook may change what it was given.
    given = SubmittedSpec(**json.loads(json.dumps(asdict(given))))
    returned = hook(given, HookUser(**told["user"]), HookContext(**context))
    job, warnings = _parted(returned, (SubmittedSpec, Refuse), "job, Refuse or warnings")
    if isinstance(job, Refuse):
        return {"refused": _text(job.reason) or "no reason was given"}
    return {"changed": {} if job is None else _changes(before, job), "warnings": warnings}


def _attempt(hook: Callable[..., Any], told: Mapping[str, Any]) -> dict[str, Any]:
    given = {**told["attempt"], "nodes": tuple(told["attempt"]["nodes"])}
    hold, notes = _parted(hook(HookAttempt(**given)), (Hold,), "Hold or notes")
    held = "" if hold is None else _text(hold.reason) or "no reason was given"
    return {"hold": held, "notes": notes}


def _parted(returned: Any, kinds: tuple[type, ...], words: str) -> tuple[Any, list[str]]:
    """The value of one of these kinds, if there is one, and the texts, of a hook's return."""
    pair = isinstance(returned, tuple) and len(returned) == 2
    value, texts = returned if pair else (returned, [])
    if isinstance(value, str | list) and not pair:
        value, texts = None, value
    if isinstance(texts, str):
        texts = [texts]
    if not (value is None or isinstance(value, kinds)):
        raise BadReturn(f"it returned a {type(value).__name__}, no {words}")
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise BadReturn("its texts are no list of texts")
    return value, [_text(one) for one in texts[:MOST_WARNINGS]]


def _changes(before: SubmittedSpec, after: SubmittedSpec) -> dict[str, Any]:
    names = [field.name for field in fields(before)]
    told = {name: (getattr(before, name), getattr(after, name)) for name in names}
    return {name: new for name, (old, new) in told.items() if old != new}


def _text(words: object) -> str:
    return " ".join(str(words).split())[:MOST_WORDS]


def _words(error: BaseException, file: str) -> str:
    """The error in one line, with the last line of the operator's file that led to it."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == file]
    where = f" (line {frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError) and error.filename == file:
        where = f" (line {error.lineno})"
        return textwrap.shorten(f"SyntaxError: {error.msg}", MOST_WORDS) + where
    name = "" if isinstance(error, BadReturn) else f"{type(error).__name__}: "
    return f"{name}{_text(error)}{where}"


_CALLS: Final[Mapping[str, Callable[[Callable[..., Any], Mapping[str, Any]], dict[str, Any]]]] = {
    "on_submit": _submit,
    "on_start": _attempt,
    "on_end": _attempt,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
