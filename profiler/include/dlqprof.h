/* The record format, written by the profiler's libraries and read by dlq_profiler.
 *
 * docs/reference/profiler-files.md says the same in words. All numbers are little-endian (only little-endian, 64-bit
 * programs are recorded), all times CLOCK_MONOTONIC nanoseconds of the host. A reader must refuse
 * another `version`, and must take sizes and offsets from the header, not from this file.
 */
#ifndef DLQPROF_H
#define DLQPROF_H

#include <stdint.h>

#define DLQPROF_MAGIC "DLQPROF" /* with its zero: 8 bytes */
#define DLQPROF_CONTROL_MAGIC "DLQPCTL"
#define DLQPROF_VERSION 1u

#define DLQPROF_CONTROL_NAME "control"   /* in DLQ_PROF_DIR */
#define DLQPROF_SUFFIX ".dlqprof"        /* PID-NANOSECONDS.dlqprof, beside it */

/* ---- the control file: one per directory, shared by every process of a job on a host ---- */

enum dlqprof_mode {
    DLQPROF_OFF = 0,
    DLQPROF_RECORD = 1,
};

struct dlqprof_control {
    char magic[8];
    uint32_t version;
    uint32_t mode;          /* enum dlqprof_mode; read before each call, so a store takes effect at once */
    uint32_t file_limit;    /* record files that may come to be here; 0: as many as wanted */
    uint32_t files_opened;  /* counted up by the libraries, beyond the limit too: the rest was refused */
    uint64_t ring_bytes;    /* room for records of a file; 0: as much as its library ever takes */
    uint8_t reserved[32];
};

/* ---- the record file: one per process image, and per library that records ---- */

#define DLQPROF_HEADER_BYTES 4096u
#define DLQPROF_THREADS 256u       /* threads that record at the same time */
#define DLQPROF_THREAD_CHUNKS 128u /* chunks that one thread may hold */
#define DLQPROF_CONNS 4096u
#define DLQPROF_CHUNK_RECORDS 1024u
#define DLQPROF_CHUNK_BYTES (DLQPROF_CHUNK_RECORDS * 64u)
/* A process may have a file of each library: with their tables both are in 16 MiB. */
#define DLQPROF_RING_BYTES_MOST (14u << 20)
#define DLQPROF_PLUGIN_RING_BYTES_MOST (1u << 20)

enum dlqprof_source {
    DLQPROF_PRELOAD = 1,     /* libdlqprof.so: sockets, ibverbs, NCCL's functions */
    DLQPROF_NCCL_PLUGIN = 2, /* libnccl-profiler-dlq.so */
};

enum dlqprof_libc {
    DLQPROF_LIBC_OTHER = 0,
    DLQPROF_LIBC_GLIBC = 1,
    DLQPROF_LIBC_MUSL = 2,
};

/* Bits of `flags`: ways by which bytes may have left the process unseen. */
enum dlqprof_flags {
    DLQPROF_IO_URING = 1u << 0,    /* an io_uring was set up through liburing */
    DLQPROF_MLX5_DIRECT = 1u << 1, /* mlx5dv_init_obj: work requests are written past the verbs */
    DLQPROF_MLX5_DEVX = 1u << 2,   /* mlx5dv_devx_obj_create */
    DLQPROF_HIGH_FD = 1u << 3,     /* a socket with a descriptor of 65,536 or more was used */
    DLQPROF_GRAPH = 1u << 4,       /* a collective was captured into a CUDA graph: one record, many replays */
    DLQPROF_VERBS = 1u << 5,       /* a verbs device was opened */
    DLQPROF_NCCL = 1u << 6,        /* an NCCL collective was called */
};

