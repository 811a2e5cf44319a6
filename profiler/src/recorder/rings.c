/* Threads, their rings, and the record itself: the part that is on the recorded path. */
#include "recorder.h"

/* The ring of this thread. Valid while `epoch` is the process' epoch. */
struct writer {
    uint32_t epoch;
    volatile uint32_t busy; /* a signal handler that comes in between must not write too */
    struct dlqprof_thread *slot; /* NULL: every slot was taken */
    struct dlqprof_record *next, *end; /* in the current chunk */
    uint64_t head;
};
static __thread struct writer writer;

/* The compiler must not move the record out of the busy section; the processor is the same one. */
#define SIGNAL_FENCE() __atomic_signal_fence(__ATOMIC_SEQ_CST)

/* TSan knows no fences; the reader is another process, which it does not see either. */
#ifdef __SANITIZE_THREAD__
#define ORDERED_BEFORE_WHAT_FOLLOWS() SIGNAL_FENCE()
#else
#define ORDERED_BEFORE_WHAT_FOLLOWS() __atomic_thread_fence(__ATOMIC_RELEASE)
#endif

/* Below this many slots, a dead thread's is not looked for. */
#define SLOTS_BEFORE_REUSE 16u

struct dlqprof_thread *dlqprof_thread_at(uint32_t index)
{
    char *start = (char *)dlqprof_file + dlqprof_file->thread_offset;
    return (struct dlqprof_thread *)(start + (size_t)index * sizeof(struct dlqprof_thread));
}

static struct dlqprof_record *chunk_at(uint32_t index)
{
    char *start = (char *)dlqprof_file + dlqprof_file->chunk_offset;
    return (struct dlqprof_record *)(start + (size_t)index * DLQPROF_CHUNK_BYTES);
}

static int thread_is_gone(uint32_t tid, uint32_t me)
{
    /* A new thread with the number of an old one is not that one. */
    return tid && (tid == me || SYS3(SYS_tgkill, dlqprof_file->pid, tid, 0) == -ESRCH);
}

