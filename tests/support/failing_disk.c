/* LD_PRELOAD: the N-th fsync or fdatasync of a file whose name ends in DISK_FILE fails with EIO,
 * and so do all that follow. Counts down DISK_AFTER, default 1. With DISK_DELAY_MS none fails: each
 * takes so long. For tests of the store. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static long left = -1;

static int fails(int fd) {
    const char *wanted = getenv("DISK_FILE");
    char link[64], name[PATH_MAX];
    if (wanted == NULL) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length < 0) return 0;
    name[length] = '\0';
    size_t tail = strlen(wanted);
    if ((size_t)length < tail || strcmp(name + length - tail, wanted) != 0) return 0;
    const char *delay = getenv("DISK_DELAY_MS");
    if (delay != NULL) {
        usleep((useconds_t)atol(delay) * 1000);
        return 0;
    }
    if (left < 0) left = getenv("DISK_AFTER") ? atol(getenv("DISK_AFTER")) : 1;
    if (left > 1) {
        left--;
        return 0;
    }
    return 1;
}

int fsync(int fd) {
    if (fails(fd)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
    if (fails(fd)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}
