/* Calls NCCL's functions as it was linked, or (VIA_DLOPEN) by dlsym; the library is a stub. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
int ncclBcast(void *, size_t, int, int, void *, void *);
int ncclSend(const void *, size_t, int, int, void *, void *);
#ifdef VIA_DLOPEN
#define CALL(name) ((__typeof__(&name))dlsym(library, #name))
#else
#define CALL(name) name
#endif

int main(void)
{
    int comm[2] = {4, 1}, other[2] = {2, 0};
    char data[8] = {0};
#ifdef VIA_DLOPEN
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    if (!library)
        return 9;
#endif
    printf("%d ", CALL(ncclAllReduce)(data, data, 1000, 7, 0, comm, NULL));
    printf("%d ", CALL(ncclBcast)(data, 30, 8, 3, other, NULL));
    printf("%d ", CALL(ncclSend)(data, 10, 0, 2, comm, NULL));
    printf("%d\n", CALL(ncclAllReduce)(data, data, 500, 9, 0, comm, NULL));
    return 0;
}
