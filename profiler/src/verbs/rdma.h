/* The functions of optional libraries that have wrappers here. dlsym gives these out in place of the
 * real ones, and only where the real one is there. */
#ifndef DLQPROF_RDMA_H
#define DLQPROF_RDMA_H

#include "sys.h"
#include "verbs_abi.h"

/* libibverbs */
EXPORT struct vb_context *ibv_open_device(void *device);
EXPORT struct vb_context *ibv_import_device(int fd);
EXPORT int ibv_close_device(struct vb_context *context);
EXPORT int ibv_destroy_qp(struct vb_qp *qp);
EXPORT int ibv_modify_qp(struct vb_qp *qp, struct vb_qp_attr *attributes, int mask);
EXPORT struct vb_qp_ex *ibv_qp_to_qp_ex(struct vb_qp *qp);

/* libmlx5, liburing */
EXPORT int mlx5dv_init_obj(void *object, uint64_t type);
EXPORT void *mlx5dv_devx_obj_create(struct vb_context *context, const void *in, size_t in_bytes, void *out,
                                    size_t out_bytes);
EXPORT int io_uring_queue_init(unsigned entries, void *ring, unsigned flags);
EXPORT int io_uring_queue_init_params(unsigned entries, void *ring, void *parameters);

#endif
