/* The processes below us: we are their subreaper. */
#include "tasks.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int parent_in(const char *name)
{
    char path[300], text[1024], state;
    int parent = -1;
    snprintf(path, sizeof path, "/proc/%s/stat", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return -1;
    text[got] = '\0';
    const char *behind = strrchr(text, ')');
    return behind != NULL && sscanf(behind + 1, " %c %d", &state, &parent) == 2 ? parent : -1;
}

struct process {
    int pid, parent;
};

static int by_pid(const void *left, const void *right)
{
    return ((const struct process *)left)->pid - ((const struct process *)right)->pid;
}

static bool is_below(const struct process *all, size_t count, const struct process *one)
{
    for (int depth = 0; one != NULL && depth < 256; depth++) {
        struct process parent = {.pid = one->parent};
        if (one->parent == getpid())
            return true;
        one = bsearch(&parent, all, count, sizeof *all, by_pid);
    }
    return false;
}

/* Visits all processes below us: we are their subreaper. */
void each_below(void (*visit)(int pid, void *what), void *what)
{
    struct process *all = NULL;
    size_t count = 0;
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    while (processes != NULL && (entry = readdir(processes)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0])) {
            if (count % 256 == 0)
                all = must_have(realloc(all, (count + 256) * sizeof *all));
            all[count++] =
                (struct process){.pid = atoi(entry->d_name), .parent = parent_in(entry->d_name)};
        }
    if (processes != NULL)
        closedir(processes);
    qsort(all, count, sizeof *all, by_pid);
    for (size_t at = 0; at < count; at++)
        if (is_below(all, count, &all[at]))
            visit(all[at].pid, what);
    free(all);
}

void add_usage(int pid, void *what)
{
    struct usage *usage = what;
    char path[64], text[2048];
    unsigned long user, system, pages;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return;
    text[got] = '\0';
    const char *behind = strrchr(text, ')');
    if (behind == NULL ||
        sscanf(behind + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d "
               "%*d %*d %*u %*u %lu",
               &user, &system, &pages) != 3)
        return;
    uint64_t rss = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
    usage->rss_bytes = rss > usage->rss_bytes ? rss : usage->rss_bytes;
    usage->cpu_us += (uint64_t)(user + system) * 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
}
