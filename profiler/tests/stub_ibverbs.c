/* A libibverbs.so.1 with one device, for machines without RDMA: the public interface only. */
#include "stub_device.h"

#include <string.h>

static struct ibv_device the_device = {.node_type = IBV_NODE_CA, .name = "stub0"};
struct stub_qp {
    struct ibv_qp_ex extended; /* its head is the plain one */
    int has_extended;
};

struct ibv_device **ibv_get_device_list(int *count)
{
    static struct ibv_device *list[2] = {&the_device, NULL};
    if (count)
        *count = 1;
    return list;
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

static struct ibv_qp *create(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq, int extended)
{
    struct stub_qp *qp = calloc(1, sizeof *qp);
    stub_fill(&qp->extended.qp_base, context, pd, cq);
    qp->has_extended = extended;
    if (extended)
        stub_extend(&qp->extended);
    return &qp->extended.qp_base;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *wanted)
{
    return create(context, wanted->pd, wanted->send_cq, 1);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct verbs_context *more = calloc(1, sizeof *more);
    more->sz = sizeof *more;
    more->create_qp_ex = create_qp_ex;
    more->context.device = device;
    more->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    more->context.ops.post_send = stub_post_send;
    more->context.ops.post_recv = stub_post_recv;
    more->context.ops.post_srq_recv = stub_post_srq_recv;
    more->context.ops.poll_cq = stub_poll_cq;
    return &more->context;
}

int ibv_close_device(struct ibv_context *context)
{
    free(verbs_get_ctx(context));
    return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    pd->context = context;
    return pd;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *data,
                             struct ibv_comp_channel *channel, int vector)
{
    struct ibv_cq *cq = calloc(1, sizeof *cq);
    (void)entries, (void)data, (void)channel, (void)vector;
    cq->context = context;
    return cq;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *wanted)
{
    return create(pd->context, pd, wanted->send_cq, 0);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
    (void)qp, (void)attributes, (void)mask;
    return 0;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    struct stub_qp *own = (struct stub_qp *)qp;
    return own->has_extended ? &own->extended : NULL;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    memset(qp, 0, sizeof *qp);
    free(qp);
    return 0;
}
