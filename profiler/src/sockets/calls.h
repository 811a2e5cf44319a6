/* Shared by the socket wrappers of both directions. */
#ifndef DLQPROF_CALLS_H
#define DLQPROF_CALLS_H

#include "fds.h"
#include "resolve.h"

#include <sys/socket.h>
#include <sys/uio.h>

/* A record's part that does not depend on the call. */
#define RECORD(opcode, number, start) \
    { .op = (opcode), .conn = (number), .ts_ns = (start) }

static inline uint64_t dlqprof_start_of_call(void)
{
    return dlqprof_now(CLOCK_MONOTONIC);
}

/* How many bytes, and where the payload is. Only after a call that read the vector itself: a bad
 * pointer is the kernel's to refuse. Parts beyond IOV_MAX were refused too. */
static inline void dlqprof_measure(struct dlqprof_record *record, const struct iovec *parts, uint64_t count)
{
    uint64_t i;
    if (record->result == -EFAULT || record->result == -EINVAL || count > 1024)
        return;
    for (i = 0; i < count; i++)
        record->bytes += parts[i].iov_len;
    if (count)
        record->address = (uint64_t)(uintptr_t)parts[count - 1].iov_base;
}

/* musl's callers leave the upper half of msg_iovlen undefined. */
static inline uint64_t dlqprof_parts(const struct msghdr *message)
{
    return (uint32_t)message->msg_iovlen;
}

#endif
