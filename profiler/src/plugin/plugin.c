/* The plugin that NCCL loads when NCCL_PROFILER_PLUGIN names it: each collective, as it was called.
 *
 * It answers every call with success: NCCL must not notice whether anything was written down. */
#include "nccl_abi.h"
#include "nccl_types.h"
#include "recorder.h"

#define COMMS 1024u

/* The context that NCCL hands back with each event of a communicator. One is used again when it is
 * finalized. */
struct comm {
    uint32_t used;
    uint32_t epoch, number; /* the connection's, in the file of that epoch */
    uint64_t hash;
    int32_t rank;
    uint32_t ranks, nodes;
    char name[24];
};
static struct comm comms[COMMS];
static struct comm nameless; /* when there are more */

/* The version of the interface that NCCL has started; 3 stands for 1 to 3, and 0 for none. A program
 * may read it, to say with what it was recorded. */
EXPORT int dlqprof_nccl_version;

__attribute__((constructor)) static void start(void)
{
    dlqprof_start();
}

static struct comm *new_comm(const char *name, uint64_t hash, int nodes, int ranks, int rank)
{
    struct comm *comm = &nameless;
    uint32_t i;
    for (i = 0; i < COMMS; i++) {
        uint32_t unused = 0;
        if (__atomic_compare_exchange_n(&comms[i].used, &unused, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            comm = &comms[i];
            break;
        }
    }
    if (comm == &nameless)
        return comm;
    comm->epoch = 0;
    comm->hash = hash;
    comm->rank = rank;
    comm->ranks = ranks > 0 ? (uint32_t)ranks : 0;
    comm->nodes = nodes > 0 ? (uint32_t)nodes : 0;
    text_copy(comm->name, sizeof comm->name, name ? name : "");
    return comm;
}

static int wanted(int events)
{
    return dlqprof_control ? events : 0;
}

static int init_without_names(void **context, int *mask)
{
    dlqprof_nccl_version = 3;
    *context = new_comm(NULL, 0, 0, 0, -1);
    *mask = wanted(EVENT_COLL | EVENT_P2P);
    return 0;
}

static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank,
                   void *log)
{
    (void)log;
    dlqprof_nccl_version = 4;
    *context = new_comm(name, hash, nodes, ranks, rank);
    *mask = wanted(EVENT_COLL | EVENT_P2P);
    return 0;
}

static int init_v5(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank,
                   void *log)
{
    (void)log;
    dlqprof_nccl_version = 5;
    *context = new_comm(name, id, nodes, ranks, rank);
    *mask = wanted(EVENT_COLL_API | EVENT_P2P_API);
    return 0;
}

/* Before version 4 the communicator is named by its events only. */
static void learn(struct comm *comm, const char *name, uint64_t hash, int rank)
{
    if (comm == &nameless || comm->hash)
        return;
    comm->hash = hash;
    comm->rank = rank;
    text_copy(comm->name, sizeof comm->name, name ? name : "");
}

static uint32_t conn_of(struct comm *comm, uint32_t epoch)
{
    struct dlqprof_conn conn = {.kind = DLQPROF_COMMUNICATOR};
    if (comm == &nameless)
        return 0;
    if (LIKELY(LOAD_ACQUIRE(&comm->epoch) == epoch))
        return comm->number;
    conn.id = comm->hash;
    conn.seen_ns = dlqprof_now(CLOCK_MONOTONIC);
    conn.fd = comm->rank;
    conn.ranks = comm->ranks;
    conn.remote = comm->nodes;
    text_copy(conn.name, sizeof conn.name, comm->name);
    comm->number = dlqprof_conn_add(&conn);
    STORE_RELEASE(&comm->epoch, epoch);
    return comm->number;
}

/* ---- words and numbers of the interface ---- */

static uint16_t op_of(const char *function)
{
    static const struct {
        const char *word;
        uint16_t op;
    } known[] = {
        {"AllReduce", DLQPROF_ALL_REDUCE},   {"Broadcast", DLQPROF_BROADCAST},
        {"Reduce", DLQPROF_REDUCE},          {"AllGather", DLQPROF_ALL_GATHER},
        {"ReduceScatter", DLQPROF_REDUCE_SCATTER}, {"AlltoAll", DLQPROF_ALL_TO_ALL},
        {"Gather", DLQPROF_GATHER},          {"Scatter", DLQPROF_SCATTER},
        {"Send", DLQPROF_P2P_SEND},          {"Recv", DLQPROF_P2P_RECV},
    };
    size_t i;
    for (i = 0; function && i < sizeof known / sizeof *known; i++)
        if (text_equal(function, known[i].word))
            return known[i].op;
    return DLQPROF_OTHER_COLLECTIVE;
}

static uint16_t op_of_v1(uint8_t function)
{
    static const uint16_t ops[] = {
        DLQPROF_BROADCAST,      DLQPROF_REDUCE,     DLQPROF_ALL_GATHER,
        DLQPROF_REDUCE_SCATTER, DLQPROF_ALL_REDUCE, DLQPROF_OTHER_COLLECTIVE,
        DLQPROF_P2P_SEND,       DLQPROF_P2P_RECV,
    };
    return function < sizeof ops / sizeof *ops ? ops[function] : DLQPROF_OTHER_COLLECTIVE;
}

static int type_of(const char *datatype)
{
    static const char *const words[] = {
        "ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",   "ncclInt64",      "ncclUint64",
        "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2",
    };
    int i;
    for (i = 0; datatype && i < (int)(sizeof words / sizeof *words); i++)
        if (text_equal(datatype, words[i]))
            return i;
    return 0xff;
}

