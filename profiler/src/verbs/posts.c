/* The operations of a device: opened, patched, and used. */
#include "devices.h"

#include "resolve.h"
#include "rdma.h"

/* Of one call, written down after it: whether the provider took them is known then. More than these
 * are written down before. */
#define KEPT 16

static void note_opcode(struct dlqprof_record *record, int opcode)
{
    switch (opcode) {
    case VB_WR_RDMA_WRITE_WITH_IMM:
        record->flags |= DLQPROF_IMMEDIATE; /* fall through */
    case VB_WR_RDMA_WRITE:
        record->op = DLQPROF_IB_WRITE;
        break;
    case VB_WR_SEND_WITH_IMM:
        record->flags |= DLQPROF_IMMEDIATE; /* fall through */
    case VB_WR_SEND:
    case VB_WR_SEND_WITH_INV:
    case VB_WR_TSO:
        record->op = DLQPROF_IB_SEND;
        break;
    case VB_WR_RDMA_READ:
        record->op = DLQPROF_IB_READ;
        break;
    case VB_WR_ATOMIC_CMP_AND_SWP:
    case VB_WR_ATOMIC_FETCH_AND_ADD:
    case VB_WR_ATOMIC_WRITE:
        record->op = DLQPROF_IB_ATOMIC;
        break;
    default: /* moves no bytes */
        record->op = 0;
    }
}

static void note_parts(struct dlqprof_record *record, const struct vb_sge *parts, int count)
{
    int i;
    for (i = 0; i < count; i++)
        record->bytes += parts[i].length;
    record->result = (int64_t)record->bytes;
    record->address = count > 0 ? parts[0].addr : 0;
}

/* Requests are read before the call: once it is posted, another thread may see it done and reuse it. */
static int post_send(struct vb_qp *qp, struct vb_send_wr *wr, struct vb_send_wr **bad)
{
    const struct device *device = dlqprof_device(qp->context);
    struct dlqprof_record kept[KEPT];
    const struct vb_send_wr *requests[KEPT], *request;
    int count = 0, i, rc, refused = 0;
    uint32_t conn;
    uint64_t now;
    if (!dlqprof_recording())
        return device->ops.post_send(qp, wr, bad);
    conn = dlqprof_pair_conn(dlqprof_pair(qp));
    now = dlqprof_now(CLOCK_MONOTONIC);
    for (request = wr; request; request = request->next) {
        struct dlqprof_record record = {.conn = conn, .ts_ns = now, .aux = request->wr_id};
        note_opcode(&record, request->opcode);
        if (!record.op)
            continue;
        if (request->send_flags & VB_SEND_INLINE)
            record.flags |= DLQPROF_INLINE;
        note_parts(&record, request->sg_list, request->num_sge);
        if (count == KEPT) {
            dlqprof_record(&record);
            continue;
        }
        kept[count] = record;
        requests[count++] = request;
    }
    rc = device->ops.post_send(qp, wr, bad);
    for (i = 0; i < count; i++) {
        refused |= rc != 0 && bad && requests[i] == *bad;
        if (refused)
            kept[i].flags |= DLQPROF_FAILED_POST;
        dlqprof_record(&kept[i]);
    }
    return rc;
}

static void note_room(const struct vb_recv_wr *request, uint32_t conn)
{
    uint64_t now = dlqprof_now(CLOCK_MONOTONIC);
    for (; request; request = request->next) {
        struct dlqprof_record record = {
            .op = DLQPROF_IB_POST_RECV, .conn = conn, .ts_ns = now, .aux = request->wr_id};
        note_parts(&record, request->sg_list, request->num_sge);
        dlqprof_record(&record);
    }
}

static int post_recv(struct vb_qp *qp, struct vb_recv_wr *wr, struct vb_recv_wr **bad)
{
    const struct device *device = dlqprof_device(qp->context);
    if (dlqprof_recording())
        note_room(wr, dlqprof_pair_conn(dlqprof_pair(qp)));
    return device->ops.post_recv(qp, wr, bad);
}

static int post_srq_recv(struct vb_srq *srq, struct vb_recv_wr *wr, struct vb_recv_wr **bad)
{
    const struct device *device = dlqprof_device(srq->context);
    if (dlqprof_recording() && dlqprof_attach())
        note_room(wr, 0); /* any queue pair may take it */
    return device->ops.post_srq_recv(srq, wr, bad);
}

static int poll_cq(struct vb_cq *cq, int room, struct vb_wc *done)
{
    const struct device *device = dlqprof_device(cq->context);
    int count = device->ops.poll_cq(cq, room, done), i;
    if (count <= 0 || !dlqprof_recording())
        return count;
    for (i = 0; i < count; i++) {
        struct dlqprof_record record = {
            .op = DLQPROF_IB_RECEIVED, .aux = done[i].wr_id, .bytes = done[i].byte_len};
        if (done[i].status != 0 || !(done[i].opcode & VB_WC_RECV))
            continue;
        record.conn = dlqprof_pair_conn(dlqprof_pair_by_number(cq->context, done[i].qp_num));
        record.result = (int64_t)record.bytes;
        record.ts_ns = dlqprof_now(CLOCK_MONOTONIC);
        dlqprof_record(&record);
    }
    return count;
}

