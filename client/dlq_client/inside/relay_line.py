"""A line through the relay beside the master, from either end: whole messages over TLS.

The first session of TLS is with the relay, and shows it the ticket. It ends there. The second one
is with the other end, so the relay passes on bytes that it cannot read. Each end proves a
certificate of the cluster to the other, and the master has told each which one.

The line never waits by itself. Threads and event loops wait for its descriptor. An end with a word
of TLS (close_notify) means that nobody comes back. Any other end is a lost line.
"""

from __future__ import annotations

import hashlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from dlq_common.identity.facts import SERVER_NAME
from dlq_common.identity.private_files import load_chain
from dlq_common.text.addresses import split_address

GREETING: Final = b"dlq-relay/2 "
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
_PIECE_BYTES: Final = 256 * 1024  # of one call to the kernel, and of one turn of OpenSSL
_RECORD_BYTES: Final = 16 * 1024
# Tags of protobuf: `stdout` of ExecOutput, `input` of RelayedInput, `stdin` of ExecInput. Bytes by
# the megabyte are put into these messages, and taken out, without a copy.
_STDOUT, _INPUT, _STDIN = b"\x12", b"\x12", b"\x0a"
_MOST_OF_HANDSHAKE: Final = 16  # pieces, of any size


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


class SecureEnd(NamedTuple):
    """TLS with the other end, apart from any socket: one record costs no call to the kernel."""

    session: ssl.SSLObject
    heard: ssl.MemoryBIO
    to_say: ssl.MemoryBIO


class RelayLine:
    """One joined line. One thread may read it while another one writes."""

    def __init__(self, raw: socket.socket, secure: SecureEnd) -> None:
        self._raw = raw
        self._session: Any = secure.session  # its `read` into a buffer gives a number
        self._heard, self._to_say = secure.heard, secure.to_say
        self._using = threading.Lock()  # OpenSSL lets one thread at a time use a session
        self._reading, self._sending = threading.Lock(), threading.Lock()
        self._sealed = memoryview(bytearray(_PIECE_BYTES))
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        self._writing: list[memoryview] = []
        self._unsent = memoryview(b"")
        self._ended = self._is_over = False
        self._open()  # what came with the last word of the handshake

    def fileno(self) -> int:
        """To wait for; -1 once it is closed."""
        return self._raw.fileno()

    def read(self) -> list[bytes]:
        """The messages that are here; none: wait for more. Raises LineLost, LineOver, and
        ValueError for what is no message.
        """
        with self._reading:
            while not (found := self._messages()) and self._fill():
                pass
            return found

    def begin(self, message: bytes, rest: bytes | memoryview = b"") -> None:
        """Put a message before `write`; all of it must be written before the next one. Its `rest`
        is not copied.
        """
        head = _HEAD.pack(len(message) + len(rest)) + message
        first = max(0, _RECORD_BYTES - len(head))
        self._writing = [memoryview(b"".join((head, rest[:first])))]
        if len(rest) > first:
            self._writing.append(memoryview(rest)[first:])

    def write(self) -> bool:
        """Whether the message is out; False: wait for room. Raises LineLost."""
        with self._sending:
            while self._unsent or self._writing:
                if not self._unsent:
                    self._seal()
                try:
                    sent = self._raw.send(self._unsent)
                except BlockingIOError:
                    return False
                except OSError:
                    raise LineLost("the line through the relay is cut") from None
                self._unsent = self._unsent[sent:]
            return True

    def end(self, *, cleanly: bool) -> None:
        """No more, from any thread. `cleanly`: we do not come back. Waiting threads wake up."""
        with self._reading, self._sending, self._using:
            if self._ended:
                return
            self._ended = True
            if cleanly:
                self._say_last()
            with suppress(OSError):
                self._raw.shutdown(socket.SHUT_RDWR)
            self._raw.close()

    def await_ready(self, *, writing: bool, timeout_s: float) -> None:
        """Wait, in a thread. Raises LineLost after that time."""
        waiting = select.poll()
        try:
            waiting.register(self._raw, select.POLLOUT if writing else select.POLLIN)
        except (OSError, ValueError):
            raise LineLost("the line through the relay was ended") from None
        if not waiting.poll(1e3 * timeout_s):
            raise LineLost("the line through the relay is silent")

    def _messages(self) -> list[bytes]:
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

    def _fill(self) -> bool:
        """Whether there was more."""
        if self._is_over:
            raise LineOver
        try:
            got = self._raw.recv_into(self._sealed)
        except BlockingIOError:
            return False
        except OSError:
            got = 0
        if not got:
            raise LineLost("the line through the relay is cut")
        with self._using:
            if self._ended:
                raise LineLost("the line through the relay was ended")
            self._heard.write(self._sealed[:got])
            self._open()
        return True

    def _open(self) -> None:
        """Everything that is whole. A message and a piece more always fit."""
        try:
            while True:
                room = self._buffer[self._filled :]
                if not (got := self._session.read(len(room), room)):
                    raise ssl.SSLZeroReturnError
                self._filled += got
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._is_over = True  # what came before it is first
        except (OSError, ValueError):
            raise LineLost("the line through the relay is no line of its other end") from None

    def _seal(self) -> None:
        piece = self._writing.pop(0)
        with self._using:
            if self._ended:
                raise LineLost("the line through the relay was ended")
            try:
                self._session.write(piece[:_PIECE_BYTES])
            except OSError:
                raise LineLost("the line through the relay is cut") from None
            self._unsent = memoryview(self._to_say.read())
        if len(piece) > _PIECE_BYTES:
            self._writing.insert(0, piece[_PIECE_BYTES:])

    def _say_last(self) -> None:
        """Sends the end of TLS if the kernel takes it at once; else the line is simply cut."""
        with suppress(OSError, ValueError):
            self._session.unwrap()
        if not self._unsent:
            with suppress(OSError):
                self._raw.send(self._to_say.read())


