/* The extended interface: a request is built by several calls, between wr_start and wr_complete. */
#include "devices.h"

#define SETS 64u
#define OPEN_MOST 16u

/* Most queue pairs of a provider share one set of functions. */
static struct {
    uint32_t ready;
    struct vb_qp_ops ops;
} sets[SETS];
static uint32_t sets_used;

/* The request that this thread builds. Providers hold a lock of the queue pair between start and
 * complete. */
struct building {
    struct vb_qp_ex *qp;
    uint32_t count;
    uint32_t open; /* the last one still gets its data */
    struct dlqprof_record requests[OPEN_MOST];
};
static __thread struct building building;

static const struct vb_qp_ops *original(struct vb_qp_ex *qp)
{
    return dlqprof_pair(&qp->base)->ops;
}

static void write_down(uint32_t conn, uint16_t flags)
{
    uint32_t i;
    for (i = 0; i < building.count; i++) {
        struct dlqprof_record *record = &building.requests[i];
        record->conn = conn;
        record->flags |= flags;
        record->result = (int64_t)record->bytes;
        dlqprof_record(record);
    }
    building.count = building.open = 0;
}

static void begin(struct vb_qp_ex *qp, uint16_t op, uint16_t flags, uint64_t bytes)
{
    struct dlqprof_record *record;
    building.open = 0;
    if (building.qp != qp || !dlqprof_recording())
        return;
    if (building.count == OPEN_MOST)
        write_down(dlqprof_pair_conn(dlqprof_pair(&qp->base)), 0);
    record = &building.requests[building.count++];
    *record = (struct dlqprof_record){
        .op = op, .flags = flags, .bytes = bytes, .aux = qp->wr_id, .ts_ns = dlqprof_now(CLOCK_MONOTONIC)};
    building.open = 1;
}

static void add(struct vb_qp_ex *qp, uint64_t address, uint64_t bytes, uint16_t flags)
{
    struct dlqprof_record *record;
    if (building.qp != qp || !building.open)
        return;
    record = &building.requests[building.count - 1];
    if (!record->address)
        record->address = address;
    record->bytes += bytes;
    record->flags |= flags;
}

static void wr_start(struct vb_qp_ex *qp)
{
    original(qp)->wr_start(qp);
    building.qp = qp;
    building.count = building.open = 0;
}

static int wr_complete(struct vb_qp_ex *qp)
{
    struct pair *pair = dlqprof_pair(&qp->base);
    int rc = pair->ops->wr_complete(qp);
    if (building.qp == qp && building.count)
        write_down(dlqprof_pair_conn(pair), rc ? DLQPROF_FAILED_POST : 0);
    building.qp = NULL;
    return rc;
}

static void wr_abort(struct vb_qp_ex *qp)
{
    building.qp = NULL;
    building.count = building.open = 0;
    original(qp)->wr_abort(qp);
}

static void wr_send(struct vb_qp_ex *qp)
{
    begin(qp, DLQPROF_IB_SEND, 0, 0);
    original(qp)->wr_send(qp);
}

static void wr_send_imm(struct vb_qp_ex *qp, uint32_t immediate)
{
    begin(qp, DLQPROF_IB_SEND, DLQPROF_IMMEDIATE, 0);
    original(qp)->wr_send_imm(qp, immediate);
}

static void wr_send_inv(struct vb_qp_ex *qp, uint32_t key)
{
    begin(qp, DLQPROF_IB_SEND, 0, 0);
    original(qp)->wr_send_inv(qp, key);
}

static void wr_send_tso(struct vb_qp_ex *qp, void *header, uint16_t bytes, uint16_t segment)
{
    begin(qp, DLQPROF_IB_SEND, 0, bytes);
    original(qp)->wr_send_tso(qp, header, bytes, segment);
}

static void wr_rdma_write(struct vb_qp_ex *qp, uint32_t key, uint64_t address)
{
    begin(qp, DLQPROF_IB_WRITE, 0, 0);
    original(qp)->wr_rdma_write(qp, key, address);
}

static void wr_rdma_write_imm(struct vb_qp_ex *qp, uint32_t key, uint64_t address, uint32_t immediate)
{
    begin(qp, DLQPROF_IB_WRITE, DLQPROF_IMMEDIATE, 0);
    original(qp)->wr_rdma_write_imm(qp, key, address, immediate);
}

