"""A line through the relay beside the master, from either end: whole messages over one TLS socket.

The line never waits by itself. Threads and event loops wait for its descriptor. An end with a word
of TLS (close_notify) means that nobody comes back. Any other end is a lost line.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
from contextlib import suppress
from typing import Final, Protocol

from dlq_common.identity.facts import SERVER_NAME
from dlq_common.identity.private_files import load_chain
from dlq_common.text.addresses import split_address

GREETING: Final = b"dlq-relay/1 "
TICKET_LENGTH: Final = 43
JOINED: Final = b"\x01"
LARGEST_MESSAGE_BYTES: Final = 640 * 1024
DIAL_S: Final = 4.0
JOIN_S: Final = 10.0  # for the other side
BEAT_S: Final = 5.0
"""Each end says something so often."""
SILENCE_S: Final = 20.0
_HEAD: Final = struct.Struct("!I")
_BUFFER_BYTES: Final = 1 << 20
_WRITTEN_BYTES: Final = 128 * 1024  # at once: a reader of the same line does not wait long
_RECORD_BYTES: Final = 16 * 1024
_LATER = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class HolderKeys(Protocol):
    """The certificate of this end and its key, and the roots of the cluster; all are PEM."""

    @property
    def key(self) -> bytes: ...
    @property
    def certificate(self) -> bytes: ...
    @property
    def ca(self) -> bytes: ...


class LineLost(ConnectionError):
    """The line broke: its holder may come back another way."""


class LineOver(Exception):
    """The other end has ended the line, and does not come back."""


class RelayLine:
    """One joined line. One thread may read it while another one writes."""

    def __init__(self, secure: ssl.SSLSocket) -> None:
        self._secure = secure
        self._using = threading.Lock()  # OpenSSL lets one thread at a time use a connection
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        self._writing: list[memoryview] = []
        self._ended = False

    def fileno(self) -> int:
        """To wait for; -1 once it is closed."""
        return self._secure.fileno()

    def read(self) -> list[bytes]:
        """The messages that are here; none: wait for more. Raises LineLost, LineOver, and
        ValueError for what is no message.
        """
        with self._using:
            self._fill()
        found, at = [], 0
        while self._filled - at >= _HEAD.size:
            (length,) = _HEAD.unpack_from(self._buffer, at)
            if length > LARGEST_MESSAGE_BYTES:
                raise ValueError(f"a message of {length} bytes")
            end = at + _HEAD.size + length
            if end > self._filled:
                break
            found.append(bytes(self._buffer[at + _HEAD.size : end]))
            at = end
        if at:
            rest = self._filled - at
            self._buffer[:rest] = self._buffer[at : self._filled]
            self._filled = rest
        return found

    def begin(self, message: bytes) -> None:
        """Put a message before `write`; all of it must be written before the next one."""
        self._writing = [memoryview(_HEAD.pack(len(message)) + message)]

    def write(self) -> bool:
        """Whether the message is out; False: wait for room. Raises LineLost."""
        while self._writing:
            with self._using:
                if not self._write_some():
                    return False
        return True

    def end(self, *, cleanly: bool) -> None:
        """No more, from any thread. `cleanly`: we do not come back. Waiting threads wake up."""
        with self._using:
            if self._ended:
                return
            self._ended = True
            if cleanly:
                self._secure.setblocking(False)
                with suppress(OSError, ValueError):
                    self._secure.unwrap()
            with suppress(OSError):  # not the method of TLS, which would let readers go on in clear
                socket.socket.shutdown(self._secure, socket.SHUT_RDWR)
            self._secure.close()

    def await_ready(self, *, writing: bool, timeout_s: float) -> None:
        """Wait, in a thread. Raises LineLost after that time."""
        waiting = select.poll()
        try:
            waiting.register(self._secure, select.POLLOUT if writing else select.POLLIN)
        except (OSError, ValueError):
            raise LineLost("the line through the relay was ended") from None
        if not waiting.poll(1e3 * timeout_s):
            raise LineLost("the line through the relay is silent")

    def _fill(self) -> None:
        """As much as is there now, if there was nothing whole before."""
        if self._ended:
            raise LineLost("the line through the relay was ended")
        began = self._filled
        try:
            while _BUFFER_BYTES - self._filled >= _RECORD_BYTES:
                got = self._secure.recv_into(self._buffer[self._filled :])
                if not got:
                    raise ssl.SSLZeroReturnError
                self._filled += got
        except _LATER:
            pass
        except ssl.SSLZeroReturnError:
            if self._filled == began:  # else what came before it is first
                raise LineOver from None
        except OSError:
            raise LineLost("the line through the relay is cut") from None

    def _write_some(self) -> bool:
        if self._ended:
            raise LineLost("the line through the relay was ended")
        piece = self._writing[0][:_WRITTEN_BYTES]
        try:
            sent = self._secure.send(piece)
        except _LATER:
            return False
        except OSError:
            raise LineLost("the line through the relay is cut") from None
        rest = self._writing[0][sent:]
        self._writing = [rest] if rest else []
        return True


def dial(address: str, dialled: str, ticket: str, identity: HolderKeys) -> RelayLine:
    """A line that is joined with the other side's. It waits, so an event loop gives it a thread.

    `dialled`: the address at which the master was reached, for an address without a host. Raises
    LineLost, with words for people.
    """
    host, port = _place(address, dialled)
    where = f"the relay at {host}:{port}"
    try:
        context = _context(identity)
        raw = socket.create_connection((host, port), timeout=DIAL_S)
    except (OSError, ValueError) as error:
        raise LineLost(f"{where} cannot be reached: {error}") from None
    try:
        keep_alive(raw)
        secure = context.wrap_socket(raw, server_hostname=SERVER_NAME, suppress_ragged_eofs=False)
    except OSError as error:
        raw.close()
        raise LineLost(f"{where} cannot be spoken with: {error}") from None
    try:
        secure.sendall(GREETING + ticket.encode())
        secure.settimeout(JOIN_S)
        joined = secure.recv(1)
    except OSError as error:
        secure.close()
        raise LineLost(f"{where} did not join the line: {error}") from None
    if joined != JOINED:
        secure.close()
        raise LineLost(f"{where} did not join the line")
    secure.setblocking(False)
    return RelayLine(secure)


def full_address(address: str, dialled: str) -> str:
    """With the host at which the master was dialled, where it names none."""
    return dialled.rpartition(":")[0] + address if address.startswith(":") else address


def keep_alive(line: socket.socket) -> None:
    """Small messages go at once, and a dead host is noticed by the kernel where nothing moves."""
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 10),
        (socket.TCP_KEEPINTVL, 5),
        (socket.TCP_KEEPCNT, 3),
    ):
        line.setsockopt(socket.IPPROTO_TCP, option, value)


def _place(address: str, dialled: str) -> tuple[str, int]:
    """Raises LineLost for what is no address."""
    try:
        return split_address(full_address(address, dialled))
    except ValueError as error:
        raise LineLost(f"the relay has no address: {error}") from None


def _context(identity: HolderKeys) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=identity.ca.decode())
    load_chain(context, identity.key + identity.certificate)
    return context
