/* A device that moves no bytes. It takes requests, refuses those of 666 bytes, and gives one
 * completed receive for each completed send. Shared by the stub library and the test-only provider.
 * */
#ifndef STUB_DEVICE_H
#define STUB_DEVICE_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>

#define STUB_DONE 64
static struct {
    uint32_t qp_num, bytes;
} stub_done[STUB_DONE];
static int stub_done_count, stub_pending;

static int stub_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    for (; wr; wr = wr->next) {
        uint32_t bytes = 0;
        int i;
        for (i = 0; i < wr->num_sge; i++)
            bytes += wr->sg_list[i].length;
        if (bytes == 666) {
            *bad = wr;
            return ENOMEM;
        }
        if (wr->opcode != IBV_WR_RDMA_WRITE && stub_done_count < STUB_DONE) {
            stub_done[stub_done_count].qp_num = qp->qp_num;
            stub_done[stub_done_count++].bytes = bytes;
        }
    }
    return 0;
}

static int stub_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)qp, (void)wr, (void)bad;
    return 0;
}

static int stub_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)srq, (void)wr, (void)bad;
    return 0;
}

static int stub_poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *done)
{
    int n = 0;
    (void)cq;
    while (n < room && stub_done_count) {
        stub_done_count--;
        done[n] = (struct ibv_wc){.opcode = IBV_WC_RECV,
                                  .byte_len = stub_done[stub_done_count].bytes,
                                  .qp_num = stub_done[stub_done_count].qp_num};
        n++;
    }
    return n;
}

static void stub_begin(struct ibv_qp_ex *qp)
{
    (void)qp;
    stub_pending++;
}
static void stub_write(struct ibv_qp_ex *qp, uint32_t key, uint64_t address)
{
    (void)qp, (void)key, (void)address;
    stub_pending++;
}
static void stub_send_imm(struct ibv_qp_ex *qp, __be32 immediate)
{
    (void)qp, (void)immediate;
    stub_pending++;
}
static void stub_set_sge(struct ibv_qp_ex *qp, uint32_t key, uint64_t address, uint32_t bytes)
{
    (void)qp, (void)key, (void)address, (void)bytes;
}
static void stub_set_sge_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *parts)
{
    (void)qp, (void)count, (void)parts;
}
static void stub_set_inline(struct ibv_qp_ex *qp, void *from, size_t bytes)
{
    (void)qp, (void)from, (void)bytes;
}
static int stub_complete(struct ibv_qp_ex *qp)
{
    int rc = stub_pending < 2 ? EINVAL : 0;
    (void)qp;
    stub_pending = 0;
    return rc;
}
static void stub_abort(struct ibv_qp_ex *qp)
{
    (void)qp;
    stub_pending = 0;
}

static void stub_extend(struct ibv_qp_ex *qp)
{
    qp->wr_start = stub_begin;
    qp->wr_rdma_write = stub_write;
    qp->wr_send_imm = stub_send_imm;
    qp->wr_set_sge = stub_set_sge;
    qp->wr_set_sge_list = stub_set_sge_list;
    qp->wr_set_inline_data = stub_set_inline;
    qp->wr_complete = stub_complete;
    qp->wr_abort = stub_abort;
}

static void stub_fill(struct ibv_qp *qp, struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
    static uint32_t number = 100;
    qp->context = context;
    qp->pd = pd;
    qp->send_cq = qp->recv_cq = cq;
    qp->qp_num = number++;
    qp->qp_type = IBV_QPT_RC;
}

#endif