static void wr_rdma_read(struct vb_qp_ex *qp, uint32_t key, uint64_t address)
{
    begin(qp, DLQPROF_IB_READ, 0, 0);
    original(qp)->wr_rdma_read(qp, key, address);
}

static void wr_atomic_cmp_swp(struct vb_qp_ex *qp, uint32_t key, uint64_t address, uint64_t compare,
                              uint64_t swap)
{
    begin(qp, DLQPROF_IB_ATOMIC, 0, 0);
    original(qp)->wr_atomic_cmp_swp(qp, key, address, compare, swap);
}

static void wr_atomic_fetch_add(struct vb_qp_ex *qp, uint32_t key, uint64_t address, uint64_t value)
{
    begin(qp, DLQPROF_IB_ATOMIC, 0, 0);
    original(qp)->wr_atomic_fetch_add(qp, key, address, value);
}

static void wr_set_sge(struct vb_qp_ex *qp, uint32_t key, uint64_t address, uint32_t bytes)
{
    add(qp, address, bytes, 0);
    original(qp)->wr_set_sge(qp, key, address, bytes);
}

static void wr_set_sge_list(struct vb_qp_ex *qp, size_t count, const struct vb_sge *parts)
{
    size_t i;
    for (i = 0; i < count; i++)
        add(qp, parts[i].addr, parts[i].length, 0);
    original(qp)->wr_set_sge_list(qp, count, parts);
}

static void wr_set_inline_data(struct vb_qp_ex *qp, void *data, size_t bytes)
{
    add(qp, (uint64_t)(uintptr_t)data, bytes, DLQPROF_INLINE);
    original(qp)->wr_set_inline_data(qp, data, bytes);
}

static void wr_set_inline_data_list(struct vb_qp_ex *qp, size_t count, const struct vb_data_buf *parts)
{
    size_t i;
    for (i = 0; i < count; i++)
        add(qp, (uint64_t)(uintptr_t)parts[i].addr, parts[i].length, DLQPROF_INLINE);
    original(qp)->wr_set_inline_data_list(qp, count, parts);
}

/* A provider sets only the operations that the queue pair was created for. */
#define PATCH(operation)                     \
    do {                                     \
        if (qp->ops.operation)               \
            qp->ops.operation = (operation); \
    } while (0)

static const struct vb_qp_ops *keep_set(const struct vb_qp_ops *ops)
{
    uint32_t used = LOAD_ACQUIRE(&sets_used), i;
    const char *wanted = (const char *)ops;
    size_t k;
    for (i = 0; i < used && i < SETS; i++) {
        const char *kept = (const char *)&sets[i].ops;
        if (!LOAD_ACQUIRE(&sets[i].ready))
            continue;
        for (k = 0; k < sizeof *ops && kept[k] == wanted[k]; k++)
            ;
        if (k == sizeof *ops)
            return &sets[i].ops;
    }
    if (used >= SETS || (i = ADD(&sets_used, 1)) >= SETS)
        return NULL;
    sets[i].ops = *ops;
    STORE_RELEASE(&sets[i].ready, 1);
    return &sets[i].ops;
}

void dlqprof_patch_pair(struct vb_qp_ex *qp)
{
    struct pair *pair;
    if (!qp || qp->ops.wr_start == wr_start || !qp->ops.wr_start || !qp->ops.wr_complete)
        return;
    pair = dlqprof_pair(&qp->base);
    if (!pair || !(pair->ops = keep_set(&qp->ops)))
        return;
    PATCH(wr_send);
    PATCH(wr_send_imm);
    PATCH(wr_send_inv);
    PATCH(wr_send_tso);
    PATCH(wr_rdma_write);
    PATCH(wr_rdma_write_imm);
    PATCH(wr_rdma_read);
    PATCH(wr_atomic_cmp_swp);
    PATCH(wr_atomic_fetch_add);
    PATCH(wr_set_sge);
    PATCH(wr_set_sge_list);
    PATCH(wr_set_inline_data);
    PATCH(wr_set_inline_data_list);
    PATCH(wr_abort);
    PATCH(wr_complete);
    PATCH(wr_start);
}
