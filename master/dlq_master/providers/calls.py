"""Calling a program with a time limit: its output as JSON, nothing of it left behind.

The program gets a session of its own and only a few variables of the environment. All its processes
are killed when its time is over or the master is gone (`leash`). The program reads its input from
its standard input, since every user of a host can read arguments.
"""

from __future__ import annotations

import json
import os
import pwd
import select
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dlq_common.clock import SteadyClock
from dlq_master.providers import leash
from dlq_master.providers.leash import FAILED
from dlq_master.providers.port import ProviderFailed

MOST_BYTES = 4 * 1024**2
_CHUNK = 64 * 1024
_MOST_WORDS = 400
_HELPER_S = 10.0  # for the helper itself, beside the time of the program
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "SLURM_CONF", "HTTPS_PROXY", "https_proxy")


class TooMuch(Exception):
    """The program wrote more than it may. Reading on would fill this process's memory."""


def call(
    words: Sequence[str],
    *,
    text: str = "",
    timeout_s: float,
    user: str = "",
    helper: str = "",
) -> str:
    """Returns its standard output. Raises ProviderFailed when the program cannot be run, takes
    longer, writes more than `MOST_BYTES`, or ends with another code than 0. The error holds its
    last line of standard error. `helper`: the socket of a runner in the account of `user`. A
    process that is not root asks it.
    """
    if helper and os.geteuid() != 0 and _account(user):
        return _by_helper(helper, {"words": list(words), "text": text, "timeout_s": timeout_s})
    name, account = os.path.basename(words[0]), _account(user)
    pipe, ours = os.pipe()  # ours is closed when we die, whatever we die of
    try:
        process = _started([str(pipe), account, *words], pipe, user if account else "")
    except (OSError, ValueError) as error:
        os.close(ours)
        raise ProviderFailed(f"{name} cannot be run: {error}") from None
    finally:
        os.close(pipe)
    try:
        out, errors = _exchange(process, text.encode(), timeout_s)
    except subprocess.TimeoutExpired:
        raise ProviderFailed(f"{name} did not end within {timeout_s:g} s and was killed") from None
    except TooMuch:
        raise ProviderFailed(f"{name} wrote more than {MOST_BYTES} bytes and was killed") from None
    finally:
        _kill(process)
        os.close(ours)
    if process.returncode:
        if errors.startswith(FAILED.encode()):
            why = errors.decode("utf-8", "replace").removeprefix(FAILED)
            raise ProviderFailed(f"{name} cannot be run: {why}")
        said = _last_line(errors) or _last_line(out) or "no word"
        raise ProviderFailed(f"{name} ended with {process.returncode}: {said}")
    return out.decode("utf-8", "replace")


def object_of(text: str, what: str) -> dict[str, Any]:
    """A JSON object. Raises ProviderFailed for anything else."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ProviderFailed(f"{what} did not print one JSON object")
    return found


def word_of(found: dict[str, Any], key: str, what: str) -> str:
    """A word that is not empty. Raises ProviderFailed."""
    word = found.get(key)
    if not isinstance(word, str) or not 0 < len(word) <= 255 or not word.isprintable():
        raise ProviderFailed(f"{what} did not print {key}")
    return word


def home_of(user: str) -> str:
    """The home of an account; "": of this process's. Raises ProviderFailed."""
    try:
        return (pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())).pw_dir
    except KeyError:
        raise ProviderFailed(f"there is no account {user or os.getuid()}") from None


def _by_helper(helper: str, asked: dict[str, Any]) -> str:
    """Have it run by the account's own helper."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(asked["timeout_s"] + _HELPER_S)
            line.connect(helper)
            line.sendall(json.dumps(asked).encode() + b"\n")
            with line.makefile("rb") as heard:
                told = object_of(heard.readline(2 * MOST_BYTES).decode("utf-8"), "the helper")
    except OSError as error:
        why = error.strerror or str(error)
        raise ProviderFailed(f"nobody runs programs at {helper}: {why}") from None
    if told.get("uid") == os.getuid():
        raise ProviderFailed(f"programs at {helper} run in the account of the master")
    if "failed" in told:
        raise ProviderFailed(str(told["failed"]))
    return str(told.get("out", ""))


def _started(told: list[str], pipe: int, user: str) -> subprocess.Popen[bytes]:
    env = {key: os.environ[key] for key in _KEPT if key in os.environ}
    if user:
        env |= {"HOME": home_of(user), "USER": user, "LOGNAME": user}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", leash.__file__, *told],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd="/",
        start_new_session=True,
        pass_fds=[pipe],
    )


def _exchange(
    process: subprocess.Popen[bytes], told: bytes, timeout_s: float
) -> tuple[bytes, bytes]:
    """Its standard output and error, once it has closed both and ended. Raises TooMuch, or
    subprocess.TimeoutExpired.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    now_s = SteadyClock().boottime_s
    out, errors, end_s = bytearray(), bytearray(), now_s() + timeout_s
    with selectors.DefaultSelector() as streams:
        streams.register(process.stdin, selectors.EVENT_WRITE)
        streams.register(process.stdout, selectors.EVENT_READ, out)
        streams.register(process.stderr, selectors.EVENT_READ, errors)
        while streams.get_map():
            left_s = end_s - now_s()
            if left_s <= 0.0:
                raise subprocess.TimeoutExpired(process.args, timeout_s)
            for key, _ in streams.select(left_s):
                if key.data is None:
                    told = _written(key.fd, told)
                    more = bool(told)
                else:
                    more = _read(key.fd, key.data)
                if not more:
                    streams.unregister(key.fd)
                    if key.data is None:
                        process.stdin.close()
    process.wait(max(0.0, end_s - now_s()))
    return bytes(out), bytes(errors)


def _written(fd: int, told: bytes) -> bytes:
    """The rest to be told. A pipe that has room for anything takes so much without blocking."""
    try:
        return told[os.write(fd, told[: select.PIPE_BUF]) :]
    except BrokenPipeError:  # it does not want to know
        return b""


def _read(fd: int, heard: bytearray) -> bool:
    chunk = os.read(fd, _CHUNK)
    heard += chunk
    if len(heard) > MOST_BYTES:
        raise TooMuch
    return bool(chunk)


def _account(user: str) -> str:
    """As whom it runs, for the leash; "": as the master."""
    if not user or pwd.getpwuid(os.getuid()).pw_name == user:
        return ""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise ProviderFailed(f"there is no account {user}") from None
    groups = os.getgrouplist(user, account.pw_gid)
    return f"{account.pw_uid}:{account.pw_gid}:{','.join(map(str, groups))}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """It, and all that it has started and left in its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    line = lines[-1] if lines else ""
    return "".join(c if c.isprintable() else " " for c in line)[:_MOST_WORDS]
