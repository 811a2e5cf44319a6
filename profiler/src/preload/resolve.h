/* The functions behind ours: the program's targets without us. */
#ifndef DLQPROF_RESOLVE_H
#define DLQPROF_RESOLVE_H

#include "sys.h"

/* The default version of `name` in the first loaded object after this library that defines it, or
 * NULL. No lock is held and nothing is allocated; it may run before any constructor. */
void *dlqprof_next(const char *name);

/* From now on the loader's lock is taken for a walk: other threads may load and unload objects. */
void dlqprof_resolve_with_lock(void);

/* The functions of the C library that have wrappers. All are looked up when the library starts: later
 * another thread may hold the loader's lock for ever, as in the child of a fork. Libraries may call
 * before that, when there is one thread; then each is looked up at its first call. */
#define WATCHED_CALLS(X)                                                                      \
    X(send) X(sendto) X(sendmsg) X(sendmmsg) X(write) X(writev) X(sendfile)                   \
    X(recv) X(recvfrom) X(recvmsg) X(recvmmsg) X(read) X(readv)                               \
    X(__recv_chk) X(__recvfrom_chk) X(__read_chk)                                             \
    X(connect) X(accept) X(accept4) X(close) X(fclose) X(dup) X(dup2) X(dup3) X(dlsym) X(dlvsym)

#define NEXT_NUMBER(name) NEXT_##name,
enum dlqprof_call { WATCHED_CALLS(NEXT_NUMBER) NEXT_COUNT };

extern void *dlqprof_next_calls[NEXT_COUNT];
void *dlqprof_resolve(enum dlqprof_call call);
void dlqprof_resolve_all(void);

static inline void *dlqprof_next_call(enum dlqprof_call call)
{
    void *found = LOAD(&dlqprof_next_calls[call]);
    return LIKELY(found) ? found : dlqprof_resolve(call);
}

/* The function that our own of this name hides. NULL only for one that the C library does not have,
 * and then no program calls it. */
#define NEXT(name) ((__typeof__(&name))dlqprof_next_call(NEXT_##name))

#endif
