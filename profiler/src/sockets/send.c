/* The calls that send. Each one: ask whether it is watched, call the real one, write it down. */
#include "calls.h"

#include <sys/sendfile.h>
#include <unistd.h>

/* gloo's transport puts this before each message. */
struct preamble {
    uint64_t bytes, opcode, slot, offset, length, roffset;
};

static void note_preamble(struct dlqprof_record *record, const struct iovec *parts, uint64_t count)
{
    const struct preamble *preamble;
    /* The kernel has read it, or would have but for a full buffer. */
    if (count < 1 || count > 2 || parts[0].iov_len != sizeof *preamble)
        return;
    if (record->result < (int64_t)sizeof *preamble && record->result != -EAGAIN)
        return;
    preamble = parts[0].iov_base;
    if (preamble->bytes != record->bytes)
        return;
    record->flags |= DLQPROF_GLOO;
    record->aux = preamble->slot;
    record->aux2 = (uint32_t)preamble->opcode;
}

static void finish(struct dlqprof_record *record, const void *data, size_t bytes, ssize_t result)
{
    record->address = (uint64_t)(uintptr_t)data;
    record->bytes = bytes;
    record->result = dlqprof_result(result);
    dlqprof_record(record);
}

static void finish_vector(struct dlqprof_record *record, const struct iovec *parts, uint64_t count,
                          ssize_t result)
{
    record->result = dlqprof_result(result);
    dlqprof_measure(record, parts, count);
    if (record->bytes)
        note_preamble(record, parts, count);
    dlqprof_record(record);
}

EXPORT ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    uint32_t conn;
    if (!dlqprof_watched(fd, &conn))
        return NEXT(send)(fd, data, bytes, flags);
    struct dlqprof_record record = RECORD(DLQPROF_SEND, conn, dlqprof_start_of_call());
    ssize_t result = NEXT(send)(fd, data, bytes, flags);
    finish(&record, data, bytes, result);
    return result;
}

EXPORT ssize_t sendto(int fd, const void *data, size_t bytes, int flags, const struct sockaddr *to,
                      socklen_t length)
{
    uint32_t conn;
    if (!dlqprof_watched(fd, &conn))
        return NEXT(sendto)(fd, data, bytes, flags, to, length);
    struct dlqprof_record record = RECORD(DLQPROF_SENDTO, conn, dlqprof_start_of_call());
    ssize_t result = NEXT(sendto)(fd, data, bytes, flags, to, length);
    finish(&record, data, bytes, result);
    return result;
}

EXPORT ssize_t write(int fd, const void *data, size_t bytes)
{
    uint32_t conn;
    if (!dlqprof_watched(fd, &conn))
        return NEXT(write)(fd, data, bytes);
    struct dlqprof_record record = RECORD(DLQPROF_WRITE, conn, dlqprof_start_of_call());
    ssize_t result = NEXT(write)(fd, data, bytes);
    finish(&record, data, bytes, result);
    return result;
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
    uint32_t conn;
    if (!dlqprof_watched(fd, &conn))
        return NEXT(writev)(fd, parts, count);
    struct dlqprof_record record = RECORD(DLQPROF_WRITEV, conn, dlqprof_start_of_call());
    ssize_t result = NEXT(writev)(fd, parts, count);
    finish_vector(&record, parts, (uint64_t)count, result);
    return result;
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    uint32_t conn;
    if (!dlqprof_watched(fd, &conn))
        return NEXT(sendmsg)(fd, message, flags);
    struct dlqprof_record record = RECORD(DLQPROF_SENDMSG, conn, dlqprof_start_of_call());
    ssize_t result = NEXT(sendmsg)(fd, message, flags);
    if (dlqprof_result(result) == -EFAULT)
        finish(&record, NULL, 0, result);
    else
        finish_vector(&record, message->msg_iov, dlqprof_parts(message), result);
    return result;
}

EXPORT int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
    uint32_t conn;
    int i, result;
    if (!dlqprof_watched(fd, &conn))
        return NEXT(sendmmsg)(fd, messages, count, flags);
    uint64_t start = dlqprof_start_of_call();
    result = NEXT(sendmmsg)(fd, messages, count, flags);
    if (result < 0) {
        struct dlqprof_record record = RECORD(DLQPROF_SENDMMSG, conn, start);
        finish(&record, NULL, 0, result);
    }
    for (i = 0; i < result; i++) {
        struct dlqprof_record record = RECORD(DLQPROF_SENDMMSG, conn, start);
        finish_vector(&record, messages[i].msg_hdr.msg_iov, dlqprof_parts(&messages[i].msg_hdr),
                      messages[i].msg_len);
    }
    return result;
}

EXPORT ssize_t sendfile(int to, int from, off_t *offset, size_t bytes)
{
    uint32_t conn;
    if (!dlqprof_watched(to, &conn))
        return NEXT(sendfile)(to, from, offset, bytes);
    struct dlqprof_record record = RECORD(DLQPROF_SENDFILE, conn, dlqprof_start_of_call());
    ssize_t result = NEXT(sendfile)(to, from, offset, bytes);
    finish(&record, NULL, bytes, result);
    return result;
}

/* The same function: off_t has 64 bits wherever this library is built. */
EXPORT ssize_t sendfile64(int to, int from, off64_t *offset, size_t bytes)
{
    return sendfile(to, from, offset, bytes);
}
