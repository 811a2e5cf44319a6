"""What programs print when another one has gone, and what they print for reasons of their own."""

import pytest

from dlq_common.failure_signs import says_peer_lost


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:41234",
        "RuntimeError: Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "ConnectionResetError: [Errno 104]",
        "[rank0]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, "
        "OpType=BROADCAST)",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process "
        "exiting",
        "torch.distributed.DistBackendError: remote process exited or there was a network error",
        "lost peer",
    ],
)
def test_a_lost_peer_is_recognised(line: str) -> None:
    assert says_peer_lost(line)


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: disk full",
        "torch.OutOfMemoryError: CUDA out of memory.",
        "KeyError: 'connection'",
        "lost the checkpoint",
        "AssertionError: loss is nan",
    ],
)
def test_a_failure_of_its_own_is_not(line: str) -> None:
    assert not says_peer_lost(line)
