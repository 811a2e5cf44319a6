/* Descriptors: classified at their first use, forgotten when they are closed or replaced. */
#include "fds.h"

#include "resolve.h"

#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_COOKIE
#define SO_COOKIE 57
#endif

extern int fileno(FILE *) WEAK;

uint16_t dlqprof_fds[FDS];

/* The file that the numbers in dlqprof_fds belong to. */
static uint32_t numbered_for;

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static uint64_t option(int fd, int name, uint32_t size)
{
    uint64_t value = 0;
    uint32_t length = size;
    long rc = SYS5(SYS_getsockopt, fd, SOL_SOCKET, name, ARG(&value), ARG(&length));
    return rc == 0 ? value : UINT64_MAX;
}

static uint16_t keep_address(const union address *from, uint8_t to[16])
{
    const uint8_t *bytes = (const uint8_t *)&from->v4.sin_addr;
    size_t n = from->any.sa_family == AF_INET ? 4 : 16, i;
    uint16_t port = from->v4.sin_port; /* at the same place in both */
    if (from->any.sa_family != AF_INET && from->any.sa_family != AF_INET6)
        return 0;
    if (n == 16)
        bytes = (const uint8_t *)&from->v6.sin6_addr;
    for (i = 0; i < n; i++)
        to[i] = bytes[i];
    return (uint16_t)(port << 8 | port >> 8);
}

static void ask_addresses(int fd, struct dlqprof_conn *conn)
{
    union address address = {.any = {.sa_family = 0}};
    uint32_t length = sizeof address;
    if (SYS3(SYS_getsockname, fd, ARG(&address), ARG(&length)) == 0)
        conn->local_port = keep_address(&address, conn->local_address);
    address.any.sa_family = 0;
    length = sizeof address;
    if (SYS3(SYS_getpeername, fd, ARG(&address), ARG(&length)) == 0)
        conn->remote_port = keep_address(&address, conn->remote_address);
}

/* In a new file (the first one, or a forked child's) no connection has a number yet. */
static void renumber(uint32_t epoch)
{
    uint32_t fd, was = LOAD_ACQUIRE(&numbered_for);
    if (was == epoch ||
        !__atomic_compare_exchange_n(&numbered_for, &was, epoch, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return;
    for (fd = 0; was != 0 && fd < FDS; fd++)
        if (LOAD(&dlqprof_fds[fd]) >= FD_CONN)
            STORE(&dlqprof_fds[fd], FD_UNKNOWN);
}

static uint32_t number_of(int fd, uint16_t family, uint32_t known)
{
    uint64_t cookie = option(fd, SO_COOKIE, 8);
    struct dlqprof_conn conn = {
        .kind = DLQPROF_SOCKET,
        .id = cookie == UINT64_MAX ? 0 : cookie,
        .seen_ns = dlqprof_now(CLOCK_MONOTONIC),
        .fd = fd,
        .family = family,
        .type = (uint16_t)option(fd, SO_TYPE, 4),
        .side = known == FD_CONNECTED  ? DLQPROF_CONNECTED
                : known == FD_ACCEPTED ? DLQPROF_ACCEPTED
                                       : DLQPROF_SIDE_UNKNOWN,
    };
    if (conn.id && known == FD_UNKNOWN) { /* else it is certainly new */
        uint32_t number = dlqprof_conn_find(DLQPROF_SOCKET, conn.id);
        if (number) {
            STORE(&dlqprof_conn_at(number)->closed_ns, 0);
            return number;
        }
    }
    ask_addresses(fd, &conn);
    return dlqprof_conn_add(&conn);
}

uint32_t dlqprof_classify(int fd)
{
    uint64_t family;
    uint32_t epoch, known = FD_UNKNOWN, number;
    if (dlqprof_refused())
        return FD_OTHER;
    family = option(fd, SO_DOMAIN, 4);
    if (family != AF_INET && family != AF_INET6) {
        /* A bad descriptor may be a good one at the next call. */
        if (SYS3(SYS_fcntl, fd, 1 /* F_GETFD */, 0) >= 0)
            dlqprof_fd_is(fd, FD_OTHER);
        return FD_OTHER;
    }
    epoch = dlqprof_attach();
    if (!epoch)
        return FD_UNKNOWN;
    renumber(epoch);
    if ((unsigned)fd >= FDS) {
        dlqprof_flag(DLQPROF_HIGH_FD);
        return FD_CONN;
    }
    known = LOAD(&dlqprof_fds[fd]);
    if (known >= FD_CONN) /* another thread was faster */
        return known;
    number = number_of(fd, (uint16_t)family, known);
    dlqprof_fd_is(fd, (uint16_t)(FD_CONN + number));
    return FD_CONN + number;
}

static void forget(int fd)
{
    uint32_t what;
    if ((unsigned)fd >= FDS)
        return;
    what = LOAD(&dlqprof_fds[fd]);
    if (what == FD_UNKNOWN)
        return;
    STORE(&dlqprof_fds[fd], FD_UNKNOWN);
    if (what > FD_CONN && LOAD_ACQUIRE(dlqprof_epoch) && LOAD(&numbered_for) == LOAD(dlqprof_epoch))
        STORE(&dlqprof_conn_at(what - FD_CONN)->closed_ns, dlqprof_now(CLOCK_MONOTONIC));
}

/* ---- calls that open, replace and close descriptors ---- */

EXPORT int connect(int fd, const struct sockaddr *address, socklen_t length)
{
    int rc = NEXT(connect)(fd, address, length);
    if (rc == 0 || (dlqprof_control && dlqprof_result(rc) == -EINPROGRESS))
        dlqprof_fd_is(fd, FD_CONNECTED);
    return rc;
}

EXPORT int accept(int fd, struct sockaddr *restrict address, socklen_t *restrict length)
{
    int rc = NEXT(accept)(fd, address, length);
    dlqprof_fd_is(rc, FD_ACCEPTED);
    return rc;
}

EXPORT int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict length, int flags)
{
    int rc = NEXT(accept4)(fd, address, length, flags);
    dlqprof_fd_is(rc, FD_ACCEPTED);
    return rc;
}

EXPORT int close(int fd)
{
    forget(fd); /* before: another thread may have the number at once */
    return NEXT(close)(fd);
}

EXPORT int fclose(FILE *stream)
{
    if (dlqprof_control && fileno)
        forget(fileno(stream));
    return NEXT(fclose)(stream);
}

EXPORT int dup(int fd)
{
    int rc = NEXT(dup)(fd);
    dlqprof_fd_is(rc, FD_UNKNOWN);
    return rc;
}

EXPORT int dup2(int fd, int wanted)
{
    int rc = NEXT(dup2)(fd, wanted);
    dlqprof_fd_is(rc, FD_UNKNOWN);
    return rc;
}

EXPORT int dup3(int fd, int wanted, int flags)
{
    int rc = NEXT(dup3)(fd, wanted, flags);
    dlqprof_fd_is(rc, FD_UNKNOWN);
    return rc;
}
