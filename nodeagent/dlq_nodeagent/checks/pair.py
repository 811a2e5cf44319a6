"""An all-reduce of two nodes: over gloo where torch is installed, else over a plain socket."""

from __future__ import annotations

import os
import socket
import threading
import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from dlq_nodeagent.checks.compute import rate
from dlq_nodeagent.checks.result import Figure, NotMeasured, WrongResult

_NUMBERS = 1 << 20  # float32: 4 MiB
_ROUNDS = 8
_AGAIN_S = 0.1


def all_reduce(patience_s: float) -> Figure:
    """GB/s that each of the two sends, by MASTER_ADDR, MASTER_PORT and NODE_RANK of its job.

    Raises NotMeasured if the other one does not come, or leaves, and WrongResult for a wrong sum.
    """
    environment = os.environ
    if environment.get("NNODES") != "2":
        raise NotMeasured("an all-reduce needs two nodes")
    address = (environment["MASTER_ADDR"], int(environment["MASTER_PORT"]))
    rank = int(environment["NODE_RANK"])
    word = f"{environment.get('DLQ_JOB_ID')} {environment.get('DLQ_FENCE')}\n".encode()
    if find_spec("torch") is not None:
        return _over_gloo(address, rank, patience_s)
    try:
        line = met(address, rank, word, patience_s)
    except OSError as error:
        raise NotMeasured(f"the other node does not answer: {error}") from None
    with line:
        return over_socket(line, rank)


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
