"""Ports for daemons that may be killed and started again: nobody else takes one meanwhile."""

import os
import socket

# Neither where jobs meet (jobs.port_first; here from 30000), nor where the demo looks, nor where
# the kernel takes ports of its own: a line that is dialled while its master is away may be given
# that very port.
PORTS = range(31_000, 32_700)
_claims: list[socket.socket] = []  # held for as long as this process lives


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on and no other process of tests has claimed; each begins to look
    at a place of its own."""
    first = os.getpid() * 997 % len(PORTS)
    order = (*PORTS[first:], *PORTS[:first])
    found = (port for port in order if _claim(port) and is_free(port))
    return [next(found) for _ in range(count)]


def _claim(port: int) -> bool:
    """A name of the kernel's that only one process has at a time: a daemon that is down has nothing
    at its port.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0dlq-tests-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True


def is_free(port: int) -> bool:
    """Whether nobody listens on it at this moment."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
