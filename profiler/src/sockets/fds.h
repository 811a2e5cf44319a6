/* The table of descriptors: internet sockets, and the connection of each. */
#ifndef DLQPROF_FDS_H
#define DLQPROF_FDS_H

#include "recorder.h"

#define FDS 65536u

/* The state of a descriptor: one of these, or a connection's number + FD_CONN. */
enum {
    FD_UNKNOWN = 0,
    FD_OTHER,     /* not an internet socket */
    FD_CONNECTED, /* an internet socket of which nothing was written down yet */
    FD_ACCEPTED,
    FD_CONN, /* + 0: the connection table was full */
};
extern uint16_t dlqprof_fds[FDS];

/* Looks at the descriptor itself; returns its present state. */
uint32_t dlqprof_classify(int fd);

static inline void dlqprof_fd_is(int fd, uint16_t what)
{
    if ((unsigned)fd < FDS && LOAD(&dlqprof_fds[fd]) != what)
        STORE(&dlqprof_fds[fd], what);
}

/* Whether a call on fd is to be recorded, and as which connection. */
static inline int dlqprof_watched(int fd, uint32_t *conn)
{
    uint32_t what;
    if (LIKELY(!dlqprof_recording()))
        return 0;
    if (UNLIKELY((unsigned)fd >= FDS)) {
        if (fd < 0 || dlqprof_classify(fd) == FD_OTHER)
            return 0;
        *conn = 0;
        return LOAD(dlqprof_epoch) != 0;
    }
    what = LOAD(&dlqprof_fds[fd]);
    if (what == FD_OTHER)
        return 0;
    if (UNLIKELY(what < FD_CONN || LOAD(dlqprof_epoch) == 0)) {
        what = dlqprof_classify(fd);
        if (what < FD_CONN)
            return 0;
    }
    *conn = what - FD_CONN;
    return 1;
}

#endif
