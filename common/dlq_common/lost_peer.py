"""How a program says that another one it worked with has gone: the effect of a failure, not its
cause.
"""

import re

_SAID = re.compile(
    r"""
    \b connection \s+ (was \s+)? (closed | reset | aborted | refused | lost) \b  # gloo, sockets
    | \b broken \s pipe \b
    | \b lost \s+ (connection \s to \s)? (a \s | the \s)? peer \b
    | \b (remote | peer) \s (process | rank | host) \b .{0,40} \b (exit | died | gone | closed | lost)
    | \b (ncclRemoteError | ECONNRESET | ConnectionResetError | BrokenPipeError) \b
    | \b watchdog \b .{0,200} \b timeout \b  # NCCL's: somebody did not come to a collective
    """,  # noqa: E501
    re.VERBOSE | re.IGNORECASE,
)
_LONGEST = 1000


def says_peer_lost(line: str) -> bool:
    """Whether a line of a program's output means that somebody else has gone away."""
    return _SAID.search(line[:_LONGEST]) is not None
