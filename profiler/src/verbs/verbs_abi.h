/* The part of the ibverbs interface that is patched, restated: building needs no RDMA headers.
 *
 * These layouts are the public, stable ABI of libibverbs.so.1 (every rdma-core). Where verbs.h is
 * installed, profiler/tests/verbs_abi.c compares each offset with it. */
#ifndef DLQPROF_VERBS_ABI_H
#define DLQPROF_VERBS_ABI_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct vb_context;
struct vb_qp;
struct vb_qp_ex;

struct vb_sge {
    uint64_t addr;
    uint32_t length, lkey;
};

struct vb_data_buf {
    void *addr;
    size_t length;
};

enum {
    VB_WR_RDMA_WRITE = 0,
    VB_WR_RDMA_WRITE_WITH_IMM,
    VB_WR_SEND,
    VB_WR_SEND_WITH_IMM,
    VB_WR_RDMA_READ,
    VB_WR_ATOMIC_CMP_AND_SWP,
    VB_WR_ATOMIC_FETCH_AND_ADD,
    VB_WR_SEND_WITH_INV = 9,
    VB_WR_TSO = 10,
    VB_WR_ATOMIC_WRITE = 15,
};
#define VB_SEND_INLINE (1u << 3)
#define VB_WC_RECV (1u << 7)
#define VB_QP_AV (1u << 7)
#define VB_QP_DEST_QPN (1u << 20)
#define VB_QP_INIT_ATTR_SEND_OPS_FLAGS (1u << 6)

struct vb_send_wr {
    uint64_t wr_id;
    struct vb_send_wr *next;
    struct vb_sge *sg_list;
    int num_sge;
    int opcode;
    unsigned send_flags;
};

struct vb_recv_wr {
    uint64_t wr_id;
    struct vb_recv_wr *next;
    struct vb_sge *sg_list;
    int num_sge;
};

struct vb_wc {
    uint64_t wr_id;
    int status; /* 0: success */
    int opcode;
    uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp;
    unsigned wc_flags;
    uint16_t pkey_index, slid;
    uint8_t sl, dlid_path_bits;
};

struct vb_cq { /* its head */
    struct vb_context *context;
};

struct vb_srq { /* its head */
    struct vb_context *context;
};

struct vb_context_ops {
    void *before_poll_cq[11];
    int (*poll_cq)(struct vb_cq *, int, struct vb_wc *);
    void *between[8];
    int (*post_srq_recv)(struct vb_srq *, struct vb_recv_wr *, struct vb_recv_wr **);
    void *before_post_send[4];
    int (*post_send)(struct vb_qp *, struct vb_send_wr *, struct vb_send_wr **);
    int (*post_recv)(struct vb_qp *, struct vb_recv_wr *, struct vb_recv_wr **);
    void *after_post_recv[5];
};

struct vb_context {
    void *device;
    struct vb_context_ops ops;
    int cmd_fd, async_fd, num_comp_vectors;
    pthread_mutex_t mutex;
    void *abi_compat; /* VB_EXTENDED: it is the end of a vb_extended */
};
#define VB_EXTENDED ((void *)UINTPTR_MAX)

struct vb_qp_init_attr_ex { /* its head */
    void *qp_context, *send_cq, *recv_cq, *srq;
    uint32_t cap[5];
    int qp_type, sq_sig_all;
    uint32_t comp_mask;
};

/* The end of struct verbs_context, which grows at its front. */
struct vb_extended {
    struct vb_qp *(*create_qp_ex)(struct vb_context *, struct vb_qp_init_attr_ex *);
    void *after_create_qp_ex[4];
    uint64_t placeholder;
    size_t size; /* of the whole, as this library has it */
    struct vb_context context;
};

struct vb_qp {
    struct vb_context *context;
    void *qp_context, *pd, *send_cq, *recv_cq, *srq;
    uint32_t handle, qp_num;
    int state, qp_type;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t events_completed;
};

struct vb_qp_ops {
    void (*wr_atomic_cmp_swp)(struct vb_qp_ex *, uint32_t, uint64_t, uint64_t, uint64_t);
    void (*wr_atomic_fetch_add)(struct vb_qp_ex *, uint32_t, uint64_t, uint64_t);
    void *wr_bind_mw, *wr_local_inv;
    void (*wr_rdma_read)(struct vb_qp_ex *, uint32_t, uint64_t);
    void (*wr_rdma_write)(struct vb_qp_ex *, uint32_t, uint64_t);
    void (*wr_rdma_write_imm)(struct vb_qp_ex *, uint32_t, uint64_t, uint32_t);
    void (*wr_send)(struct vb_qp_ex *);
    void (*wr_send_imm)(struct vb_qp_ex *, uint32_t);
    void (*wr_send_inv)(struct vb_qp_ex *, uint32_t);
    void (*wr_send_tso)(struct vb_qp_ex *, void *, uint16_t, uint16_t);
    void *wr_set_ud_addr, *wr_set_xrc_srqn;
    void (*wr_set_inline_data)(struct vb_qp_ex *, void *, size_t);
    void (*wr_set_inline_data_list)(struct vb_qp_ex *, size_t, const struct vb_data_buf *);
    void (*wr_set_sge)(struct vb_qp_ex *, uint32_t, uint64_t, uint32_t);
    void (*wr_set_sge_list)(struct vb_qp_ex *, size_t, const struct vb_sge *);
    void (*wr_start)(struct vb_qp_ex *);
    int (*wr_complete)(struct vb_qp_ex *);
    void (*wr_abort)(struct vb_qp_ex *);
};

struct vb_qp_ex {
    struct vb_qp base;
    uint64_t comp_mask, wr_id;
    unsigned wr_flags;
    struct vb_qp_ops ops;
};

struct vb_qp_attr { /* its head */
    int qp_state, cur_qp_state, path_mtu, path_mig_state;
    uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
    unsigned qp_access_flags;
    uint32_t cap[5];
    union {
        uint8_t raw[16];
        uint64_t aligned[2];
    } dgid;
};

#endif