/* ---- events ---- */

struct call {
    uint16_t op, flags;
    const void *data;
    size_t count;
    int type, who;
    uint64_t sequence;
};

static int recording(uint32_t *epoch)
{
    return dlqprof_recording() && (*epoch = dlqprof_attach()) != 0;
}

static void write_down(struct comm *comm, uint32_t epoch, const struct call *call)
{
    struct dlqprof_record record = {
        .op = call->op,
        .flags = call->flags,
        .address = (uint64_t)(uintptr_t)call->data,
        .aux = call->sequence,
        .bytes = call->count * dlqprof_nccl_bytes(call->type),
        .conn = conn_of(comm, epoch),
        .aux2 = ((uint32_t)call->type & 0xff) | (uint32_t)call->who << 8,
        .ts_ns = dlqprof_now(CLOCK_MONOTONIC),
    };
    dlqprof_flag(DLQPROF_NCCL | (call->flags & DLQPROF_CAPTURED ? DLQPROF_GRAPH : 0));
    dlqprof_record(&record);
}

static int start_v1(void *context, void **handle, struct event_v1 *event)
{
    struct comm *comm = context;
    uint32_t epoch;
    *handle = NULL;
    if (!comm || !recording(&epoch))
        return 0;
    if (event->type == EVENT_COLL) {
        learn(comm, event->coll.name, event->coll.hash, event->rank);
        write_down(comm, epoch,
                   &(struct call){.op = op_of_v1(event->coll.function), .data = event->coll.from,
                                  .count = event->coll.count, .type = event->coll.datatype,
                                  .who = event->coll.root, .sequence = event->coll.sequence});
    } else if (event->type == EVENT_P2P) {
        learn(comm, event->p2p.name, event->p2p.hash, event->rank);
        write_down(comm, epoch,
                   &(struct call){.op = op_of_v1(event->p2p.function), .data = event->p2p.data,
                                  .count = event->p2p.count, .type = event->p2p.datatype,
                                  .who = event->p2p.peer});
    }
    return 0;
}

static int start_v2(void *context, void **handle, struct event_v2 *event)
{
    struct comm *comm = context;
    uint32_t epoch;
    *handle = NULL;
    if (!comm || !recording(&epoch))
        return 0;
    if (event->type == EVENT_COLL) {
        learn(comm, event->coll.name, event->coll.hash, event->rank);
        write_down(comm, epoch,
                   &(struct call){.op = op_of(event->coll.function), .data = event->coll.from,
                                  .count = event->coll.count, .type = type_of(event->coll.datatype),
                                  .who = event->coll.root, .sequence = event->coll.sequence});
    } else if (event->type == EVENT_P2P) {
        learn(comm, event->p2p.name, event->p2p.hash, event->rank);
        write_down(comm, epoch,
                   &(struct call){.op = op_of(event->p2p.function), .data = event->p2p.data,
                                  .count = event->p2p.count, .type = type_of(event->p2p.datatype),
                                  .who = event->p2p.peer});
    }
    return 0;
}

static int start_v4(void *context, void **handle, struct event_v4 *event)
{
    struct comm *comm = context;
    uint32_t epoch;
    *handle = NULL;
    if (!comm || !recording(&epoch))
        return 0;
    if (event->type == EVENT_COLL)
        write_down(comm, epoch,
                   &(struct call){.op = op_of(event->coll.function), .data = event->coll.from,
                                  .count = event->coll.count, .type = type_of(event->coll.datatype),
                                  .who = event->coll.root, .sequence = event->coll.sequence});
    else if (event->type == EVENT_P2P)
        write_down(comm, epoch,
                   &(struct call){.op = op_of(event->p2p.function), .data = event->p2p.data,
                                  .count = event->p2p.count, .type = type_of(event->p2p.datatype),
                                  .who = event->p2p.peer});
    return 0;
}

static int start_v5(void *context, void **handle, struct event_v5 *event)
{
    struct comm *comm = context;
    uint32_t epoch;
    *handle = NULL;
    if (!comm || !recording(&epoch))
        return 0;
    if (event->type == EVENT_COLL_API)
        write_down(comm, epoch,
                   &(struct call){.op = op_of(event->coll_api.function), .count = event->coll_api.count,
                                  .flags = event->coll_api.captured ? DLQPROF_CAPTURED : 0,
                                  .type = type_of(event->coll_api.datatype), .who = event->coll_api.root});
    else if (event->type == EVENT_P2P_API)
        write_down(comm, epoch,
                   &(struct call){.op = op_of(event->p2p_api.function), .count = event->p2p_api.count,
                                  .flags = event->p2p_api.captured ? DLQPROF_CAPTURED : 0,
                                  .type = type_of(event->p2p_api.datatype)});
    return 0;
}

static int stop(void *handle)
{
    (void)handle;
    return 0;
}

static int state(void *handle, int what, void *arguments)
{
    (void)handle, (void)what, (void)arguments;
    return 0;
}

static int finalize(void *context)
{
    struct comm *comm = context;
    if (comm && comm != &nameless)
        STORE_RELEASE(&comm->used, 0);
    return 0;
}

#define TABLE(version, init, start)                     \
    EXPORT const struct plugin_v##version ncclProfiler_v##version = { \
        "dlq", init, start, stop, state, finalize}

TABLE(1, init_without_names, start_v1);
TABLE(2, init_without_names, start_v2);
TABLE(3, init_without_names, start_v2);
TABLE(4, init_v4, start_v4);
TABLE(5, init_v5, start_v5);
