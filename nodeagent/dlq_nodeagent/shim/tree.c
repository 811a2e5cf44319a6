/* All descendants of the shim. It is their subreaper: a daemonised process comes back to it. The
 * tree therefore holds every process of the job even where there are no control groups. */
#include "shim.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_parent(const char *name, struct process *process)
{
    char path[300], text[1024], state;
    int parent;
    snprintf(path, sizeof path, "/proc/%s/stat", name);
    if (read_text(path, text, sizeof text) < 0)
        return false;
    const char *behind_name = strrchr(text, ')');
    if (behind_name == NULL || sscanf(behind_name + 1, " %c %d", &state, &parent) != 2)
        return false;
    *process = (struct process){.pid = atoi(name), .parent = parent};
    return true;
}

size_t tree_list(struct process **out)
{
    size_t count = 0, room = 0;
    struct process *all = NULL;
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        if (count == room) {
            room = room == 0 ? 256 : 2 * room;
            struct process *more = realloc(all, room * sizeof *all);
            if (more == NULL)
                break;
            all = more;
        }
        if (read_parent(entry->d_name, &all[count]))
            count++;
    }
    if (proc != NULL)
        closedir(proc);
    *out = all;
    return count;
}

static int by_pid(const void *left, const void *right)
{
    pid_t a = ((const struct process *)left)->pid, b = ((const struct process *)right)->pid;
    return (a > b) - (a < b);
}

/* Marks children of marked processes until nothing new is found. Mostly one pass, since a child's
 * pid is mostly greater than its parent's. */
static void mark(struct process *all, size_t count)
{
    bool grew = count > 0;
    qsort(all, count, sizeof *all, by_pid);
    while (grew) {
        grew = false;
        for (size_t at = 0; at < count; at++) {
            struct process key = {.pid = all[at].parent}, *parent;
            if (all[at].ours)
                continue;
            parent = bsearch(&key, all, count, sizeof *all, by_pid);
            if (all[at].parent == getpid() || (parent != NULL && parent->ours))
                grew = all[at].ours = true;
        }
    }
}

int tree_kill(void)
{
    struct process *all = NULL;
    int found = 0;
    size_t count = tree_list(&all);
    mark(all, count);
    for (size_t at = 0; at < count; at++) {
        if (!all[at].ours)
            continue;
        found++;
        kill(all[at].pid, SIGKILL);
    }
    free(all);
    return found;
}
