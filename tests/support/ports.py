"""Ports for daemons that may be killed and started again: nobody else takes one meanwhile."""

import os
import socket

# Neither where jobs meet (jobs.port_first), nor where the demo looks, nor where the kernel takes ports
# of its own: a line that is dialled while its master is away may be given that very port.
PORTS = range(20_000, 30_000)
_taken: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; each process begins to look at a place of its own."""
    first = os.getpid() * 37 % len(PORTS)
    order = (*PORTS[first:], *PORTS[:first])
    found = (port for port in order if port not in _taken and _is_free(port))
    ports = [next(found) for _ in range(count)]
    _taken.update(ports)
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
