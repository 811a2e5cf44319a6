/* verbs_rate ROUNDS CALLS: as rate.c, for one request posted and one look for completions. */
#include "switching.h"

#include <infiniband/verbs.h>

static double measure(struct ibv_qp *qp, struct ibv_cq *cq, long calls)
{
    struct ibv_sge part = {64, 1 << 20, 1};
    struct ibv_send_wr request = {.sg_list = &part, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    struct ibv_wc done;
    double start = cpu_ns();
    long i;
    for (i = 0; i < calls; i++)
        if (ibv_post_send(qp, &request, &bad) != 0 || ibv_poll_cq(cq, 1, &done) < 0)
            exit(3);
    return (cpu_ns() - start) / (double)calls;
}

int main(int argc, char **argv)
{
    struct dlqprof_control *control = map_control();
    struct ibv_context *context = ibv_open_device(ibv_get_device_list(NULL)[0]);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_qp_init_attr wanted = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(pd, &wanted);
    int round;
    if (argc < 3)
        return 2;
    control->mode = DLQPROF_RECORD;
    measure(qp, cq, 2000);
    for (round = 0; round < atoi(argv[1]); round++) {
        double off, on;
        control->mode = DLQPROF_OFF;
        off = measure(qp, cq, atol(argv[2]));
        control->mode = DLQPROF_RECORD;
        on = measure(qp, cq, atol(argv[2]));
        printf("%.2f %.2f\n", off, on);
    }
    return 0;
}
