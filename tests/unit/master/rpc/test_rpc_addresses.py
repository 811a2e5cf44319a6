"""What others dial to reach the master's ports."""

import socket

import pytest

from dlq_master.rpc.server import dialled


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:0", "127.0.0.1:7321"),
        ("head.lab.example:7320", "head.lab.example:7321"),
        ("[2001:db8::1]:7320", "[2001:db8::1]:7321"),
    ],
)
def test_a_port_is_dialled_at_the_host_of_an_address(address: str, expected: str) -> None:
    assert dialled(address, 7321) == expected


@pytest.mark.parametrize("address", ["0.0.0.0:7320", "[::]:7320"])
def test_who_listens_everywhere_is_dialled_by_name(address: str) -> None:
    assert dialled(address, 7321) == f"{socket.gethostname()}:7321"
