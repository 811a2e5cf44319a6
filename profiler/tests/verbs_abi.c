/* Compiles only if verbs_abi.h agrees with the installed verbs.h. */
#include "../src/verbs/verbs_abi.h"

#include <infiniband/verbs.h>

#define SAME(ours, theirs, member) \
    _Static_assert(offsetof(struct ours, member) == offsetof(struct theirs, member), #ours "." #member)
#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(struct ours) == sizeof(struct theirs), #ours)
#define FROM_END(type, member) ((long)sizeof(type) - (long)offsetof(type, member))

SAME_SIZE(vb_sge, ibv_sge);
SAME(vb_sge, ibv_sge, length);
SAME_SIZE(vb_data_buf, ibv_data_buf);
SAME(vb_send_wr, ibv_send_wr, wr_id);
SAME(vb_send_wr, ibv_send_wr, next);
SAME(vb_send_wr, ibv_send_wr, sg_list);
SAME(vb_send_wr, ibv_send_wr, num_sge);
SAME(vb_send_wr, ibv_send_wr, opcode);
SAME(vb_send_wr, ibv_send_wr, send_flags);
SAME_SIZE(vb_recv_wr, ibv_recv_wr);
SAME(vb_recv_wr, ibv_recv_wr, num_sge);
SAME_SIZE(vb_wc, ibv_wc);
SAME(vb_wc, ibv_wc, status);
SAME(vb_wc, ibv_wc, opcode);
SAME(vb_wc, ibv_wc, byte_len);
SAME(vb_wc, ibv_wc, qp_num);
SAME(vb_cq, ibv_cq, context);
SAME(vb_srq, ibv_srq, context);
SAME_SIZE(vb_context_ops, ibv_context_ops);
SAME(vb_context_ops, ibv_context_ops, poll_cq);
SAME(vb_context_ops, ibv_context_ops, post_srq_recv);
SAME(vb_context_ops, ibv_context_ops, post_send);
SAME(vb_context_ops, ibv_context_ops, post_recv);
SAME_SIZE(vb_context, ibv_context);
SAME(vb_context, ibv_context, ops);
SAME(vb_context, ibv_context, abi_compat);
SAME(vb_qp_init_attr_ex, ibv_qp_init_attr_ex, comp_mask);
_Static_assert(FROM_END(struct vb_extended, create_qp_ex) == FROM_END(struct verbs_context, create_qp_ex), "");
_Static_assert(FROM_END(struct vb_extended, size) == FROM_END(struct verbs_context, sz), "");
_Static_assert(FROM_END(struct vb_extended, context) == FROM_END(struct verbs_context, context), "");
SAME_SIZE(vb_qp, ibv_qp);
SAME(vb_qp, ibv_qp, context);
SAME(vb_qp, ibv_qp, qp_num);
SAME(vb_qp, ibv_qp, qp_type);
SAME(vb_qp_ex, ibv_qp_ex, wr_id);
#define SAME_OP(member) \
    _Static_assert(offsetof(struct vb_qp_ex, ops.member) == offsetof(struct ibv_qp_ex, member), #member)
SAME_OP(wr_atomic_cmp_swp);
SAME_OP(wr_atomic_fetch_add);
SAME_OP(wr_rdma_read);
SAME_OP(wr_rdma_write);
SAME_OP(wr_rdma_write_imm);
SAME_OP(wr_send);
SAME_OP(wr_send_imm);
SAME_OP(wr_send_inv);
SAME_OP(wr_send_tso);
SAME_OP(wr_set_inline_data);
SAME_OP(wr_set_inline_data_list);
SAME_OP(wr_set_sge);
SAME_OP(wr_set_sge_list);
SAME_OP(wr_start);
SAME_OP(wr_complete);
SAME_OP(wr_abort);
SAME(vb_qp_attr, ibv_qp_attr, dest_qp_num);
_Static_assert(offsetof(struct vb_qp_attr, dgid) == offsetof(struct ibv_qp_attr, ah_attr.grh.dgid), "dgid");
_Static_assert(VB_WR_RDMA_WRITE == (int)IBV_WR_RDMA_WRITE && VB_WR_SEND == (int)IBV_WR_SEND &&
                   VB_WR_RDMA_READ == (int)IBV_WR_RDMA_READ && VB_WR_TSO == (int)IBV_WR_TSO &&
                   VB_WR_SEND_WITH_INV == (int)IBV_WR_SEND_WITH_INV &&
                   VB_WR_ATOMIC_FETCH_AND_ADD == (int)IBV_WR_ATOMIC_FETCH_AND_ADD,
               "opcodes");
_Static_assert(VB_SEND_INLINE == IBV_SEND_INLINE && VB_WC_RECV == IBV_WC_RECV && VB_QP_AV == IBV_QP_AV &&
                   VB_QP_DEST_QPN == IBV_QP_DEST_QPN &&
                   VB_QP_INIT_ATTR_SEND_OPS_FLAGS == IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
               "flags");

int main(void)
{
    return VB_EXTENDED == __VERBS_ABI_IS_EXTENDED ? 0 : 1;
}
