"""A directory that is written and read, the offset of the clock, and the pull of an image."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time

from dlq_nodeagent.checks.result import Figure, NotMeasured, WrongResult

_MIB = 1 << 20
_NTP_PORT = 123
_NTP_EPOCH_S = 2_208_988_800  # of NTP before that of Unix
_ASKED = 3  # times, since an answer may be lost
_ANSWER_S = 2.0


def directory(path: str, mib: int) -> Figure:
    """MB/s of writing so many MiB there and forcing them to the disk. Raises WrongResult if
    something else is read back; NotMeasured if the directory is not there, or full.
    """
    block = os.urandom(_MIB)
    try:
        with tempfile.TemporaryFile(dir=path) as file:
            began_s = time.perf_counter()
            for _ in range(mib):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            took_s = time.perf_counter() - began_s
            file.seek(0)
            if any(file.read(_MIB) != block for _ in range(mib)):
                raise WrongResult(f"{path} gives back something else than was written")
    except OSError as error:
        if error.errno in _SICK:
            raise WrongResult(f"{error.strerror}: {path}") from None
        raise NotMeasured(f"{error.strerror}: {path}") from None
    return Figure(value=mib * _MIB / 1e6 / max(took_s, 1e-9), unit="MB/s", on="a written file")


_SICK = frozenset({5, 30, 116})  # an I/O error, a file system read-only, a stale handle


def clock(server: str) -> Figure:
    """The offset in ms from the clock of a time server, HOST or HOST:PORT (SNTP)."""
    host, _, port = server.partition(":")
    if not host:
        raise NotMeasured("no time server is named (clock_server)")
    for _ in range(_ASKED):
        try:
            offset_s = _offset_s(host, int(port or _NTP_PORT))
        except OSError:
            continue
        return Figure(value=abs(offset_s) * 1e3, unit="ms", on=f"SNTP, {host}"[:40], least=False)
    raise NotMeasured(f"time server {server} does not answer")


def _offset_s(host: str, port: int) -> float:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.settimeout(_ANSWER_S)
        line.connect((host, port))
        sent_s = time.time()  # noqa: TID251 - the clock itself is measured
        line.send(b"\x23" + 47 * b"\0")
        answer = line.recv(512)
        heard_s = time.time()  # noqa: TID251 - the clock itself is measured
    if len(answer) < 48:
        raise OSError("the answer is too short")
    taken, left = struct.unpack("!QQ", answer[32:48])
    return ((_unix_s(taken) - sent_s) + (_unix_s(left) - heard_s)) / 2


def _unix_s(stamp: int) -> float:
    return stamp / 2.0**32 - _NTP_EPOCH_S


def pull(image: str) -> Figure:
    """Seconds of a pull of this image by podman, in the account of the check. A pull that fails is
    NotMeasured: a registry that is down is no fault of the node.
    """
    podman = shutil.which("podman")
    if not image or podman is None:
        raise NotMeasured("no image is named" if not image else "podman is not installed")
    began_s = time.perf_counter()
    done = subprocess.run([podman, "pull", "--quiet", image], capture_output=True, check=False)
    took_s = time.perf_counter() - began_s
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise NotMeasured(f"the pull failed: {''.join(last)}")
    return Figure(value=took_s, unit="s", on="podman", least=False)