static struct dlqprof_thread *take_over(uint32_t me)
{
    uint32_t i, used = LOAD_ACQUIRE(&dlqprof_file->threads_used);
    for (i = 0; i < used; i++) {
        struct dlqprof_thread *slot = dlqprof_thread_at(i);
        uint32_t tid = LOAD(&slot->tid);
        if (thread_is_gone(tid, me) &&
            __atomic_compare_exchange_n(&slot->tid, &tid, me, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return slot;
    }
    return NULL;
}

static struct dlqprof_thread *take_fresh(uint32_t me)
{
    uint32_t used = LOAD(&dlqprof_file->threads_used);
    struct dlqprof_thread *slot;
    do {
        if (used >= DLQPROF_THREADS)
            return NULL;
        slot = dlqprof_thread_at(used);
        if (!dlqprof_backed(slot, sizeof *slot))
            return NULL;
    } while (!__atomic_compare_exchange_n(&dlqprof_file->threads_used, &used, used + 1, 0,
                                          __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    STORE(&slot->tid, me);
    STORE_RELEASE(&slot->used, 1);
    return slot;
}

static struct dlqprof_record *at_head(const struct dlqprof_thread *slot, uint64_t head)
{
    uint32_t chunk = (uint32_t)(head / DLQPROF_CHUNK_RECORDS % LOAD(&slot->chunks));
    return chunk_at(LOAD(&slot->chunk[chunk])) + head % DLQPROF_CHUNK_RECORDS;
}

static void go_on_in(struct dlqprof_thread *slot)
{
    writer.slot = slot;
    writer.head = LOAD(&slot->head);
    writer.next = writer.end = NULL;
    GROW(&slot->owners, 1);
    if (LOAD(&slot->chunks) && writer.head % DLQPROF_CHUNK_RECORDS) {
        writer.next = at_head(slot, writer.head);
        writer.end = writer.next + (DLQPROF_CHUNK_RECORDS - writer.head % DLQPROF_CHUNK_RECORDS);
    }
}

/* The first record of a thread in this process. */
static void join(uint32_t epoch)
{
    uint32_t me = (uint32_t)SYS0(SYS_gettid);
    struct dlqprof_thread *slot = NULL;
    writer.slot = NULL;
    if (LOAD(&dlqprof_file->threads_used) >= SLOTS_BEFORE_REUSE)
        slot = take_over(me);
    if (!slot)
        slot = take_fresh(me);
    if (slot)
        go_on_in(slot);
    ADD(&dlqprof_file->lost_reentry, dlqprof_missed());
    writer.epoch = epoch;
}

/* A ring may grow while more chunks are free than it holds, so that there is always one for a
 * newcomer. A refused ring is refused for ever, because no chunk is ever given back. */
static int grow(struct dlqprof_thread *slot)
{
    uint32_t held = LOAD(&slot->chunks), used = LOAD(&dlqprof_file->chunks_used);
    uint32_t all = dlqprof_file->chunks;
    if (held >= DLQPROF_THREAD_CHUNKS)
        return 0;
    do {
        uint32_t unused = all - used;
        if (unused == 0 || (held && held >= unused))
            return 0;
    } while (!__atomic_compare_exchange_n(&dlqprof_file->chunks_used, &used, used + 1, 0,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    if (!dlqprof_backed(chunk_at(used), DLQPROF_CHUNK_BYTES))
        return 0;
    STORE(&slot->chunk[held], (uint16_t)used);
    STORE_RELEASE(&slot->chunks, held + 1);
    return 1;
}

/* At the end of a chunk: into a new one, or into the oldest. */
static int next_chunk(void)
{
    struct dlqprof_thread *slot = writer.slot;
    uint32_t held = LOAD(&slot->chunks);
    if (writer.head == (uint64_t)held * DLQPROF_CHUNK_RECORDS && !grow(slot) && held == 0)
        return 0;
    writer.next = at_head(slot, writer.head);
    writer.end = writer.next + DLQPROF_CHUNK_RECORDS;
    return 1;
}

static int is_receive(unsigned op)
{
    return (op >= DLQPROF_RECV && op <= DLQPROF_READV) || op == DLQPROF_IB_RECEIVED;
}

static int is_room_only(unsigned op)
{
    return op == DLQPROF_IB_POST_RECV || op >= DLQPROF_ALL_REDUCE;
}

static void put(const struct dlqprof_record *record)
{
    struct dlqprof_thread *slot = writer.slot;
    struct dlqprof_record *to = writer.next++;
    uint64_t took = dlqprof_now(CLOCK_MONOTONIC) - record->ts_ns;
    /* A reader that copies this place now finds a number that does not fit. */
    STORE(&to->seq, 0);
    ORDERED_BEFORE_WHAT_FOLLOWS();
    to->ts_ns = record->ts_ns;
    to->address = record->address;
    to->aux = record->aux;
    to->bytes = record->bytes;
    to->result = record->result;
    to->duration_ns = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
    to->conn = record->conn;
    to->op = record->op;
    to->flags = record->flags;
    to->aux2 = record->aux2;
    writer.head++;
    STORE_RELEASE(&to->seq, writer.head);
    STORE_RELEASE(&slot->head, writer.head);
    if (record->result > 0 && !(record->flags & (DLQPROF_PEEK | DLQPROF_FAILED_POST)) &&
        !is_room_only(record->op))
        GROW(is_receive(record->op) ? &slot->received_bytes : &slot->sent_bytes,
             (uint64_t)record->result);
}

void dlqprof_record(const struct dlqprof_record *record)
{
    uint32_t epoch = LOAD_ACQUIRE(dlqprof_epoch);
    if (UNLIKELY(!epoch))
        return;
    if (UNLIKELY(writer.busy)) {
        ADD(&dlqprof_file->lost_reentry, 1);
        return;
    }
    writer.busy = 1;
    SIGNAL_FENCE();
    if (UNLIKELY(writer.epoch != epoch))
        join(epoch);
    if (UNLIKELY(!writer.slot))
        ADD(&dlqprof_file->lost_threads, 1);
    else if (UNLIKELY(writer.next == writer.end) && !next_chunk())
        ADD(&dlqprof_file->lost_space, 1);
    else
        put(record);
    SIGNAL_FENCE();
    writer.busy = 0;
}
