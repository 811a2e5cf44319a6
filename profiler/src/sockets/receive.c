/* The calls that receive. One that found nothing (EAGAIN) is not written down: it tells nothing, and
 * programs that wait in a loop make many. */
#include "calls.h"

#include <unistd.h>

/* The checked variants, which programs compiled with _FORTIFY_SOURCE call; musl has none. */
extern ssize_t __read_chk(int, void *, size_t, size_t);
extern ssize_t __recv_chk(int, void *, size_t, size_t, int);
extern ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);

static uint16_t peek(int flags)
{
    return flags & (MSG_PEEK | MSG_ERRQUEUE) ? DLQPROF_PEEK : 0;
}

static void finish(struct dlqprof_record *record, const void *data, size_t bytes, int flags, ssize_t result)
{
    record->result = dlqprof_result(result);
    if (record->result == -EAGAIN)
        return;
    record->address = (uint64_t)(uintptr_t)data;
    record->bytes = bytes;
    record->flags = peek(flags);
    dlqprof_record(record);
}

static void finish_vector(struct dlqprof_record *record, const struct iovec *parts, uint64_t count,
                          int flags, ssize_t result)
{
    record->result = dlqprof_result(result);
    if (record->result == -EAGAIN)
        return;
    dlqprof_measure(record, parts, count);
    record->flags = peek(flags);
    dlqprof_record(record);
}

EXPORT ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    uint32_t conn;
    if (!dlqprof_watched(fd, &conn))
        return NEXT(recv)(fd, data, bytes, flags);
    struct dlqprof_record record = RECORD(DLQPROF_RECV, conn, dlqprof_start_of_call());
    ssize_t result = NEXT(recv)(fd, data, bytes, flags);
    finish(&record, data, bytes, flags, result);
    return result;
}

EXPORT ssize_t __recv_chk(int fd, void *data, size_t bytes, size_t room, int flags)
{
    uint32_t conn;
    if (!dlqprof_watched(fd, &conn))
        return NEXT(__recv_chk)(fd, data, bytes, room, flags);
    struct dlqprof_record record = RECORD(DLQPROF_RECV, conn, dlqprof_start_of_call());
    ssize_t result = NEXT(__recv_chk)(fd, data, bytes, room, flags);
    finish(&record, data, bytes, flags, result);
    return result;
}

EXPORT ssize_t recvfrom(int fd, void *restrict data, size_t bytes, int flags,
                        struct sockaddr *restrict from, socklen_t *restrict length)
{
    uint32_t conn;
    if (!dlqprof_watched(fd, &conn))
        return NEXT(recvfrom)(fd, data, bytes, flags, from, length);
    struct dlqprof_record record = RECORD(DLQPROF_RECVFROM, conn, dlqprof_start_of_call());
    ssize_t result = NEXT(recvfrom)(fd, data, bytes, flags, from, length);
    finish(&record, data, bytes, flags, result);
    return result;
}

EXPORT ssize_t __recvfrom_chk(int fd, void *restrict data, size_t bytes, size_t room, int flags,
                              struct sockaddr *restrict from, socklen_t *restrict length)
{
    uint32_t conn;
    if (!dlqprof_watched(fd, &conn))
        return NEXT(__recvfrom_chk)(fd, data, bytes, room, flags, from, length);
    struct dlqprof_record record = RECORD(DLQPROF_RECVFROM, conn, dlqprof_start_of_call());
    ssize_t result = NEXT(__recvfrom_chk)(fd, data, bytes, room, flags, from, length);
    finish(&record, data, bytes, flags, result);
    return result;
}

EXPORT ssize_t read(int fd, void *data, size_t bytes)
{
    uint32_t conn;
    if (!dlqprof_watched(fd, &conn))
        return NEXT(read)(fd, data, bytes);
    struct dlqprof_record record = RECORD(DLQPROF_READ, conn, dlqprof_start_of_call());
    ssize_t result = NEXT(read)(fd, data, bytes);
    finish(&record, data, bytes, 0, result);
    return result;
}

EXPORT ssize_t __read_chk(int fd, void *data, size_t bytes, size_t room)
{
    uint32_t conn;
    if (!dlqprof_watched(fd, &conn))
        return NEXT(__read_chk)(fd, data, bytes, room);
    struct dlqprof_record record = RECORD(DLQPROF_READ, conn, dlqprof_start_of_call());
    ssize_t result = NEXT(__read_chk)(fd, data, bytes, room);
    finish(&record, data, bytes, 0, result);
    return result;
}

EXPORT ssize_t readv(int fd, const struct iovec *parts, int count)
{
    uint32_t conn;
    if (!dlqprof_watched(fd, &conn))
        return NEXT(readv)(fd, parts, count);
    struct dlqprof_record record = RECORD(DLQPROF_READV, conn, dlqprof_start_of_call());
    ssize_t result = NEXT(readv)(fd, parts, count);
    finish_vector(&record, parts, (uint64_t)count, 0, result);
    return result;
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    uint32_t conn;
    if (!dlqprof_watched(fd, &conn))
        return NEXT(recvmsg)(fd, message, flags);
    struct dlqprof_record record = RECORD(DLQPROF_RECVMSG, conn, dlqprof_start_of_call());
    ssize_t result = NEXT(recvmsg)(fd, message, flags);
    if (dlqprof_result(result) == -EFAULT)
        finish(&record, NULL, 0, flags, result);
    else
        finish_vector(&record, message->msg_iov, dlqprof_parts(message), flags, result);
    return result;
}

EXPORT int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
    uint32_t conn;
    int i, result;
    if (!dlqprof_watched(fd, &conn))
        return NEXT(recvmmsg)(fd, messages, count, flags, timeout);
    uint64_t start = dlqprof_start_of_call();
    result = NEXT(recvmmsg)(fd, messages, count, flags, timeout);
    if (result < 0) {
        struct dlqprof_record record = RECORD(DLQPROF_RECVMMSG, conn, start);
        finish(&record, NULL, 0, flags, result);
    }
    for (i = 0; i < result; i++) {
        struct dlqprof_record record = RECORD(DLQPROF_RECVMMSG, conn, start);
        finish_vector(&record, messages[i].msg_hdr.msg_iov, dlqprof_parts(&messages[i].msg_hdr), flags,
                      messages[i].msg_len);
    }
    return result;
}
