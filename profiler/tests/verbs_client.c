/* A program that uses ibverbs: the functions as it was linked, or (VIA_DLOPEN) opened as NCCL does.
 * Its requests have sizes that name them; it prints the library's answers. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef VIA_DLOPEN
static void *library;
#define CALL(name, version) ((__typeof__(&name))dlvsym(library, #name, version))
#else
#define CALL(name, version) name
#endif

static char data[8192];

static struct ibv_qp *plain(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr wanted = {
        .send_cq = cq, .recv_cq = cq, .cap = {16, 16, 4, 4, 64}, .qp_type = IBV_QPT_RC};
    return CALL(ibv_create_qp, "IBVERBS_1.1")(pd, &wanted);
}

static struct ibv_qp *extended(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr_ex wanted = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {16, 16, 4, 4, 64},
        .qp_type = IBV_QPT_RC,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE,
    };
    struct verbs_context *more = verbs_get_ctx_op(context, create_qp_ex);
    return more ? more->create_qp_ex(context, &wanted) : NULL;
}

static void post(struct ibv_qp *qp)
{
    struct ibv_sge two[2] = {{(uintptr_t)data, 1000, 1}, {(uintptr_t)data, 24, 1}};
    struct ibv_sge one = {(uintptr_t)data, 2000, 1}, refused = {(uintptr_t)data, 666, 1};
    struct ibv_sge room = {(uintptr_t)data, 8192, 1};
    struct ibv_send_wr last = {
        .wr_id = 3, .sg_list = &refused, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE};
    struct ibv_send_wr second = {.wr_id = 2, .sg_list = &one, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    struct ibv_send_wr first = {
        .wr_id = 1, .next = &second, .sg_list = two, .num_sge = 2, .opcode = IBV_WR_SEND_WITH_IMM};
    struct ibv_recv_wr receive = {.wr_id = 4, .sg_list = &room, .num_sge = 1}, *bad_receive = NULL;
    struct ibv_send_wr *bad = NULL;
    printf("post_recv %d\n", ibv_post_recv(qp, &receive, &bad_receive));
    printf("post_send %d", ibv_post_send(qp, &first, &bad));
    printf(" bad %d\n", bad ? (int)bad->wr_id : 0);
    printf("post_send %d", ibv_post_send(qp, &last, &bad));
    printf(" bad %d\n", bad ? (int)bad->wr_id : 0);
}

static void post_extended(struct ibv_qp *qp)
{
    struct ibv_qp_ex *more = CALL(ibv_qp_to_qp_ex, "IBVERBS_1.6")(qp);
    struct ibv_sge two[2] = {{(uintptr_t)data, 300, 1}, {(uintptr_t)data, 33, 1}};
    if (!more)
        exit(6);
    ibv_wr_start(more);
    more->wr_id = 11;
    ibv_wr_rdma_write(more, 1, 0);
    ibv_wr_set_sge(more, 1, (uintptr_t)data, 4096);
    more->wr_id = 12;
    ibv_wr_send_imm(more, 5);
    ibv_wr_set_inline_data(more, data, 48);
    printf("complete %d\n", ibv_wr_complete(more));
    ibv_wr_start(more);
    ibv_wr_rdma_write(more, 1, 0);
    ibv_wr_set_sge(more, 1, (uintptr_t)data, 999);
    ibv_wr_abort(more);
    ibv_wr_start(more);
    more->wr_id = 13;
    ibv_wr_rdma_write(more, 1, 0);
    ibv_wr_set_sge_list(more, 2, two);
    printf("complete %d\n", ibv_wr_complete(more));
}

int main(int argc, char **argv)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTR, .dest_qp_num = 77};
    struct ibv_device **devices;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp, *more;
    struct ibv_wc done[8];
    int count = 0, i, got;
    long times = argc > 1 ? atol(argv[1]) : 1;
#ifdef VIA_DLOPEN
    library = dlopen("libibverbs.so.1", RTLD_NOW);
    if (!library)
        return 9;
#endif
    devices = CALL(ibv_get_device_list, "IBVERBS_1.1")(&count);
    if (!devices || count != 1)
        return 8;
    printf("device %s\n", CALL(ibv_get_device_name, "IBVERBS_1.1")(devices[0]));
    context = CALL(ibv_open_device, "IBVERBS_1.1")(devices[0]);
    if (!context)
        return 7;
    pd = CALL(ibv_alloc_pd, "IBVERBS_1.1")(context);
    cq = CALL(ibv_create_cq, "IBVERBS_1.1")(context, 64, NULL, NULL, 0);
    qp = plain(pd, cq);
    more = extended(context, pd, cq);
    if (!qp || !more)
        return 5;
    attributes.ah_attr.grh.dgid.raw[0] = 0xfe;
    attributes.ah_attr.grh.dgid.raw[15] = 9;
    printf("modify %d\n", CALL(ibv_modify_qp, "IBVERBS_1.1")(
                              qp, &attributes, IBV_QP_STATE | IBV_QP_DEST_QPN | IBV_QP_AV));
    for (; times > 0; times--) {
        post(qp);
        post_extended(more);
    }
    while ((got = ibv_poll_cq(cq, 8, done)) > 0)
        for (i = 0; i < got; i++)
            printf("done %d %u\n", (int)done[i].opcode, done[i].byte_len);
    printf("destroy %d\n", CALL(ibv_destroy_qp, "IBVERBS_1.1")(more));
    printf("destroy %d\n", CALL(ibv_destroy_qp, "IBVERBS_1.1")(qp));
    printf("close %d\n", CALL(ibv_close_device, "IBVERBS_1.1")(context));
    return 0;
}
