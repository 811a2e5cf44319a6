/* The connection table: appended to at a connection's first use, never on a recorded path. */
#include "recorder.h"

struct dlqprof_conn *dlqprof_conn_at(uint32_t number)
{
    char *start = (char *)dlqprof_file + dlqprof_file->conn_offset;
    return (struct dlqprof_conn *)(start + (size_t)(number - 1) * sizeof(struct dlqprof_conn));
}

/* A searching thread may look at `ready` meanwhile. */
static void copy_but_ready(struct dlqprof_conn *to, const struct dlqprof_conn *from)
{
    size_t i;
    for (i = sizeof to->ready; i < sizeof *to; i++)
        ((char *)to)[i] = ((const char *)from)[i];
}

uint32_t dlqprof_conn_add(const struct dlqprof_conn *conn)
{
    uint32_t used = LOAD(&dlqprof_file->conns_used);
    struct dlqprof_conn *entry;
    /* An entry is counted only when its memory is there, because a search touches every counted
     * one. */
    do {
        if (used >= DLQPROF_CONNS) {
            ADD(&dlqprof_file->conns_used, 1);
            return 0;
        }
        entry = dlqprof_conn_at(used + 1);
        if (!dlqprof_backed(entry, sizeof *entry))
            return 0;
    } while (!__atomic_compare_exchange_n(&dlqprof_file->conns_used, &used, used + 1, 0,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    copy_but_ready(entry, conn);
    STORE_RELEASE(&entry->ready, 1);
    return used + 1;
}

uint32_t dlqprof_conn_find(uint32_t kind, uint64_t id)
{
    uint32_t used = LOAD(&dlqprof_file->conns_used), i;
    /* A full table is not searched: with thousands of connections that would cost each of them. */
    if (used > DLQPROF_CONNS)
        return 0;
    for (i = used; i > 0; i--) {
        const struct dlqprof_conn *entry = dlqprof_conn_at(i);
        if (LOAD_ACQUIRE(&entry->ready) && entry->kind == kind && entry->id == id)
            return i;
    }
    return 0;
}
