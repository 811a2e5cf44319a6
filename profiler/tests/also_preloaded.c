/* Another preloaded library, as users have them: counts sends and passes them on. */
#include <dlfcn.h>
#include <stdio.h>
#include <sys/socket.h>

static int sends;

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    ssize_t (*next)(int, const void *, size_t, int) = (__typeof__(next))dlsym(RTLD_NEXT, "send");
    sends++;
    return next(fd, data, bytes, flags);
}

__attribute__((destructor)) static void tell(void)
{
    fprintf(stderr, "%d sends\n", sends);
}
