/* Tables of devices and queue pairs: fixed, found without a lock, written when something is opened. */
#include "devices.h"

#define DEVICES 64u
#define PAIRS 4096u
#define PROBES 64u
#define GONE ((struct vb_qp *)1)
#define CLAIMED ((struct vb_qp *)2) /* being filled in */

static struct device devices[DEVICES];
static struct pair pairs[PAIRS];

struct device *dlqprof_device(const struct vb_context *context)
{
    uint32_t i;
    for (i = 0; i < DEVICES; i++)
        if (LOAD_ACQUIRE(&devices[i].context) == context)
            return &devices[i];
    return NULL;
}

struct device *dlqprof_device_new(void)
{
    static struct vb_context being_opened;
    uint32_t i;
    for (i = 0; i < DEVICES; i++) {
        struct vb_context *none = NULL;
        if (__atomic_compare_exchange_n(&devices[i].context, &none, &being_opened, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return &devices[i];
    }
    return NULL;
}

/* Numbers of queue pairs are given out in sequence, often with the low bits alike. */
static uint32_t place(uint32_t number, uint32_t probe)
{
    return (uint32_t)((number * 2654435761u >> 16) + probe) % PAIRS;
}

static struct pair *claim(struct vb_qp *qp)
{
    uint32_t i;
    for (i = 0; i < PROBES; i++) {
        struct pair *pair = &pairs[place(qp->qp_num, i)];
        struct vb_qp *was = LOAD(&pair->qp);
        if (was != NULL && was != GONE)
            continue;
        if (!__atomic_compare_exchange_n(&pair->qp, &was, CLAIMED, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            continue;
        pair->context = qp->context;
        pair->number = qp->qp_num;
        pair->conn = pair->remote = 0;
        pair->ops = NULL;
        STORE(&pair->epoch, 0);
        STORE_RELEASE(&pair->qp, qp);
        return pair;
    }
    return NULL;
}

struct pair *dlqprof_pair(struct vb_qp *qp)
{
    uint32_t i;
    for (i = 0; i < PROBES; i++) {
        struct pair *pair = &pairs[place(qp->qp_num, i)];
        struct vb_qp *there = LOAD_ACQUIRE(&pair->qp);
        if (LIKELY(there == qp))
            return pair;
        if (there == NULL)
            break;
    }
    return claim(qp);
}

struct pair *dlqprof_pair_by_number(const struct vb_context *context, uint32_t number)
{
    uint32_t i;
    for (i = 0; i < PROBES; i++) {
        struct pair *pair = &pairs[place(number, i)];
        struct vb_qp *there = LOAD_ACQUIRE(&pair->qp);
        if (there == NULL)
            break;
        if (there != GONE && there != CLAIMED && pair->number == number && pair->context == context)
            return pair;
    }
    return NULL;
}

void dlqprof_pair_gone(struct pair *pair)
{
    if (LOAD(&pair->epoch) && LOAD(&pair->epoch) == LOAD_ACQUIRE(dlqprof_epoch) && pair->conn)
        STORE(&dlqprof_conn_at(pair->conn)->closed_ns, dlqprof_now(CLOCK_MONOTONIC));
    STORE_RELEASE(&pair->qp, GONE);
}

static void write_down(struct pair *pair, uint32_t epoch)
{
    const struct device *device = dlqprof_device(pair->context);
    struct vb_qp *qp = LOAD(&pair->qp);
    struct dlqprof_conn conn = {
        .kind = DLQPROF_QUEUE_PAIR,
        .id = (uint64_t)(uintptr_t)qp,
        .seen_ns = dlqprof_now(CLOCK_MONOTONIC),
        .fd = (int32_t)pair->number,
        .family = 27, /* AF_IB */
        .type = (uint16_t)qp->qp_type,
        .remote = LOAD(&pair->remote),
    };
    size_t i;
    for (i = 0; i < sizeof conn.remote_address; i++)
        conn.remote_address[i] = pair->remote_gid[i];
    if (device)
        text_copy(conn.name, sizeof conn.name, device->name);
    STORE(&pair->conn, dlqprof_conn_add(&conn));
    STORE_RELEASE(&pair->epoch, epoch);
}

uint32_t dlqprof_pair_conn(struct pair *pair)
{
    uint32_t epoch = LOAD_ACQUIRE(dlqprof_epoch);
    if (!pair)
        return 0;
    if (UNLIKELY(!epoch))
        epoch = dlqprof_attach();
    if (UNLIKELY(epoch && LOAD_ACQUIRE(&pair->epoch) != epoch))
        write_down(pair, epoch);
    return LOAD(&pair->conn);
}