def dial(
    address: str, dialled: str, ticket: str, identity: HolderKeys, expected: str | bytes
) -> RelayLine:
    """A line that is joined with the other side's. It waits, so an event loop gives it a thread.

    `dialled`: the address at which the master was reached, for an address without a host.
    `expected`: the name in the node's certificate; or, for a node, the SHA-256 of its caller's.
    Raises LineLost, with words for people.
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
        shown = context.wrap_socket(raw, server_hostname=SERVER_NAME, suppress_ragged_eofs=False)
    except OSError as error:
        raw.close()
        raise LineLost(f"{where} cannot be spoken with: {error}") from None
    try:
        shown.sendall(GREETING + ticket.encode())
        shown.settimeout(JOIN_S)
        if shown.recv(1) != JOINED:
            raise LineLost(f"{where} did not join the line")
        joined = shown.unwrap()
        secure = _secure(joined, identity, expected)
        joined.setblocking(False)
        return RelayLine(joined, secure)
    except BaseException as error:
        shown.close()
        if isinstance(error, LineLost) or not isinstance(error, OSError | ValueError):
            raise
        raise LineLost(f"{where} did not join the line: {error}") from None


def _secure(joined: socket.socket, identity: HolderKeys, expected: str | bytes) -> SecureEnd:
    """TLS with the other end. Raises OSError, and LineLost for another end than the expected one.

    Certificates of people and nodes are for clients. So the caller is the server of this session:
    it checks the node's in the usual way. The node is told exactly which one its caller has.
    """
    if isinstance(expected, str):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.num_tickets = 0  # of TLS: nobody comes back with one
        context.load_verify_locations(cadata=identity.ca.decode())
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # TLS proves that the other end has the key of the certificate that it shows. Whether that
        # is the right one is compared below.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    load_chain(context, identity.key + identity.certificate)
    heard, to_say = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(heard, to_say, server_side=isinstance(expected, str))
    _shake(joined, SecureEnd(session, heard, to_say))
    if not _is_shown(session, expected):
        raise LineLost("the other end of the line shows another certificate")
    return SecureEnd(session, heard, to_say)


def _shake(joined: socket.socket, end: SecureEnd) -> None:
    for _ in range(_MOST_OF_HANDSHAKE):
        try:
            end.session.do_handshake()
        except ssl.SSLWantReadError:
            pass
        else:
            return
        finally:
            joined.sendall(end.to_say.read())  # an alert too
        if not (piece := joined.recv(_RECORD_BYTES)):
            break
        end.heard.write(piece)
    raise LineLost("the other end of the line has gone")


def _is_shown(session: ssl.SSLObject, expected: str | bytes) -> bool:
    if isinstance(expected, bytes):
        shown = session.getpeercert(binary_form=True)
        return shown is not None and hashlib.sha256(shown).digest() == expected
    return names_of(session.getpeercert() or {}) == [expected]


def names_of(certificate: Mapping[str, Any]) -> list[str]:
    """The names of the cluster in a certificate that TLS has checked."""
    return [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]


def stdin_head(size: int) -> bytes:
    """The fields of a RelayedInput in front of its last one, ``size`` bytes of stdin."""
    inner = _STDIN + _number(size)
    return _INPUT + _number(len(inner) + size) + inner


def stdout_head(size: int) -> bytes:
    """The fields of an ExecOutput in front of its last one, ``size`` bytes of stdout."""
    return _STDOUT + _number(size)


def stdin_of(message: bytes) -> memoryview | None:
    """The bytes of a RelayedInput that is stdin alone, without a copy. None: it is another one."""
    size, at = _length(message, 0, _INPUT)
    if at + size != len(message):
        return None
    size, at = _length(message, at, _STDIN)
    return memoryview(message)[at:] if at + size == len(message) else None


def stdout_of(message: bytes) -> memoryview | None:
    """The bytes of an ExecOutput that is stdout alone, without a copy. None: it is another one."""
    size, at = _length(message, 0, _STDOUT)
    return memoryview(message)[at:] if at + size == len(message) else None


def _number(value: int) -> bytes:
    """As protobuf writes it: seven bits in each byte, the lowest first."""
    said = bytearray()
    while value > 0x7F:
        said.append(value & 0x7F | 0x80)
        value >>= 7
    said.append(value)
    return bytes(said)


def _length(message: bytes, at: int, tag: bytes) -> tuple[int, int]:
    """Of the field that begins here, and where its bytes begin. A length of -1: it is not this
    field.
    """
    if message[at : at + 1] != tag:
        return -1, at
    value = 0
    for step, byte in enumerate(message[at + 1 : at + 5]):
        value |= (byte & 0x7F) << 7 * step
        if byte < 0x80:
            return value, at + 2 + step
    return -1, at


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
