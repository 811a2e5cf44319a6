/* dlsym and dlvsym: programs that open libibverbs or NCCL by themselves get the wrappers too.
 *
 * The result of these two can depend on the caller (RTLD_NEXT, and in musl always). For every other
 * name the wrapper therefore jumps to the real function. */
#include "sys.h"

/* Sanitizers call dlsym before any instrumented code may run. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include "nccl_calls.h"
#include "recorder.h"
#include "rdma.h"
#include "resolve.h"

#include <dlfcn.h>

static const struct {
    const char *name;
    void *wrapper;
} wrapped[] = {
#define WRAPPED(name) {#name, (void *)name}
    WRAPPED(ibv_open_device),
    WRAPPED(ibv_import_device),
    WRAPPED(ibv_close_device),
    WRAPPED(ibv_destroy_qp),
    WRAPPED(ibv_modify_qp),
    WRAPPED(ibv_qp_to_qp_ex),
    WRAPPED(mlx5dv_init_obj),
    WRAPPED(mlx5dv_devx_obj_create),
    WRAPPED(io_uring_queue_init),
    WRAPPED(io_uring_queue_init_params),
    WRAPPED(ncclAllReduce),
    WRAPPED(ncclBroadcast),
    WRAPPED(ncclBcast),
    WRAPPED(ncclReduce),
    WRAPPED(ncclAllGather),
    WRAPPED(ncclReduceScatter),
    WRAPPED(ncclAlltoAll),
    WRAPPED(ncclGather),
    WRAPPED(ncclScatter),
    WRAPPED(ncclSend),
    WRAPPED(ncclRecv),
};

typedef void *lookup_1(void *, const char *);
typedef void *lookup_2(void *, const char *, const char *);

/* The jump's target, or (if that is NULL) the result. */
struct choice {
    void *jump, *value;
};
struct choice dlqprof_choose(void *handle, const char *name, const char *version)
    __attribute__((visibility("hidden")));
struct choice dlqprof_choose_any(void *handle, const char *name) __attribute__((visibility("hidden")));

static void *wrapper_of(const char *name)
{
    size_t i;
    if (!name || (name[0] != 'i' && name[0] != 'm' && name[0] != 'n'))
        return NULL;
    for (i = 0; i < sizeof wrapped / sizeof *wrapped; i++)
        if (text_equal(name, wrapped[i].name))
            return wrapped[i].wrapper;
    return NULL;
}

static void *look_up(void *real, void *handle, const char *name, const char *version)
{
    return version ? ((lookup_2 *)real)(handle, name, version) : ((lookup_1 *)real)(handle, name);
}

static struct choice choose(void *real, void *handle, const char *name, const char *version)
{
    void *wrapper = wrapper_of(name), *found;
    if (LIKELY(!wrapper) || handle == RTLD_NEXT || !real)
        return (struct choice){real, NULL};
    found = look_up(real, handle, name, version);
    if (found == wrapper) /* in the global scope ours comes first: is there one behind it? */
        return (struct choice){NULL, look_up(real, RTLD_NEXT, name, version) ? wrapper : NULL};
    /* One that the wrapper would not call (a second copy, an old version) is left alone. */
    if (!found || !LOAD(&dlqprof_control) || found != dlqprof_next(name))
        return (struct choice){NULL, found};
    return (struct choice){NULL, wrapper};
}

struct choice dlqprof_choose_any(void *handle, const char *name)
{
    return choose((void *)NEXT(dlsym), handle, name, NULL);
}

struct choice dlqprof_choose(void *handle, const char *name, const char *version)
{
    return choose((void *)NEXT(dlvsym), handle, name, version);
}

#if defined(__x86_64__)
#define JUMPING(function, chooser)                                  \
    __asm__(".text\n.globl " #function "\n.type " #function ", @function\n" \
            #function ":\n"                                         \
            ".cfi_startproc\n.byte 0xf3, 0x0f, 0x1e, 0xfa\n" /* endbr64 */ \
            "push %rdi\n.cfi_adjust_cfa_offset 8\n"                 \
            "push %rsi\n.cfi_adjust_cfa_offset 8\n"                 \
            "push %rdx\n.cfi_adjust_cfa_offset 8\n"                 \
            "call " #chooser "\n"                                   \
            "mov %rdx, %rcx\n"                                      \
            "pop %rdx\n.cfi_adjust_cfa_offset -8\n"                 \
            "pop %rsi\n.cfi_adjust_cfa_offset -8\n"                 \
            "pop %rdi\n.cfi_adjust_cfa_offset -8\n"                 \
            "test %rax, %rax\n"                                     \
            "jz 1f\n"                                               \
            "jmp *%rax\n"                                           \
            "1: mov %rcx, %rax\n"                                   \
            "ret\n.cfi_endproc\n.size " #function ", . - " #function "\n")
#else
#define JUMPING(function, chooser)                                  \
    __asm__(".text\n.globl " #function "\n.type " #function ", %function\n" \
            #function ":\n"                                         \
            "stp x29, x30, [sp, #-48]!\n"                           \
            "stp x0, x1, [sp, #16]\n"                               \
            "str x2, [sp, #32]\n"                                   \
            "bl " #chooser "\n"                                     \
            "mov x16, x0\n"                                         \
            "mov x17, x1\n"                                         \
            "ldp x0, x1, [sp, #16]\n"                               \
            "ldr x2, [sp, #32]\n"                                   \
            "ldp x29, x30, [sp], #48\n"                             \
            "cbz x16, 1f\n"                                         \
            "br x16\n"                                              \
            "1: mov x0, x17\n"                                      \
            "ret\n.size " #function ", . - " #function "\n")
#endif

JUMPING(dlsym, dlqprof_choose_any);
JUMPING(dlvsym, dlqprof_choose);

#endif
