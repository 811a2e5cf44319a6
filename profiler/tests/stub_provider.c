/* A provider for the real libibverbs, for tests only: the device of stub_device.h.
 *
 * The interface between libibverbs and its providers is private and numbered. This is number 34
 * (rdma-core 34 to 55), restated for the used parts. The profiler itself does not know it. */
#include "stub_device.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>

struct match {
    void *data;
    const char *modalias;
    uint16_t vendor, device;
    uint8_t kind; /* 2: by modalias */
};

struct provider_device;
struct device_ops {
    const char *name;
    uint32_t least_abi, most_abi;
    const struct match *matches;
    const void *static_providers;
    bool (*match_device)(void *);
    struct verbs_context *(*alloc_context)(struct ibv_device *, int, void *);
    struct verbs_context *(*import_context)(struct ibv_device *, int);
    struct provider_device *(*alloc_device)(void *);
    void (*uninit_device)(struct provider_device *);
};

struct provider_device {
    struct ibv_device device;
    const struct device_ops *ops;
    atomic_int references;
    void *entry[2];
    void *sysfs;
    uint64_t core_support;
};

struct provider_qp {
    struct ibv_qp_ex extended; /* its head is the plain one */
    uint32_t mask;             /* 2: it is an extended one */
    void *xrcd;
};

enum { /* places in the table of operations */
    OP_ALLOC_PD = 5,
    OP_CREATE_CQ = 15,
    OP_CREATE_QP = 19,
    OP_CREATE_QP_EX = 20,
    OP_DESTROY_QP = 34,
    OP_FREE_CONTEXT = 39,
    OP_MODIFY_QP = 47,
    OP_POLL_CQ = 53,
    OP_POST_RECV = 54,
    OP_POST_SEND = 55,
    OP_POST_SRQ_RECV = 57,
    OPS = 76,
};

extern void verbs_register_driver_34(const struct device_ops *);
extern void *_verbs_init_and_alloc_context(struct ibv_device *, int, size_t, struct verbs_context *, uint32_t);
extern void verbs_uninit_context(struct verbs_context *);
extern void verbs_set_ops(struct verbs_context *, void *const *);

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
    (void)context;
    return calloc(1, sizeof(struct ibv_pd));
}

static struct ibv_cq *create_cq(struct ibv_context *context, int entries, struct ibv_comp_channel *channel,
                                int vector)
{
    (void)context, (void)entries, (void)channel, (void)vector;
    return calloc(1, sizeof(struct ibv_cq_ex));
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *wanted)
{
    struct provider_qp *qp = calloc(1, sizeof *qp);
    stub_fill(&qp->extended.qp_base, pd->context, pd, wanted->send_cq);
    return &qp->extended.qp_base;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *wanted)
{
    struct provider_qp *qp = calloc(1, sizeof *qp);
    stub_fill(&qp->extended.qp_base, context, wanted->pd, wanted->send_cq);
    stub_extend(&qp->extended);
    qp->mask = 2;
    return &qp->extended.qp_base;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
    (void)qp, (void)attributes, (void)mask;
    return 0;
}

static int destroy_qp(struct ibv_qp *qp)
{
    memset(qp, 0, sizeof *qp);
    free(qp);
    return 0;
}

static void free_context(struct ibv_context *context)
{
    struct verbs_context *all = verbs_get_ctx(context);
    verbs_uninit_context(all);
    free(all);
}

static void *const operations[OPS] = {
    [OP_ALLOC_PD] = alloc_pd,           [OP_CREATE_CQ] = create_cq,
    [OP_CREATE_QP] = create_qp,         [OP_CREATE_QP_EX] = create_qp_ex,
    [OP_DESTROY_QP] = destroy_qp,       [OP_FREE_CONTEXT] = free_context,
    [OP_MODIFY_QP] = modify_qp,         [OP_POLL_CQ] = stub_poll_cq,
    [OP_POST_RECV] = stub_post_recv,    [OP_POST_SEND] = stub_post_send,
    [OP_POST_SRQ_RECV] = stub_post_srq_recv,
};

static struct verbs_context *alloc_context(struct ibv_device *device, int fd, void *data)
{
    struct verbs_context *context =
        _verbs_init_and_alloc_context(device, fd, sizeof *context, NULL, 0 /* unknown */);
    (void)data;
    if (!context)
        return NULL;
    verbs_set_ops(context, operations);
    context->context.async_fd = eventfd(0, 0); /* there is no kernel side to ask for one */
    return context;
}

static struct provider_device *alloc_device(void *sysfs)
{
    (void)sysfs;
    return calloc(1, sizeof(struct provider_device));
}

static void uninit_device(struct provider_device *device)
{
    free(device);
}

static const struct match matches[] = {
    {.modalias = "rdma_device:*Nstub*", .kind = 2},
    {.kind = 0},
};
static const struct device_ops ops = {
    .name = "stub",
    .most_abi = 1000,
    .matches = matches,
    .alloc_context = alloc_context,
    .alloc_device = alloc_device,
    .uninit_device = uninit_device,
};

__attribute__((constructor)) static void register_driver(void)
{
    verbs_register_driver_34(&ops);
}
