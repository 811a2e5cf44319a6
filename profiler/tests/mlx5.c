/* Uses mlx5 past the verbs, as DPDK and UCX do; the library is a stub. */
#include <stddef.h>
#include <stdint.h>

int mlx5dv_init_obj(void *object, uint64_t type);
void *mlx5dv_devx_obj_create(void *context, const void *in, size_t in_bytes, void *out, size_t out_bytes);

#ifdef STUB
int mlx5dv_init_obj(void *object, uint64_t type)
{
    return object && type == 3 ? 7 : 0;
}
void *mlx5dv_devx_obj_create(void *context, const void *in, size_t in_bytes, void *out, size_t out_bytes)
{
    return in && in_bytes == 5 && out && out_bytes == 6 ? context : NULL;
}
#else
#include <stdio.h>
int main(void)
{
    char data[8] = {0};
    int direct = mlx5dv_init_obj(data, 3);
    printf("%d %d\n", direct, mlx5dv_devx_obj_create(data, data, 5, data, 6) == data);
    return 0;
}
#endif
