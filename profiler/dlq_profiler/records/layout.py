"""The record files, byte by byte: profiler/include/dlqprof.h as numpy types, and its words."""

from __future__ import annotations

from enum import IntEnum, IntFlag

import numpy as np

MAGIC = b"DLQPROF\0"
VERSION = 1
SUFFIX = ".dlqprof"
HEADER_BYTES = 4096

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("header_bytes", "<u4"),
        ("record_bytes", "<u4"),
        ("chunk_records", "<u4"),
        ("chunks", "<u4"),
        ("thread_slots", "<u4"),
        ("thread_bytes", "<u4"),
        ("thread_chunks", "<u4"),
        ("conn_slots", "<u4"),
        ("conn_bytes", "<u4"),
        ("thread_offset", "<u8"),
        ("conn_offset", "<u8"),
        ("chunk_offset", "<u8"),
        ("file_bytes", "<u8"),
        ("source", "<u4"),
        ("libc", "<u4"),
        ("pid", "<u4"),
        ("parent_pid", "<u4"),
        ("uid", "<u4"),
        ("reserved0", "<u4"),
        ("start_ticks", "<u8"),
        ("opened_ns", "<u8"),
        ("opened_unix_ns", "<u8"),
        ("reserved1", "V64"),
        ("conns_used", "<u4"),
        ("threads_used", "<u4"),
        ("chunks_used", "<u4"),
        ("flags", "<u4"),
        ("lost_threads", "<u8"),
        ("lost_space", "<u8"),
        ("lost_reentry", "<u8"),
        ("reserved2", "V24"),
        ("comm", "S16"),
        ("producer", "S48"),
        ("exe", "S448"),
        ("reserved3", "V256"),
        ("identity", "S3072"),
    ]
)

# Followed by its list of chunks, `thread_chunks` u16.
THREAD = np.dtype(
    [
        ("used", "<u4"),
        ("tid", "<u4"),
        ("head", "<u8"),
        ("sent_bytes", "<u8"),
        ("received_bytes", "<u8"),
        ("lost", "<u8"),
        ("chunks", "<u4"),
        ("owners", "<u4"),
        ("reserved", "V16"),
    ]
)

CONN = np.dtype(
    [
        ("ready", "<u4"),
        ("kind", "<u4"),
        ("id", "<u8"),
        ("seen_ns", "<u8"),
        ("closed_ns", "<u8"),
        ("fd", "<i4"),
        ("family", "<u2"),
        ("type", "<u2"),
        ("side", "<u2"),
        ("local_port", "<u2"),
        ("remote_port", "<u2"),
        ("reserved0", "<u2"),
        ("ranks", "<u4"),
        ("remote", "<u4"),
        ("local_address", "V16"),
        ("remote_address", "V16"),
        ("name", "S24"),
        ("reserved", "V16"),
    ]
)

RECORD = np.dtype(
    [
        ("seq", "<u8"),
        ("ts_ns", "<i8"),
        ("address", "<u8"),
        ("aux", "<u8"),
        ("bytes", "<i8"),
        ("result", "<i8"),
        ("duration_ns", "<u4"),
        ("conn", "<u4"),
        ("op", "<u2"),
        ("flags", "<u2"),
        ("aux2", "<u4"),
    ]
)


class RecordSource(IntEnum):
    PRELOAD = 1
    NCCL_PLUGIN = 2


class Unseen(IntFlag):
    """Ways by which bytes may have left the process without a record."""

    IO_URING = 1 << 0
    MLX5_DIRECT = 1 << 1
    MLX5_DEVX = 1 << 2
    HIGH_FD = 1 << 3
    GRAPH = 1 << 4


class Side(IntEnum):
    UNKNOWN = 0
    CONNECTED = 1
    ACCEPTED = 2


class ConnKind(IntEnum):
    SOCKET = 1
    QUEUE_PAIR = 2
    COMMUNICATOR = 3


class Op(IntEnum):
    SEND = 1
    SENDTO = 2
    SENDMSG = 3
    SENDMMSG = 4
    WRITE = 5
    WRITEV = 6
    SENDFILE = 7
    RECV = 16
    RECVFROM = 17
    RECVMSG = 18
    RECVMMSG = 19
    READ = 20
    READV = 21
    IB_SEND = 64
    IB_WRITE = 65
    IB_READ = 66
    IB_ATOMIC = 67
    IB_POST_RECV = 80
    IB_RECEIVED = 81
    ALL_REDUCE = 128
    BROADCAST = 129
    REDUCE = 130
    ALL_GATHER = 131
    REDUCE_SCATTER = 132
    ALL_TO_ALL = 133
    GATHER = 134
    SCATTER = 135
    P2P_SEND = 136
    P2P_RECV = 137
    OTHER_COLLECTIVE = 138


SOCKET_SENDS = tuple(op for op in Op if op <= Op.SENDFILE)
VERBS_SENDS = (Op.IB_SEND, Op.IB_WRITE)
COLLECTIVES = tuple(op for op in Op if op >= Op.ALL_REDUCE)


class RecordFlag(IntFlag):
    GLOO = 1 << 0
    PEEK = 1 << 1
    CAPTURED = 1 << 2
    INLINE = 1 << 3
    IMMEDIATE = 1 << 4
    FAILED_POST = 1 << 5
