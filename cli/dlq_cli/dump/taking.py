"""The parts of a dump: files of this host, answers of commands, and ends of logs.

Each part is bounded in size and time. One that fails leaves its error in the list: a dump is wanted
just when something does not work.
"""

from __future__ import annotations

import io
import json
import os
import platform
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

from dlq_cli.dump.redacting import redacted
from dlq_cli.up.place import read_box
from dlq_common.errors import DlqError

LARGEST_PART = 1024 * 1024
LARGEST_ANSWER = 64 * LARGEST_PART  # it is read whole, and cut when its secrets are out
LARGEST_DUMP = 20 * 1024 * 1024
COMMAND_S = 30.0
_CODE = "exit code "
CONFIGS = tuple(
    Path("/etc/dlq") / name for name in ("master.toml", "nodeagent.toml", "web.toml", "notify.toml")
)
UNITS = ("dlq-master", "dlq-nodeagent", "dlq-web", "dlq-notify")
# The master may be away: then these say so, and the rest of the dump is complete.
ASKED = (
    ("doctor", "--json"), ("version", "--json"), ("config", "--json"), ("nodes", "--json"),
    ("queues", "--json"), ("status", "--json", "--limit=500"), ("up", "--status", "--json"),
    ("admin", "policy", "show", "--json"),
)  # fmt: skip
LEFT_OUT = """\
Left out on purpose:
- keys, join tokens, sign-in links, passwords and other named secrets
- values of environments, and the database
- commands, scripts, comments and labels of jobs{commands}
- output of jobs

Not left out are names of users, jobs, hosts and addresses. A secret that looks like an ordinary
word stays too. Read the files before you send them to somebody.
"""


class DumpPart(NamedTuple):
    """A file of the dump, or the reason why it is none."""

    name: str
    text: str
    note: str
    refusal: str = ""
    """The error of a command that refused."""


def parts_of(home: Path, job: str | None, *, with_commands: bool) -> Iterator[DumpPart]:
    """All parts, without secrets, as long as they have room."""
    room = LARGEST_DUMP
    for name, read in _wanted(home, job):
        try:
            text = read()
        except (DlqError, OSError, ValueError, subprocess.SubprocessError) as error:
            yield DumpPart(name, "", f"not taken: {str(error).splitlines()[0]}")
            continue
        clean = cleaned(text, with_commands=with_commands)
        size = len(clean.encode("utf-8", "replace"))
        if size > room:
            yield DumpPart(name, "", "not taken: the dump is large enough")
            continue
        room -= size
        refusal = _refusal(clean)
        note = f"{size} bytes: {refusal}" if refusal else f"{size} bytes"
        yield DumpPart(name, clean, note, refusal)


def cleaned(text: str, *, with_commands: bool) -> str:
    """The end of a text without its secrets, as long as a part may be. They are taken out before it
    is cut: those of a document are known by their keys, and the half of one is no document.
    """
    raw = redacted(text, with_commands=with_commands).encode("utf-8", "replace")
    return raw[-LARGEST_PART:].decode("utf-8", "ignore")


def write_dump(path: Path, parts: list[DumpPart], *, with_commands: bool) -> str:
    """Write the archive, for this user alone; its list of files. FileExistsError, OSError."""
    lines = [f"{part.name}: {part.note}" for part in parts]
    commands = ", which were asked for and are here" if with_commands else ""
    listed = "\n".join([*lines, "", LEFT_OUT.format(commands=commands)])
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in [("LIST.txt", listed), *((part.name, part.text) for part in parts)]:
            content = text.encode("utf-8", "replace")
            if content:
                entry = tarfile.TarInfo(f"dlq-debug-dump/{name}")
                entry.size, entry.mode = len(content), 0o600
                archive.addfile(entry, io.BytesIO(content))
    return listed


def _wanted(home: Path, job: str | None) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "host.txt", _host
    yield "packages.txt", _packages
    for words in ASKED:
        yield f"answers/{'-'.join(w for w in words if w[0] != '-')}.json", _answer(home, words)
    for words in () if job is None else (("show", job), ("why", job), ("events", job)):
        asked = (words[0], "--json", words[1])
        yield f"job/{words[0]}.json", _answer(home, asked)
    for path in CONFIGS:
        if path.exists():
            yield f"config/{path.name}", _tail(path)
    for unit in UNITS:
        if Path(f"/etc/systemd/system/{unit}.service").exists():
            yield f"logs/{unit}.log", _journal(unit)
    for name, path in _files_of_box(home):
        yield f"box/{name}", _tail(path)


def _files_of_box(home: Path) -> Iterator[tuple[str, Path]]:
    try:
        box = read_box(home)
    except DlqError:
        return
    if box is not None:
        yield "up.json", home / "up.json"
        yield "running.json", box.running
        yield "nodeagent.toml", box.state / "nodeagent.toml"
        yield "master.toml", box.master / "master.toml"
        for part in ("keeper", "master", "agent", "page"):
            yield f"{part}.log", box.log(part)


def _host() -> str:
    release = Path("/etc/os-release")
    facts = [
        f"{platform.platform()} python {platform.python_version()} uid {os.geteuid()}",
        release.read_text() if release.exists() else "",
        Path("/proc/meminfo").read_text(),
        Path("/proc/loadavg").read_text(),
        Path("/proc/self/mounts").read_text(),
    ]
    return "\n".join(facts)


def _packages() -> str:
    found = {f"{each.metadata['Name']}=={each.version}" for each in distributions()}
    return "\n".join(sorted(found))


def _answer(home: Path, words: tuple[str, ...]) -> Callable[[], str]:
    main = "from dlq_cli.main import main; main()"

    def ask() -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-c", main, "--home", str(home), "--patience", "3", *words],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, check=False,
        )  # fmt: skip
        text = done.stdout + b"\n" + done.stderr
        if len(text) > LARGEST_ANSWER:
            raise ValueError(f"an answer of {len(text)} bytes")
        return f"{text.decode('utf-8', 'replace').strip()}\n{_CODE}{done.returncode}\n"

    return ask


def _journal(unit: str) -> Callable[[], str]:
    def ask() -> str:
        done = subprocess.run(
            ["journalctl", "-u", unit, "-n", "3000", "--no-pager", "-o", "cat"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, check=False,
        )  # fmt: skip
        text = (done.stdout or done.stderr).decode("utf-8", "replace")
        return _whole_lines(text[-LARGEST_PART:], cut=len(text) > LARGEST_PART)

    return ask


def _tail(path: Path) -> Callable[[], str]:
    def read() -> str:
        with path.open("rb") as file:
            first = max(0, os.fstat(file.fileno()).st_size - LARGEST_PART)
            file.seek(first)
            return _whole_lines(file.read(LARGEST_PART).decode("utf-8", "replace"), cut=first > 0)

    return read


def _whole_lines(text: str, *, cut: bool) -> str:
    """Without half a line: secrets of a line in JSON are known by their keys."""
    return text.partition("\n")[2] if cut else text


def _refusal(answer: str) -> str:
    """The error of a command that refused; empty: there is none."""
    for line in answer.splitlines() if f"\n{_CODE}" in answer else ():
        with suppress(ValueError, KeyError, TypeError):
            return str(json.loads(line)["error"]["message"])
    return ""
