/* The control groups the agent has prepared: join, kill, count, read. Kinds v1 and v2 may mix. */
#include "shim.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *dir_of(const struct plan *plan, const char *kind)
{
    for (size_t at = 0; at < plan->cgroup_count; at++)
        if (strcmp(plan->cgroups[at].kind, kind) == 0)
            return plan->cgroups[at].path;
    return NULL;
}

static int write_in(const char *dir, const char *file, const char *text)
{
    char path[4200];
    if (dir == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return write_text(path, text);
}

/* Moves the calling process ("0") into every group; -1 with errno at the first that refuses. */
int cgroup_join(const struct plan *plan)
{
    for (size_t at = 0; at < plan->cgroup_count; at++)
        if (write_in(plan->cgroups[at].path, "cgroup.procs", "0") != 0)
            return -1;
    return 0;
}

#define DEEPEST 6 /* groups in groups; podman makes one level, an engine inside a job may more */

static int each_pid(const char *dir, bool kill_it)
{
    char path[4200];
    int count = 0, pid;
    snprintf(path, sizeof path, "%s/cgroup.procs", dir);
    FILE *procs = fopen(path, "re");
    if (procs == NULL)
        return 0;
    while (fscanf(procs, "%d", &pid) == 1) {
        if (pid <= 1 || pid == getpid())
            continue;
        count++;
        if (kill_it)
            kill(pid, SIGKILL);
    }
    fclose(procs);
    return count;
}

/* One round. cgroup.kill is atomic against forks; without it the freezer holds them still. */
void cgroup_kill(const struct plan *plan)
{
    const char *freezer = dir_of(plan, "freezer");
    if (write_in(dir_of(plan, "unified"), "cgroup.kill", "1") != 0)
        write_in(freezer, "freezer.state", "FROZEN");
    for (size_t at = 0; at < plan->cgroup_count; at++)
        each_pid(plan->cgroups[at].path, true);
    write_in(freezer, "freezer.state", "THAWED"); /* a frozen v1 task does not even die */
}

int cgroup_count(const struct plan *plan)
{
    int most = 0;
    for (size_t at = 0; at < plan->cgroup_count; at++) {
        int count = each_pid(plan->cgroups[at].path, false);
        most = count > most ? count : most;
    }
    return most;
}

typedef int (*visit)(const char *dir, void *what);

/* Visits all groups below `dir`, the deepest first; returns the sum of the visits' results. */
static int walk_below(const char *dir, bool conmon, int depth, visit visit, void *what)
{
    int sum = 0;
    DIR *listing = depth < DEEPEST ? opendir(dir) : NULL;
    struct dirent *entry;
    while (listing != NULL && (entry = readdir(listing)) != NULL) {
        char below[4200];
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.' ||
            (!conmon && strcmp(entry->d_name, "conmon") == 0))
            continue;
        snprintf(below, sizeof below, "%s/%s", dir, entry->d_name);
        sum += walk_below(below, true, depth + 1, visit, what) + visit(below, what);
    }
    if (listing != NULL)
        closedir(listing);
    return sum;
}

static int count_in(const char *dir, void *unused)
{
    (void)unused;
    return each_pid(dir, false);
}

static int kill_in(const char *dir, void *unused)
{
    (void)unused;
    if (write_in(dir, "cgroup.kill", "1") != 0)
        write_in(dir, "freezer.state", "FROZEN");
    int count = each_pid(dir, true);
    write_in(dir, "freezer.state", "THAWED");
    return count;
}

void cgroup_kill_below(const struct plan *plan, bool conmon)
{
    for (size_t at = 0; at < plan->cgroup_count; at++)
        walk_below(plan->cgroups[at].path, conmon, 0, kill_in, NULL);
}

int cgroup_count_below(const struct plan *plan, bool conmon)
{
    int most = 0;
    for (size_t at = 0; at < plan->cgroup_count; at++) {
        int count = walk_below(plan->cgroups[at].path, conmon, 0, count_in, NULL);
        most = count > most ? count : most;
    }
    return most;
}

/* A file that is one number, or the number behind `key`; -1 when there is none. */
static int64_t number_in(const char *dir, const char *file, const char *key)
{
    char path[4200], text[4096];
    if (dir == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    if (read_text(path, text, sizeof text) < 0)
        return -1;
    if (key == NULL)
        return strtoll(text, NULL, 10);
    size_t length = strlen(key);
    for (char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == ' ')
            return strtoll(line + length, NULL, 10);
    }
    return -1;
}

/* v1 counts a kill only in the group it happened in. */
static int ooms_in(const char *dir, void *unused)
{
    (void)unused;
    int64_t kills = number_in(dir, "memory.oom_control", "oom_kill");
    return kills > 0 ? (int)kills : 0;
}

struct usage cgroup_usage(const struct plan *plan)
{
    const char *memory = dir_of(plan, "memory"), *unified = dir_of(plan, "unified");
    struct usage usage = {
        .oom_kills = number_in(memory, "memory.oom_control", "oom_kill"),
        .peak_memory_bytes = number_in(memory, "memory.max_usage_in_bytes", NULL),
        .cpu_ns = number_in(dir_of(plan, "cpuacct"), "cpuacct.usage", NULL),
    };
    if (usage.oom_kills >= 0)
        usage.oom_kills += walk_below(memory, true, 0, ooms_in, NULL);
    if (usage.oom_kills < 0)
        usage.oom_kills = number_in(unified, "memory.events", "oom_kill");
    if (usage.peak_memory_bytes < 0)
        usage.peak_memory_bytes = number_in(unified, "memory.peak", NULL);
    if (usage.cpu_ns < 0) {
        int64_t usec = number_in(unified, "cpu.stat", "usage_usec");
        usage.cpu_ns = usec < 0 ? -1 : usec * 1000;
    }
    return usage;
}
