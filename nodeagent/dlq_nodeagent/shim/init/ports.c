/* Whose port is it? A forward reaches a listening socket only if a process of its own job holds it.
 *
 * A process is of the job if it is in the job's control group. In a container every process that we
 * see is. On a host without control groups its environment names the job, or the environment of the
 * process that started it. The kernel keeps the rest out: we have the rights of the job's user, and
 * no more. */
#include "forward.h"
#include "listening.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES 65536
#define MOST_ANCESTORS 32

static ssize_t slurp(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t got = -1;
    while (fd >= 0 && length < size - 1 && (got = read(fd, text + length, size - 1 - length)) > 0)
        length += (size_t)got;
    if (fd >= 0)
        close(fd);
    text[length] = '\0';
    return got < 0 && length == 0 ? -1 : (ssize_t)length;
}

/* ---- is this process of our job? ---- */

/* The part of /proc/PID/cgroup from dlq's own group on; NULL: it is in none. */
static char *own_group(const char *pid, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%.20s/cgroup", pid);
    char *group = slurp(path, text, size) < 0 ? NULL : strstr(text, "/dlq/");
    if (group != NULL)
        group[strcspn(group, "\n")] = '\0';
    return group;
}

static bool is_below(const char *group, const char *ours)
{
    size_t length = strlen(ours);
    return strncmp(group, ours, length) == 0 && (group[length] == '\0' || group[length] == '/');
}

static bool has_variable(const char *variables, size_t length, const char *name)
{
    const char *value = getenv(name);
    char wanted[128];
    int size = value == NULL ? -1 : snprintf(wanted, sizeof wanted, "%s=%s", name, value);
    if (size < 0 || (size_t)size >= sizeof wanted)
        return false;
    for (const char *at = variables; at < variables + length; at += strlen(at) + 1)
        if (strcmp(at, wanted) == 0)
            return true;
    return false;
}

static bool names_our_job(const char *pid)
{
    static char variables[4 * FILE_BYTES];
    char path[64];
    snprintf(path, sizeof path, "/proc/%.20s/environ", pid);
    ssize_t length = slurp(path, variables, sizeof variables);
    return length > 0 && has_variable(variables, (size_t)length, "DLQ_JOB_ID") &&
           has_variable(variables, (size_t)length, "DLQ_ATTEMPT");
}

/* The parent of a process as text; false: it has none that we know. */
static bool parent_of(char *pid, size_t size)
{
    char path[64], line[1024];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    const char *after = slurp(path, line, sizeof line) > 0 ? strrchr(line, ')') : NULL;
    if (after == NULL || sscanf(after + 1, " %*c %d", &parent) != 1 || parent <= 1)
        return false;
    snprintf(pid, size, "%d", parent);
    return true;
}

/* Some programs write their title over their environment, as ray and postgres do. Others start with
 * an empty one. Each is of the job of the process that started it. */
static bool comes_from_our_job(const char *pid)
{
    char at[24];
    snprintf(at, sizeof at, "%.20s", pid);
    for (int step = 0; step < MOST_ANCESTORS; step++)
        if (names_our_job(at))
            return true;
        else if (!parent_of(at, sizeof at))
            return false;
    return false;
}

/* Process 1 of our containers is this program too, under the name that podman gives it. */
static bool is_in_container(void)
{
    char first[32], ours[32];
    return slurp("/proc/1/comm", first, sizeof first) > 0 &&
           slurp("/proc/self/comm", ours, sizeof ours) > 0 && strcmp(first, ours) == 0;
}

static bool is_of_job(const char *pid)
{
    static char mine[FILE_BYTES], its[FILE_BYTES];
    if (is_in_container())
        return true;
    const char *ours = own_group("self", mine, sizeof mine);
    if (ours == NULL)
        return comes_from_our_job(pid);
    const char *group = own_group(pid, its, sizeof its);
    return group != NULL && is_below(group, ours);
}

/* ---- who holds it? ---- */

static const struct listener *held(int fds, const char *name, const struct listeners *found)
{
    char target[64];
    unsigned long inode;
    ssize_t length = readlinkat(fds, name, target, sizeof target - 1);
    if (length <= 0)
        return NULL;
    target[length] = '\0';
    if (sscanf(target, "socket:[%lu]", &inode) != 1)
        return NULL;
    for (size_t at = 0; at < found->count; at++)
        if (found->each[at].inode == inode)
            return &found->each[at];
    return NULL;
}

static const struct listener *held_by(const char *pid, const struct listeners *found)
{
    char path[64];
    const struct listener *one = NULL;
    const struct dirent *entry;
    snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    DIR *fds = opendir(path);
    while (fds != NULL && one == NULL && (entry = readdir(fds)) != NULL)
        one = held(dirfd(fds), entry->d_name, found);
    if (fds != NULL)
        closedir(fds);
    return one;
}

static enum port_place place_of(const struct listener *one)
{
    return one->on_6 ? PORT_ON_6 : PORT_ON_4;
}

enum port_place port_find(int port)
{
    static char last[24]; /* the process that was found last time is mostly the one */
    struct listeners found;
    const struct listener *one;
    const struct dirent *entry;
    find_listeners(port, &found);
    if (found.count == 0)
        return PORT_CLOSED;
    if (last[0] != '\0' && (one = held_by(last, &found)) != NULL && is_of_job(last))
        return place_of(one);
    DIR *all = opendir("/proc");
    while (all != NULL && (entry = readdir(all)) != NULL) {
        if (!isdigit((unsigned char)entry->d_name[0]) || strlen(entry->d_name) >= sizeof last)
            continue;
        if ((one = held_by(entry->d_name, &found)) != NULL && is_of_job(entry->d_name)) {
            memcpy(last, entry->d_name, strlen(entry->d_name) + 1);
            closedir(all);
            return place_of(one);
        }
    }
    if (all != NULL)
        closedir(all);
    return PORT_OF_OTHERS;
}
