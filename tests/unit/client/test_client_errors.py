"""Which failures mean that the same request may be repeated."""

import grpc
import pytest
from grpc import aio

from dlq_client.line.errors import from_rpc_error, is_lost
from dlq_common.errors import Unavailable


def failed(code: grpc.StatusCode) -> aio.AioRpcError:
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), details=code.name)


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"])
def test_what_a_line_or_a_stopping_master_has_cut_off_is_repeated(code: str) -> None:
    error = failed(grpc.StatusCode[code])
    assert is_lost(error)
    assert isinstance(from_rpc_error(error, "host:1"), Unavailable)


@pytest.mark.parametrize(
    "code", ["INVALID_ARGUMENT", "NOT_FOUND", "INTERNAL", "RESOURCE_EXHAUSTED"]
)
def test_what_was_answered_is_not(code: str) -> None:
    assert not is_lost(failed(grpc.StatusCode[code]))
