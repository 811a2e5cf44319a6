"""HOST:PORT, as it stands in configurations and on command lines."""

from __future__ import annotations


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT or [IPv6]:PORT; ValueError otherwise."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host, int(port)
