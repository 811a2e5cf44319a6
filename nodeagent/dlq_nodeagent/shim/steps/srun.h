/* The state of one srun, between its three files: the step, its launch, and its bytes. */
#ifndef DLQ_SRUN_H
#define DLQ_SRUN_H

#include "steps.h"

struct node {
    int fd, index; /* fd: -1 when its tasks are over */
    struct part part;
    struct bytes heard;
    struct usage usage;
    uint64_t sent, taken; /* bytes of input */
};

struct rank {
    int node, out, err; /* files, or 1 and 2 */
    bool over, middle;  /* middle: of a line */
    char **words;       /* of --multi-prog; NULL: those of all */
};

struct srun {
    struct options options;
    struct who who;
    struct grant grant;
    struct node nodes[MOST_NODES];
    struct rank ranks[MOST_TASKS];
    int rank_count, left; /* of the step; of those that run */
    int control, input;   /* rank 0; -1: it is gone */
};

extern struct srun srun;

_Noreturn void srun_fail(const char *words);
const char *srun_host(int node);

/* ---- launch.c: places, files and variables of the tasks ---- */

void launch_place(void);
void launch_open_files(void);
void launch_all(void);

/* ---- programs.c: the file of --multi-prog ---- */

void programs_read(const char *path);

/* ---- ends.c: ends of tasks, and of the step ---- */

void srun_say(const char *format, const char *words);
void srun_name_tasks(const int *tasks, int count, char *out, size_t size);
void srun_name_step(char *out, size_t size);
void srun_send_to_all(enum frame_type type, const void *data, size_t length);
void srun_signal_all(uint32_t number);
/* TERM, and KILL later; or KILL at once. */
void srun_abort_step(bool at_once);
/* The time limit begins. */
void ends_begin(void);
void ends_take(int rank, int status);
/* Milliseconds until ends_turn has something to do, or -1. */
int ends_pause(void);
void ends_turn(void);
/* The last word of srun about its step; returns its exit code. */
int ends_whole(void);

/* ---- pump.c: until the last task is over; returns the exit code ---- */

int pump_all(void);

#endif
