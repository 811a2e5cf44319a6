/* Ways past every wrapper: only noted, so that the records are not taken for all traffic. */
#include "recorder.h"

#include "resolve.h"
#include "rdma.h"

int mlx5dv_init_obj(void *object, uint64_t type)
{
    __typeof__(&mlx5dv_init_obj) next = (__typeof__(next))dlqprof_next("mlx5dv_init_obj");
    dlqprof_flag(DLQPROF_MLX5_DIRECT);
    return next ? next(object, type) : ENOSYS;
}

void *mlx5dv_devx_obj_create(struct vb_context *context, const void *in, size_t in_bytes, void *out,
                             size_t out_bytes)
{
    __typeof__(&mlx5dv_devx_obj_create) next = (__typeof__(next))dlqprof_next("mlx5dv_devx_obj_create");
    dlqprof_flag(DLQPROF_MLX5_DEVX);
    return next ? next(context, in, in_bytes, out, out_bytes) : NULL;
}

int io_uring_queue_init(unsigned entries, void *ring, unsigned flags)
{
    __typeof__(&io_uring_queue_init) next = (__typeof__(next))dlqprof_next("io_uring_queue_init");
    dlqprof_flag(DLQPROF_IO_URING);
    return next ? next(entries, ring, flags) : -ENOSYS;
}

int io_uring_queue_init_params(unsigned entries, void *ring, void *parameters)
{
    __typeof__(&io_uring_queue_init_params) next =
        (__typeof__(next))dlqprof_next("io_uring_queue_init_params");
    dlqprof_flag(DLQPROF_IO_URING);
    return next ? next(entries, ring, parameters) : -ENOSYS;
}