/* ---- opening and closing ---- */

static struct vb_qp *create_qp_ex(struct vb_context *context, struct vb_qp_init_attr_ex *attributes)
{
    const struct device *device = dlqprof_device(context);
    struct vb_qp *qp = device->create_qp_ex(context, attributes);
    struct vb_qp_ex *(*extended)(struct vb_qp *);
    if (!qp || !(attributes->comp_mask & VB_QP_INIT_ATTR_SEND_OPS_FLAGS))
        return qp;
    extended = (__typeof__(extended))dlqprof_next("ibv_qp_to_qp_ex");
    if (extended)
        dlqprof_patch_pair(extended(qp));
    return qp;
}

static void patch(struct vb_context *context)
{
    const char *(*name_of)(void *) = (__typeof__(name_of))dlqprof_next("ibv_get_device_name");
    struct device *device;
    struct vb_extended *extended = NULL;
    if (!context || !dlqprof_control || dlqprof_device(context) || !(device = dlqprof_device_new()))
        return;
    text_copy(device->name, sizeof device->name, name_of ? name_of(context->device) : "");
    if (context->abi_compat == VB_EXTENDED)
        extended = (struct vb_extended *)((char *)context - offsetof(struct vb_extended, context));
    if (extended && (extended->size < sizeof *extended || !extended->create_qp_ex))
        extended = NULL;
    device->ops = context->ops;
    device->create_qp_ex = extended ? extended->create_qp_ex : NULL;
    STORE_RELEASE(&device->context, context); /* from here on the operations below find it */
    if (extended)
        extended->create_qp_ex = create_qp_ex;
    context->ops.post_send = post_send;
    context->ops.post_recv = post_recv;
    context->ops.post_srq_recv = post_srq_recv;
    context->ops.poll_cq = poll_cq;
    dlqprof_flag(DLQPROF_VERBS);
}

#define NOT_THERE(result)                 \
    ({                                    \
        if (__errno_location)             \
            *__errno_location() = ENOSYS; \
        (result);                         \
    })

struct vb_context *ibv_open_device(void *device)
{
    __typeof__(&ibv_open_device) next = (__typeof__(next))dlqprof_next("ibv_open_device");
    struct vb_context *context = next ? next(device) : NOT_THERE(NULL);
    patch(context);
    return context;
}

struct vb_context *ibv_import_device(int fd)
{
    __typeof__(&ibv_import_device) next = (__typeof__(next))dlqprof_next("ibv_import_device");
    struct vb_context *context = next ? next(fd) : NOT_THERE(NULL);
    patch(context);
    return context;
}

int ibv_close_device(struct vb_context *context)
{
    __typeof__(&ibv_close_device) next = (__typeof__(next))dlqprof_next("ibv_close_device");
    struct device *device = dlqprof_device(context);
    int rc = next ? next(context) : NOT_THERE(-1);
    if (rc == 0 && device)
        STORE_RELEASE(&device->context, NULL);
    return rc;
}

int ibv_destroy_qp(struct vb_qp *qp)
{
    __typeof__(&ibv_destroy_qp) next = (__typeof__(next))dlqprof_next("ibv_destroy_qp");
    struct pair *pair = dlqprof_control ? dlqprof_pair(qp) : NULL, was = {.remote = 0};
    int rc;
    /* Forgotten before: once it is destroyed its address may be another's. */
    if (pair) {
        was.ops = pair->ops;
        was.remote = pair->remote;
        dlqprof_pair_gone(pair);
    }
    rc = next ? next(qp) : NOT_THERE(ENOSYS);
    if (pair && rc != 0 && (pair = dlqprof_pair(qp))) { /* still there */
        pair->ops = was.ops;
        pair->remote = was.remote;
    }
    return rc;
}

int ibv_modify_qp(struct vb_qp *qp, struct vb_qp_attr *attributes, int mask)
{
    __typeof__(&ibv_modify_qp) next = (__typeof__(next))dlqprof_next("ibv_modify_qp");
    int rc = next ? next(qp, attributes, mask) : NOT_THERE(ENOSYS);
    struct pair *pair;
    size_t i;
    if (rc != 0 || !(mask & VB_QP_DEST_QPN) || !dlqprof_control || !(pair = dlqprof_pair(qp)))
        return rc;
    STORE(&pair->remote, attributes->dest_qp_num);
    for (i = 0; (mask & VB_QP_AV) && i < sizeof pair->remote_gid; i++)
        pair->remote_gid[i] = attributes->dgid.raw[i];
    return rc;
}

struct vb_qp_ex *ibv_qp_to_qp_ex(struct vb_qp *qp)
{
    __typeof__(&ibv_qp_to_qp_ex) next = (__typeof__(next))dlqprof_next("ibv_qp_to_qp_ex");
    struct vb_qp_ex *extended = next ? next(qp) : NOT_THERE(NULL);
    if (extended && dlqprof_control)
        dlqprof_patch_pair(extended);
    return extended;
}
