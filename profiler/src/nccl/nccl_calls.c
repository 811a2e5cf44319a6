/* Wrappers of NCCL's functions, for installations without its profiler plugin. Each function is in
 * the library twice, as ncclX and pncclX, so that a wrapper can stand in for the first and call the
 * second. */
#include "nccl_calls.h"

#include "nccl_types.h"
#include "recorder.h"
#include "resolve.h"

#define NOT_THERE 3 /* ncclInternalError */

/* Communicators are few and live long; a place that is freed and used again is another entry. */
#define COMMS 256u
static struct {
    void *comm;
    uint32_t epoch, conn;
} comms[COMMS];

static uint32_t write_down(void *comm)
{
    int (*count)(void *, int *) = (__typeof__(count))dlqprof_next("ncclCommCount");
    int (*rank)(void *, int *) = (__typeof__(rank))dlqprof_next("ncclCommUserRank");
    int ranks = 0, me = -1;
    if (count && count(comm, &ranks) != 0)
        ranks = 0;
    if (rank && rank(comm, &me) != 0)
        me = -1;
    struct dlqprof_conn conn = {
        .kind = DLQPROF_COMMUNICATOR,
        .id = (uint64_t)(uintptr_t)comm,
        .seen_ns = dlqprof_now(CLOCK_MONOTONIC),
        .fd = me,
        .ranks = (uint32_t)ranks,
    };
    return dlqprof_conn_add(&conn);
}

static uint32_t conn_of(void *comm, uint32_t epoch)
{
    uint32_t i = (uint32_t)((uintptr_t)comm >> 6) % COMMS, number;
    if (LOAD(&comms[i].comm) == comm && LOAD(&comms[i].epoch) == epoch)
        return LOAD(&comms[i].conn);
    number = dlqprof_conn_find(DLQPROF_COMMUNICATOR, (uint64_t)(uintptr_t)comm);
    if (!number)
        number = write_down(comm);
    STORE(&comms[i].comm, NULL);
    STORE(&comms[i].conn, number);
    STORE(&comms[i].epoch, epoch);
    STORE_RELEASE(&comms[i].comm, comm);
    return number;
}

static int begin(struct dlqprof_record *record, uint16_t op, const void *data, size_t count, int type, int who,
                 void *comm)
{
    uint32_t epoch;
    if (!dlqprof_recording() || !(epoch = dlqprof_attach()))
        return 0;
    dlqprof_flag(DLQPROF_NCCL);
    *record = (struct dlqprof_record){
        .op = op,
        .address = (uint64_t)(uintptr_t)data,
        .bytes = count * dlqprof_nccl_bytes(type),
        .conn = conn_of(comm, epoch),
        .aux2 = ((uint32_t)type & 0xff) | (uint32_t)who << 8,
        .ts_ns = dlqprof_now(CLOCK_MONOTONIC),
    };
    return 1;
}

/* Calls pncclX with the arguments, between the two halves of a record. */
#define FORWARD(name, op, data, count, type, who, comm, ...)                            \
    do {                                                                                \
        struct dlqprof_record record;                                                   \
        static __typeof__(&name) kept;                                                  \
        __typeof__(&name) next = LOAD(&kept);                                           \
        int recorded = begin(&record, op, data, count, type, who, comm), result;        \
        if (UNLIKELY(!next)) {                                                          \
            next = (__typeof__(&name))dlqprof_next("p" #name);                          \
            STORE(&kept, next);                                                         \
        }                                                                               \
        result = next ? next(__VA_ARGS__) : NOT_THERE;                                  \
        if (recorded && result == 0)                                                    \
            dlqprof_record(&record);                                                    \
        return result;                                                                  \
    } while (0)

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *comm, void *stream)
{
    FORWARD(ncclAllReduce, DLQPROF_ALL_REDUCE, from, count, type, 0, comm, from, to, count, type, op, comm,
            stream);
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *comm, void *stream)
{
    FORWARD(ncclBroadcast, DLQPROF_BROADCAST, from, count, type, root, comm, from, to, count, type, root, comm,
            stream);
}

int ncclBcast(void *data, size_t count, int type, int root, void *comm, void *stream)
{
    FORWARD(ncclBcast, DLQPROF_BROADCAST, data, count, type, root, comm, data, count, type, root, comm, stream);
}

int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, void *comm, void *stream)
{
    FORWARD(ncclReduce, DLQPROF_REDUCE, from, count, type, root, comm, from, to, count, type, op, root, comm,
            stream);
}

int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm, void *stream)
{
    FORWARD(ncclAllGather, DLQPROF_ALL_GATHER, from, count, type, 0, comm, from, to, count, type, comm, stream);
}

int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, void *comm, void *stream)
{
    FORWARD(ncclReduceScatter, DLQPROF_REDUCE_SCATTER, from, count, type, 0, comm, from, to, count, type, op,
            comm, stream);
}

int ncclAlltoAll(const void *from, void *to, size_t count, int type, void *comm, void *stream)
{
    FORWARD(ncclAlltoAll, DLQPROF_ALL_TO_ALL, from, count, type, 0, comm, from, to, count, type, comm, stream);
}

int ncclGather(const void *from, void *to, size_t count, int type, int root, void *comm, void *stream)
{
    FORWARD(ncclGather, DLQPROF_GATHER, from, count, type, root, comm, from, to, count, type, root, comm, stream);
}

int ncclScatter(const void *from, void *to, size_t count, int type, int root, void *comm, void *stream)
{
    FORWARD(ncclScatter, DLQPROF_SCATTER, from, count, type, root, comm, from, to, count, type, root, comm,
            stream);
}

int ncclSend(const void *from, size_t count, int type, int peer, void *comm, void *stream)
{
    FORWARD(ncclSend, DLQPROF_P2P_SEND, from, count, type, peer, comm, from, count, type, peer, comm, stream);
}

int ncclRecv(void *to, size_t count, int type, int peer, void *comm, void *stream)
{
    FORWARD(ncclRecv, DLQPROF_P2P_RECV, to, count, type, peer, comm, to, count, type, peer, comm, stream);
}