struct dlqprof_header {
    /* 0: the layout; constant once `magic` is there, which is written last */
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint32_t record_bytes;  /* sizeof(struct dlqprof_record) */
    uint32_t chunk_records;
    uint32_t chunks;        /* chunks in the file */
    uint32_t thread_slots;
    uint32_t thread_bytes;  /* sizeof(struct dlqprof_thread) */
    uint32_t thread_chunks; /* length of its list */
    uint32_t conn_slots;
    uint32_t conn_bytes;    /* sizeof(struct dlqprof_conn) */
    uint64_t thread_offset;
    uint64_t conn_offset;
    uint64_t chunk_offset;
    uint64_t file_bytes;
    uint32_t source; /* enum dlqprof_source */
    uint32_t libc;   /* enum dlqprof_libc */
    /* 88: identity */
    uint32_t pid;
    uint32_t parent_pid;
    uint32_t uid;
    uint32_t reserved0;
    uint64_t start_ticks;   /* field 22 of /proc/PID/stat: with the pid the process' identity */
    uint64_t opened_ns;     /* CLOCK_MONOTONIC and ... */
    uint64_t opened_unix_ns; /* ... CLOCK_REALTIME at the same instant: to line hosts up */
    uint8_t reserved1[64];
    /* 192: counters, grown while the process runs */
    uint32_t conns_used;   /* may exceed conn_slots: the rest was not listed */
    uint32_t threads_used; /* slots ever taken; never exceeds thread_slots */
    uint32_t chunks_used;  /* never exceeds chunks */
    uint32_t flags;        /* enum dlqprof_flags */
    uint64_t lost_threads; /* records without a thread slot */
    uint64_t lost_space;   /* records without any chunk (the first one of a thread was refused) */
    uint64_t lost_reentry; /* records from a signal handler that interrupted the recorder, or the making of the file */
    uint8_t reserved2[24];
    /* 256: text, each ended by a zero */
    char comm[16];
    char producer[48]; /* "libdlqprof 0.1.0" */
    char exe[448];
    uint8_t reserved3[256];
    /* 1024: KEY=VALUE lines of the environment that say which rank this is (docs/reference/profiler-files.md lists
     * the keys), as they stood when the program started */
    char identity[3072];
};

/* A thread's ring. Record number n (from 0) lies in chunk `chunk[(n / chunk_records) % chunks]` at
 * index n % chunk_records, and is there when its `seq` is n + 1. A ring that wrapped grows no more.
 * A new thread may take over the slot of an ended thread, and goes on in the same ring. */
struct dlqprof_thread {
    uint32_t used; /* 1 once taken */
    uint32_t tid;  /* of the thread that has the slot now, or had it last */
    uint64_t head; /* records written so far, stored after the record; lost = those overwritten */
    uint64_t sent_bytes;     /* returned by calls that send, wherever their records are now */
    uint64_t received_bytes; /* returned by calls that receive */
    uint64_t lost;           /* records given up (no chunk could be had) after the first chunk */
    uint32_t chunks;         /* held so far */
    uint32_t owners;         /* threads that have had the slot */
    uint8_t reserved[16];
    uint16_t chunk[DLQPROF_THREAD_CHUNKS];
};

enum dlqprof_conn_kind {
    DLQPROF_SOCKET = 1,
    DLQPROF_QUEUE_PAIR = 2,
    DLQPROF_COMMUNICATOR = 3,
};

enum dlqprof_side {
    DLQPROF_SIDE_UNKNOWN = 0, /* inherited, or opened unseen */
    DLQPROF_CONNECTED = 1,
    DLQPROF_ACCEPTED = 2,
};

/* The medium of the bytes. Entry i is `conn` i + 1 of the records. */
struct dlqprof_conn {
    uint32_t ready; /* 1 when the rest is filled in (stored last) */
    uint32_t kind;  /* enum dlqprof_conn_kind */
    uint64_t id;    /* socket: SO_COOKIE (0: an old kernel); queue pair: its address; communicator: hash */
    uint64_t seen_ns;
    uint64_t closed_ns; /* 0: not closed, or closed unseen */
    int32_t fd;     /* socket: descriptor when first seen; queue pair: its number; communicator: rank */
    uint16_t family; /* AF_INET, AF_INET6; 27 (AF_IB) for queue pairs; 0 for communicators */
    uint16_t type;   /* socket: SOCK_STREAM, ...; queue pair: enum ibv_qp_type */
    uint16_t side;   /* enum dlqprof_side */
    uint16_t local_port; /* host byte order */
    uint16_t remote_port;
    uint16_t reserved0;
    uint32_t ranks;  /* communicator: how many (0: unknown) */
    uint32_t remote; /* queue pair: the other side's number; communicator: number of hosts */
    uint8_t local_address[16]; /* AF_INET: the first 4; queue pair: the port's GID where known */
    uint8_t remote_address[16];
    char name[24];   /* communicator: its name; queue pair: the device's */
    uint8_t reserved[16];
};

