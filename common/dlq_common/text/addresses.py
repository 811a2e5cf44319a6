"""HOST:PORT, as it stands in configurations and on command lines."""

from __future__ import annotations


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT or [IPv6]:PORT; ValueError otherwise."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host, int(port)


def split_addresses(text: str) -> tuple[str, ...]:
    """The addresses of all masters, as `a:7320,b:7320`; ValueError for one that is no HOST:PORT."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for address in found:
        split_address(address)
    return found


def is_loopback(address: str) -> bool:
    """Whether HOST:PORT cannot leave this machine; names other than localhost may. ValueError if it
    is no address.
    """
    import ipaddress  # commands that never ask do without it

    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
