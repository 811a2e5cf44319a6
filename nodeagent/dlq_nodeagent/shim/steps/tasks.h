/* The launch of a step on one node, between the files of its guard. */
#ifndef DLQ_TASKS_H
#define DLQ_TASKS_H

#include "steps.h"

struct launch {
    const struct who *who;
    const char *directory, *gpus, *gpu_bind, *host, *limits; /* gpus, limits: hexadecimal */
    char *ranks_here, **environment;                /* that of srun */
    size_t environment_count;
    long step, gpus_per_task, columns, rows, mask;
    bool terminal;
};

extern struct launch launch;

/* ---- variables.c: in the task, before its program ---- */

void set_environment(int rank, int local);

/* ---- below.c: processes below us ---- */

void each_below(void (*visit)(int pid, void *what), void *what);
/* A visit that adds to a `struct usage`. */
void add_usage(int pid, void *what);

#endif
