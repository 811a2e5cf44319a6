/* The functions behind ours: what the program would have called without us. */
#ifndef DLQPROF_RESOLVE_H
#define DLQPROF_RESOLVE_H

/* The default version of `name` in the first loaded object after this library that defines it, or
 * NULL. No lock is held and nothing is allocated; it may run before any constructor. */
void *dlqprof_next(const char *name);

/* From now on the loader's lock is taken for a walk: other threads may load and unload objects. */
void dlqprof_resolve_with_lock(void);

/* A pointer to the function that `ours` of the same name hides; resolved at the first call, because
 * libraries may call before our constructor runs. Never NULL for what the calling program needs. */
#define NEXT(name)                                                      \
    ({                                                                  \
        static __typeof__(&name) next_##name;                           \
        __typeof__(&name) found_##name = LOAD(&next_##name);            \
        if (UNLIKELY(!found_##name)) {                                  \
            found_##name = (__typeof__(&name))dlqprof_next(#name);      \
            STORE(&next_##name, found_##name);                          \
        }                                                               \
        found_##name;                                                   \
    })

#endif
