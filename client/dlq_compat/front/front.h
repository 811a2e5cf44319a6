/* The parts of the fast front share this. README.md beside this file says how it works. */

#ifndef DLQ_FRONT_H
#define DLQ_FRONT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define FRONT_MAGIC 0x51464c44u /* "DLFQ" */
#define FRONT_VERSION 1u
#define FRONT_LIMITS 16

/* One call of one of Slurm's commands, and the places that belong to it. */
struct front_call {
    const char *name;      /* sbatch, squeue, ... */
    char installed[PATH_MAX]; /* the directory that `dlq slurm install` wrote */
    char dlq[PATH_MAX];    /* the `dlq` that answers */
    char run_dir[PATH_MAX];
    char key[33];          /* names a server that stands where the caller stands */
};

/* key.c: things that a running server cannot take over from its caller make the key. */
bool front_key(struct front_call *call);

/* place.c */
bool front_find_dlq(struct front_call *call);
bool front_find_run_dir(struct front_call *call);

/* serve.c: start a server in the background, for the calls after this one. */
void front_start_server(const struct front_call *call);

/* talk.c: true when a server ran the command; *code is then the exit code. */
bool front_talk(const struct front_call *call, int argc, char **argv, char **envp, int *code);

#endif
