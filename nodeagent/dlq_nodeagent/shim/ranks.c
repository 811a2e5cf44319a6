/* The training processes of a launcher such as torchrun. They have LOCAL_RANK in the environment
 * they were started with, and are reached from the main process through processes without it.
 * Children of such a process, a DataLoader's workers for one, inherit the variable and are not
 * looked at. Processes that left the tree by daemonising are not reached. */
#include "shim.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char variable[] = "LOCAL_RANK=";

static bool is_rank(pid_t pid)
{
    char path[64], *record = NULL;
    size_t room = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    FILE *records = fopen(path, "re");
    while (records != NULL && !found && getdelim(&record, &room, '\0', records) > 0)
        found = strncmp(record, variable, sizeof variable - 1) == 0;
    if (records != NULL)
        fclose(records);
    free(record);
    return found;
}

/* Fills a new list with the ranks below `main`; returns how many. */
static size_t find_ranks(pid_t main, pid_t **out)
{
    struct process *all = NULL;
    size_t total = tree_list(&all), launchers = 1, count = 0;
    pid_t *launcher = calloc(total + 1, sizeof *launcher), *ranks = calloc(total + 1, sizeof *ranks);
    if (launcher != NULL && ranks != NULL && !is_rank(main)) {
        launcher[0] = main;
        for (size_t at = 0; at < launchers; at++)
            for (size_t each = 0; each < total; each++) {
                if (all[each].parent != launcher[at] || all[each].ours)
                    continue;
                all[each].ours = true;
                if (is_rank(all[each].pid))
                    ranks[count++] = all[each].pid;
                else
                    launcher[launchers++] = all[each].pid;
            }
    }
    free(launcher);
    free(all);
    *out = ranks;
    return count;
}

static bool holds(const pid_t *list, size_t count, pid_t pid)
{
    for (size_t at = 0; at < count; at++)
        if (list[at] == pid)
            return true;
    return false;
}

static int send_by(int pidfd, int number)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0);
}

/* Looks twice. If a pid is a rank's even after its pidfd was opened, the pidfd is that rank's, or
 * of a process that has ended. */
static size_t tell(pid_t main, int number)
{
    pid_t *first = NULL, *again = NULL;
    size_t count = find_ranks(main, &first), told = 0;
    int *pidfds = calloc(count + 1, sizeof *pidfds);
    for (size_t at = 0; pidfds != NULL && at < count; at++)
        pidfds[at] = (int)syscall(SYS_pidfd_open, first[at], 0);
    size_t still = find_ranks(main, &again);
    for (size_t at = 0; pidfds != NULL && at < count; at++)
        if (pidfds[at] >= 0 && holds(again, still, first[at]) && send_by(pidfds[at], number) == 0)
            told++;
    return told;
}

void ranks_signal(pid_t main, int main_fd, int number)
{
    pid_t helper = fork();
    if (helper > 0)
        return;
    if (helper < 0 || tell(main, number) == 0)
        send_by(main_fd, number);
    if (helper == 0)
        _exit(0);
}
