"""A call of a web address that a user has chosen, made so that it reaches nothing of the site.

The host must be in the configuration. Its name is looked up once, and every address found must be a
public one, unless the configuration names the host as private. The connection goes to that very
address, so a second look-up cannot lead elsewhere. Redirects are not followed, proxies of the
environment are not used, and time and size of the answer are bounded.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from dlq_notify.config import WebSection
from dlq_notify.targets.refusal import answered, refused_by_site, unreachable

LARGEST_ANSWER_BYTES = 16 * 1024
HTTPS_PORT, HTTP_PORT = 443, 80
Resolve = Callable[..., Sequence[Any]]


class GuardedCaller:
    """Posts to web addresses within the limits of the site."""

    def __init__(self, settings: WebSection, resolve: Resolve = socket.getaddrinfo) -> None:
        self._settings = settings
        self._resolve = resolve
        ca_file = None if settings.ca_file is None else str(settings.ca_file)
        self._tls = ssl.create_default_context(cafile=ca_file)

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Post a body. Raises NotSent unless the server takes it."""
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".").lower()
        secure = parts.scheme == "https"
        port = parts.port or (HTTPS_PORT if secure else HTTP_PORT)
        self._check_host(host, port, secure=secure)
        address = self._address(host, port)
        path = parts.path or "/"
        target = f"{path}?{parts.query}" if parts.query else path
        tls = self._tls if secure else None
        line = _Pinned(host, port, address, self._settings.timeout, tls)
        self._exchange(line, target, body, headers)

    def _check_host(self, host: str, port: int, *, secure: bool) -> None:
        if not is_listed(host, port, self._settings.hosts, secure=secure):
            raise refused_by_site("the host is not in web.hosts")
        if not secure and host not in self._settings.private_hosts:
            raise refused_by_site("http is for hosts in web.private_hosts; use https")

    def _address(self, host: str, port: int) -> str:
        """The one address to connect to. All that the name has must be allowed."""
        try:
            found = self._resolve(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise unreachable("the name of the host is not known") from None
        addresses = [str(one[4][0]) for one in found]
        if not addresses:
            raise unreachable("the name of the host has no address")
        if host not in self._settings.private_hosts:
            for address in addresses:
                if not is_public(address):
                    raise refused_by_site("the host has an address that is not public")
        return addresses[0]

    def _exchange(
        self, line: _Pinned, target: str, body: bytes, headers: Mapping[str, str]
    ) -> None:
        watch = threading.Timer(self._settings.timeout, line.cut)
        watch.daemon = True
        watch.start()
        try:
            line.request("POST", target, body, {**headers, "Connection": "close"})
            answer = line.getresponse()
            answer.read(LARGEST_ANSWER_BYTES)
        except ssl.SSLCertVerificationError:
            raise unreachable("the server's certificate is not trusted") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise unreachable(f"no answer ({type(error).__name__})") from None
        finally:
            watch.cancel()
            line.close()
        if not 200 <= answer.status < 300:
            raise answered(answer.status, _seconds(answer.getheader("Retry-After", "")))


class _Pinned(http.client.HTTPConnection):
    """A connection to one address, with the host's name in TLS and in the header."""

    def __init__(
        self, host: str, port: int, address: str, timeout_s: float, tls: ssl.SSLContext | None
    ) -> None:
        super().__init__(host, port, timeout=timeout_s)
        self.default_port = HTTP_PORT if tls is None else HTTPS_PORT  # of the header Host
        self._address, self._tls, self._cut = address, tls, False

    def connect(self) -> None:
        """Look nothing up."""
        made = socket.create_connection((self._address, self.port), self.timeout)
        self.sock = made
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(made, server_hostname=self.host)
        if self._cut:
            raise TimeoutError

    def cut(self) -> None:
        """The time is over, whatever trickles in."""
        self._cut = True
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)


def is_listed(host: str, port: int, hosts: Sequence[str], *, secure: bool) -> bool:
    """Whether `hosts` names it. An entry without a port means the usual one."""
    usual = HTTPS_PORT if secure else HTTP_PORT
    for entry in hosts:
        name, _, number = entry.lower().partition(":")
        if (number or str(usual)) != str(port):
            continue
        if host == name or (name.startswith("*.") and host.endswith(name[1:])):
            return True
    return False


def is_public(text: str) -> bool:
    """Whether an address is of the public internet, also where it stands for another one."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is not None:
            return is_public(str(inner))
        if address not in _UNICAST or address in _EXAMPLES or address.teredo is not None:
            return False
        if int(address) >> 32 & _ANY_ISATAP == _ISATAP:
            return False
    return address.is_global and not address.is_multicast


_UNICAST = ipaddress.ip_network("2000::/3")  # outside it are NAT64 and other forms of IPv4
_EXAMPLES = ipaddress.ip_network("3fff::/20")
_ISATAP, _ANY_ISATAP = 0x00005EFE, 0xFDFFFFFF  # the third word of an address that holds one of IPv4


def _seconds(text: str | None) -> float:
    return float(text) if text is not None and text.isdecimal() and len(text) < 9 else 0.0
