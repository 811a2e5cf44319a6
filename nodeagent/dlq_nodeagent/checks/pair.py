"""An all-reduce of two nodes: over NCCL on their GPUs, else over gloo, else over a plain socket.

The two meet first and tell each other what they have, so both use the same means. Where GPUs were
given and NCCL cannot be used, the result says so, and no limit is held against it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from dlq_nodeagent.checks import cuda, nccl
from dlq_nodeagent.checks.compute import rate
from dlq_nodeagent.checks.libraries import NCCL, opened
from dlq_nodeagent.checks.result import Figure, NotMeasured, WrongResult

_NUMBERS = 1 << 20  # float32: 4 MiB
_ROUNDS = 8
_AGAIN_S = 0.1
_SPEECH = 2  # what the two say to each other before they begin; older releases do not meet so
_LONGEST = 1000  # bytes of that
_BY_GLOO, _BY_SOCKET = "gloo", "socket"


class Means(NamedTuple):
    """The means of a node for an all-reduce. `nccl`: the version of NCCL; "": none, for a reason.
    `gpus`: the number of its real GPUs.
    """

    gpus: int
    nccl: str
    reason: str
    torch: bool


def all_reduce(patience_s: float, part: float = 1.0) -> Figure:
    """GB/s between the two nodes, by MASTER_ADDR, MASTER_PORT and NODE_RANK of their job.

    Raises NotMeasured if the other one does not come, or leaves. WrongResult is for a wrong sum, an
    error of NCCL, or a step of it that hangs. `part` of the usual size is used on GPUs.
    """
    environment = os.environ
    if environment.get("NNODES") != "2":
        raise NotMeasured("an all-reduce needs two nodes")
    address = (environment["MASTER_ADDR"], int(environment["MASTER_PORT"]))
    rank = int(environment["NODE_RANK"])
    job = f"{environment.get('DLQ_JOB_ID')} {environment.get('DLQ_FENCE')}"
    try:
        line = met(address, rank, f"{job} {_SPEECH}\n".encode(), patience_s)
    except OSError as error:
        raise NotMeasured(f"the other node does not answer: {error}") from None
    with line:
        return _measured(line, address, rank, patience_s, part)


def chosen(mine: Means, its: Means) -> tuple[str, str]:
    """The means of both: a version of NCCL, "gloo" or "socket"; and why it is not NCCL, if GPUs
    were given. Both nodes choose the same.
    """
    over = _BY_GLOO if mine.torch and its.torch else _BY_SOCKET
    if not mine.gpus and not its.gpus:
        return over, ""
    reason = mine.reason or (its.reason and f"{its.reason} there")
    if not reason and mine.gpus != its.gpus:
        reason = f"{mine.gpus} GPUs here and {its.gpus} there"
    if not reason and mine.nccl != its.nccl:
        reason = f"NCCL {mine.nccl} here and {its.nccl} there"
    return (over, f"{reason}, {over} over the host network used") if reason else (mine.nccl, "")


def met(address: tuple[str, int], rank: int, word: bytes, patience_s: float) -> socket.socket:
    """A line to the other rank, which has shown the same word. Raises OSError after
    `patience_s`.
    """
    ends_s = time.perf_counter() + patience_s
    if rank == 0:
        with socket.create_server(("", address[1])) as door:
            while True:
                door.settimeout(max(_AGAIN_S, ends_s - time.perf_counter()))
                line, _ = door.accept()
                line.settimeout(patience_s)
                if line.recv(len(word), socket.MSG_WAITALL) == word:
                    return line
                line.close()
    while True:
        try:
            line = socket.create_connection(address, timeout=patience_s)
        except OSError:
            if time.perf_counter() >= ends_s:
                raise
            threading.Event().wait(_AGAIN_S)
            continue
        line.sendall(word)
        return line


def _measured(
    line: socket.socket, address: tuple[str, int], rank: int, patience_s: float, part: float
) -> Figure:
    library, mine = _means()
    over, why_not = chosen(mine, told_each_other(line, mine))
    if library is not None and not why_not:
        return nccl.measured(library, over, line, rank, patience_s, part)
    by_gloo = over == _BY_GLOO
    figure = _over_gloo(address, rank, patience_s) if by_gloo else over_socket(line, rank)
    return replace(figure, instead_of=why_not)


def _means() -> tuple[nccl.Nccl | None, Means]:
    """NCCL with the GPUs of this node, if it can be used, and what the other one is told."""
    torch = find_spec("torch") is not None
    try:
        if (gpus := cuda.given()) is None:
            return None, Means(0, "", "", torch)
        found = nccl.Nccl(opened("NCCL", NCCL), gpus)
        return found, Means(gpus.count, found.version(), "", torch)
    except NotMeasured as missing:
        return None, Means(cuda.asked_count(), "", str(missing), torch)


def told_each_other(line: socket.socket, mine: Means) -> Means:
    """The means of the other node. NotMeasured for a word that cannot be read."""
    try:
        line.sendall(json.dumps(mine).encode() + b"\n")
        said = b""
        while not said.endswith(b"\n") and len(said) < _LONGEST:
            if not (part := line.recv(1)):  # what follows the line is for others
                break
            said += part
        gpus, version, reason, torch = json.loads(said)
        return Means(int(gpus), str(version)[:40], str(reason)[:40], bool(torch))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise NotMeasured(f"the other node does not say what it has: {error}") from None


def over_socket(line: socket.socket, rank: int) -> Figure:
    """The figure of some rounds; both sides make the same number of them."""
    import numpy as np

    own = np.full(_NUMBERS, rank + 1, dtype=np.float32)
    try:
        began_s = time.perf_counter()
        for _ in range(_ROUNDS):
            if not np.all(_summed(line, rank, own) == 3.0):
                raise WrongResult("the sum of two nodes is wrong")
        took_s = time.perf_counter() - began_s
    except OSError as error:
        raise NotMeasured(f"the line to the other node broke: {error}") from None
    value = _ROUNDS * own.nbytes / 1e9 / max(took_s, 1e-9)
    return Figure(value=value, unit="GB/s", on="numpy, a socket")


def _summed(line: socket.socket, rank: int, own: Any) -> Any:
    """The sum of both: each adds one half, and gives it to the other."""
    import numpy as np

    half = len(own) // 2
    mine, others = (slice(0, half), slice(half, None))[:: 1 - 2 * rank]
    total = np.empty_like(own)
    total[mine] = own[mine] + np.frombuffer(_swapped(line, own[others].tobytes()), own.dtype)
    total[others] = np.frombuffer(_swapped(line, total[mine].tobytes()), own.dtype)
    return total


def _swapped(line: socket.socket, data: bytes) -> bytes:
    """Send and receive as many bytes at once: neither waits for the other's buffer."""
    sending = threading.Thread(target=_send, args=(line, data), daemon=True)
    sending.start()
    got = bytearray()
    while len(got) < len(data):
        if not (part := line.recv(min(1 << 20, len(data) - len(got)))):
            raise ConnectionError("the other node has left")
        got += part
    sending.join()
    return bytes(got)


def _send(line: socket.socket, data: bytes) -> None:
    try:
        line.sendall(data)
    except OSError:
        line.close()  # the receiving side says so


def _over_gloo(address: tuple[str, int], rank: int, patience_s: float) -> Figure:
    from datetime import timedelta

    torch, dist = import_module("torch"), import_module("torch.distributed")
    where, patience = f"tcp://{address[0]}:{address[1]}", timedelta(seconds=patience_s)
    try:
        dist.init_process_group(
            "gloo", init_method=where, rank=rank, world_size=2, timeout=patience
        )
        numbers = torch.full((_NUMBERS,), 1.0)

        def once() -> float:
            numbers.fill_(rank + 1.0)
            dist.all_reduce(numbers)
            if not bool((numbers == 3.0).all()):
                raise WrongResult("the sum of two nodes is wrong")
            return 4.0 * _NUMBERS / _ROUNDS

        value = sum(rate(once, 0.0) for _ in range(_ROUNDS))
        dist.destroy_process_group()
    except RuntimeError as error:
        raise NotMeasured(f"the other node does not answer: {error}") from None
    return Figure(value=value / 1e9, unit="GB/s", on="torch, gloo")
