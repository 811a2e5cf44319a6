/* LD_PRELOAD: a disk that fails for files whose name ends in DISK_FILE. For tests of the store.
 *
 * DISK_FAULT says how: "sync" (the default: fsync and fdatasync fail with EIO), "eio" and "enospc"
 * (writes fail), "short" (one write takes half of its bytes, and later ones fail with ENOSPC), or
 * "read" (reads fail with EIO). The DISK_AFTER-th operation fails (default 1), and so do all that
 * follow. With "stall" none fails: the DISK_AFTER-th sync takes DISK_STALL_MS, and makes the empty
 * file DISK_TOLD when it begins. With DISK_DELAY_MS none fails: each sync takes so long. The first
 * operation that fails makes DISK_TOLD too. Nothing fails any more once the file DISK_WELL is there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static long left = -1;
static int was_short = 0;
static int has_stalled = 0;
static int has_told = 0;

static int is_ours(int fd) {
    const char *wanted = getenv("DISK_FILE");
    char link[64], name[PATH_MAX];
    if (wanted == NULL) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length < 0) return 0;
    name[length] = '\0';
    size_t tail = strlen(wanted);
    return (size_t)length >= tail && strcmp(name + length - tail, wanted) == 0;
}

static int is_fault(const char *kind) {
    const char *fault = getenv("DISK_FAULT");
    return strcmp(fault != NULL ? fault : "sync", kind) == 0;
}

static void tell(void) {
    const char *told = getenv("DISK_TOLD");
    if (told != NULL && !has_told) close(open(told, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    has_told = 1;
}

static int is_due(void) {
    const char *well = getenv("DISK_WELL");
    if (left < 0) left = getenv("DISK_AFTER") ? atol(getenv("DISK_AFTER")) : 1;
    if (left > 1) {
        left--;
        return 0;
    }
    int kept = errno;
    int is_well = well != NULL && access(well, F_OK) == 0;
    if (!is_well) tell();
    errno = kept;
    return !is_well;
}

static void stall(void) {
    const char *lasts = getenv("DISK_STALL_MS");
    if (has_stalled || !is_due()) return;
    has_stalled = 1;
    usleep((useconds_t)(lasts != NULL ? atol(lasts) : 30000) * 1000);
}

static int sync_fails(int fd) {
    if (!is_ours(fd)) return 0;
    if (is_fault("stall")) {
        stall();
        return 0;
    }
    const char *delay = getenv("DISK_DELAY_MS");
    if (delay != NULL) {
        usleep((useconds_t)atol(delay) * 1000);
        return 0;
    }
    return is_fault("sync") && is_due();
}

int fsync(int fd) {
    if (sync_fails(fd)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
    if (sync_fails(fd)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

/* The bytes that this write may take: all, half, or -1 with errno. */
static ssize_t taken(int fd, size_t count) {
    if (is_fault("sync") || is_fault("read") || is_fault("stall")) return (ssize_t)count;
    if (!is_ours(fd) || !is_due()) return (ssize_t)count;
    if (is_fault("short") && !was_short) {
        was_short = 1;
        return (ssize_t)(count / 2 + 1);
    }
    errno = is_fault("eio") ? EIO : ENOSPC;
    return -1;
}

ssize_t write(int fd, const void *data, size_t count) {
    ssize_t some = taken(fd, count);
    return some < 0 ? -1 : (ssize_t)syscall(SYS_write, fd, data, (size_t)some);
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t at) {
    ssize_t some = taken(fd, count);
    return some < 0 ? -1 : (ssize_t)syscall(SYS_pwrite64, fd, data, (size_t)some, at);
}

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t at) {
    ssize_t some = taken(fd, count);
    return some < 0 ? -1 : (ssize_t)syscall(SYS_pwrite64, fd, data, (size_t)some, at);
}

static int read_fails(int fd) {
    if (!is_fault("read") || !is_ours(fd) || !is_due()) return 0;
    errno = EIO;
    return 1;
}

ssize_t read(int fd, void *data, size_t count) {
    return read_fails(fd) ? -1 : (ssize_t)syscall(SYS_read, fd, data, count);
}

ssize_t pread(int fd, void *data, size_t count, off_t at) {
    return read_fails(fd) ? -1 : (ssize_t)syscall(SYS_pread64, fd, data, count, at);
}

ssize_t pread64(int fd, void *data, size_t count, off_t at) {
    return read_fails(fd) ? -1 : (ssize_t)syscall(SYS_pread64, fd, data, count, at);
}