enum dlqprof_op {
    /* sockets: `bytes` was asked for, `result` is the call's result */
    DLQPROF_SEND = 1,
    DLQPROF_SENDTO = 2,
    DLQPROF_SENDMSG = 3,
    DLQPROF_SENDMMSG = 4, /* one record per message */
    DLQPROF_WRITE = 5,
    DLQPROF_WRITEV = 6,
    DLQPROF_SENDFILE = 7,
    DLQPROF_RECV = 16,
    DLQPROF_RECVFROM = 17,
    DLQPROF_RECVMSG = 18,
    DLQPROF_RECVMMSG = 19, /* one record per message */
    DLQPROF_READ = 20,
    DLQPROF_READV = 21,
    /* verbs: one record per work request, when it is posted; `result` = `bytes` */
    DLQPROF_IB_SEND = 64,
    DLQPROF_IB_WRITE = 65,
    DLQPROF_IB_READ = 66,
    DLQPROF_IB_ATOMIC = 67,
    DLQPROF_IB_POST_RECV = 80, /* room offered, not bytes that came */
    DLQPROF_IB_RECEIVED = 81,  /* a completion of the receiving side: bytes that came */
    /* NCCL: `bytes` = count x size of the datatype as the caller gave them; `result` = 0 */
    DLQPROF_ALL_REDUCE = 128,
    DLQPROF_BROADCAST = 129,
    DLQPROF_REDUCE = 130,
    DLQPROF_ALL_GATHER = 131,     /* count: elements that one rank sends */
    DLQPROF_REDUCE_SCATTER = 132, /* count: elements that one rank receives */
    DLQPROF_ALL_TO_ALL = 133,     /* count: elements to one peer */
    DLQPROF_GATHER = 134,
    DLQPROF_SCATTER = 135,
    DLQPROF_P2P_SEND = 136,
    DLQPROF_P2P_RECV = 137,
    DLQPROF_OTHER_COLLECTIVE = 138,
};

enum dlqprof_record_flags {
    DLQPROF_GLOO = 1u << 0,     /* starts with gloo's preamble: `aux` is its slot, `aux2` its opcode */
    DLQPROF_PEEK = 1u << 1,     /* MSG_PEEK, MSG_ERRQUEUE: these bytes are, or were, counted elsewhere */
    DLQPROF_CAPTURED = 1u << 2, /* captured into a CUDA graph */
    DLQPROF_INLINE = 1u << 3,   /* verbs: inline data */
    DLQPROF_IMMEDIATE = 1u << 4, /* verbs: with immediate */
    DLQPROF_FAILED_POST = 1u << 5, /* verbs: the provider refused this work request */
};

struct dlqprof_record {
    uint64_t seq;     /* its number in the ring + 1, stored last; anything else: not (yet) this record */
    uint64_t ts_ns;   /* before the call */
    uint64_t address; /* of the payload: of the last part of a vector, the first part of a work request */
    uint64_t aux;     /* DLQPROF_GLOO: the slot; verbs: wr_id; NCCL: sequence number where known */
    uint64_t bytes;
    int64_t result;   /* sockets: bytes, or -errno */
    uint32_t duration_ns; /* of the call, saturated */
    uint32_t conn;    /* entry of the connection table + 1; 0: the table was full */
    uint16_t op;      /* enum dlqprof_op */
    uint16_t flags;   /* enum dlqprof_record_flags */
    uint32_t aux2;    /* DLQPROF_GLOO: opcode; NCCL: ncclDataType_t | (peer or root) << 8 */
};

_Static_assert(sizeof(struct dlqprof_control) == 64, "control file");
_Static_assert(sizeof(struct dlqprof_header) == DLQPROF_HEADER_BYTES, "header");
_Static_assert(sizeof(struct dlqprof_thread) == 64 + 2 * DLQPROF_THREAD_CHUNKS, "thread slot");
_Static_assert(sizeof(struct dlqprof_conn) == 128, "connection");
_Static_assert(sizeof(struct dlqprof_record) == 64, "record");

#endif
