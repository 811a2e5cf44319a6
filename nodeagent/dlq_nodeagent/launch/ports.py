"""Free ports of this node for a rank: for its rendezvous and for its tasks."""

import socket
from collections.abc import Callable, Collection, Iterator

from dlq_common.start_causes import StartCause
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.model.mistakes import LaunchRefused

# Ranks of a gang may share a host (agents of a demo): each begins to look somewhere else.
_STRIDE = 16


def ports_for(
    launch: Launch,
    count: int,
    *,
    kept: tuple[int, ...] = (),
    taken: Collection[int] = (),
    is_free: Callable[[int], bool] | None = None,
) -> tuple[int, ...]:
    """`count` ports without a listener that no other rank here was promised.

    Its earlier ones (`kept`) are used if they are still free. Ports that every node was given
    (`node_ports`) stay. LaunchRefused: there are too few. Another program may take one before the
    job listens. The job then fails, and its next attempt gets others.
    """
    if launch.node_ports:
        return launch.node_ports[launch.key.node_rank]
    if not launch.port_last:  # an older master: its word is the port
        return ()
    free = is_free or listenable
    if len(kept) == count and all(port not in taken and free(port) for port in kept):
        return kept
    found: list[int] = []
    for port in _in_turn(launch):
        if len(found) == count:
            break
        if port not in taken and free(port):
            found.append(port)
    if len(found) < count:
        span = f"{launch.port_first} to {launch.port_last}"
        words = f"this node has not {count} free ports from {span}"
        raise LaunchRefused(words, StartCause.PORTS)
    return tuple(found)


def listenable(port: int) -> bool:
    """Whether a listener could bind there on all addresses of both families."""
    return all(_binds(family, port) for family in (socket.AF_INET, socket.AF_INET6))


def _binds(family: socket.AddressFamily, port: int) -> bool:
    try:
        probe = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return True  # this host does not speak it
    with probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            probe.bind(("", port))
            probe.listen(1)  # two may be bound to one port as long as none of them listens
        except OSError as error:
            return error.errno not in (98, 13)  # in use, or not for us
    return True


def _in_turn(launch: Launch) -> Iterator[int]:
    first, span = launch.port_first, launch.port_last - launch.port_first + 1
    start = launch.master_port - first + _STRIDE * launch.key.node_rank
    return (first + (start + step) % span for step in range(span))
