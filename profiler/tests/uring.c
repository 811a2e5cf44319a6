/* Sets up an io_uring as liburing's users do; the library is a stub. */
int io_uring_queue_init(unsigned entries, void *ring, unsigned flags);

#ifdef STUB
int io_uring_queue_init(unsigned entries, void *ring, unsigned flags)
{
    return entries == 8 && ring && flags == 0 ? 0 : -22;
}
#else
#include <stdio.h>
int main(void)
{
    char ring[512] = {0};
    printf("%d\n", io_uring_queue_init(8, ring, 0));
    return 0;
}
#endif
