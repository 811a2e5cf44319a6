/* Soft resource limits of a job, from the shell that submitted it: "NAME:NUMBER" or
 * "NAME:unlimited". A hard limit is never raised, and a soft one never above it. Each program that
 * includes this has its own copy. */
#ifndef DLQ_SOFT_LIMITS_H
#define DLQ_SOFT_LIMITS_H

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct soft_limits {
    bool said[RLIM_NLIMITS];
    rlim_t value[RLIM_NLIMITS];
};

/* The kernel's number for one of Slurm's names; -1: it is none. */
static inline int soft_limit_kind(const char *name, size_t length)
{
    static const struct {
        const char *name;
        int kind;
    } KINDS[] = {{"CPU", RLIMIT_CPU},     {"FSIZE", RLIMIT_FSIZE},     {"DATA", RLIMIT_DATA},
                 {"STACK", RLIMIT_STACK}, {"CORE", RLIMIT_CORE},       {"RSS", RLIMIT_RSS},
                 {"NPROC", RLIMIT_NPROC}, {"NOFILE", RLIMIT_NOFILE},   {"MEMLOCK", RLIMIT_MEMLOCK},
                 {"AS", RLIMIT_AS}};
    for (size_t at = 0; at < sizeof KINDS / sizeof *KINDS; at++)
        if (strlen(KINDS[at].name) == length && strncmp(name, KINDS[at].name, length) == 0)
            return KINDS[at].kind;
    return -1;
}

/* False for a name that is none of Slurm's, and for no number. */
static inline bool soft_limit_take(struct soft_limits *limits, const char *text)
{
    size_t length = strcspn(text, ":");
    int kind = soft_limit_kind(text, length);
    if (kind < 0 || text[length] == '\0')
        return false;
    const char *number = text + length + 1;
    char *end = "";
    bool none = strcmp(number, "unlimited") == 0;
    if (!none && (*number < '0' || *number > '9'))
        return false;
    errno = 0;
    limits->value[kind] = none ? RLIM_INFINITY : strtoull(number, &end, 10);
    limits->said[kind] = true;
    return *end == '\0' && errno == 0;
}

/* Without a word a limit stays as it is, but core dumps are off, and open files are as many as the
 * hard limit allows. */
static inline void soft_limits_set(const struct soft_limits *limits)
{
    const struct rlimit none = {0, 0};
    for (int kind = 0; kind < RLIM_NLIMITS; kind++) {
        struct rlimit now;
        if (getrlimit(kind, &now) != 0)
            continue;
        if (limits->said[kind])
            now.rlim_cur = limits->value[kind] < now.rlim_max ? limits->value[kind] : now.rlim_max;
        else if (kind == RLIMIT_NOFILE)
            now.rlim_cur = now.rlim_max;
        if (kind == RLIMIT_CORE && !limits->said[kind])
            now = none;
        setrlimit(kind, &now);
    }
}

#endif
