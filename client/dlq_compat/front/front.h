/* The parts of the fast front share this. README.md beside this file says how it works. */

#ifndef DLQ_FRONT_H
#define DLQ_FRONT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define FRONT_MAGIC 0x51464c44u /* "DLFQ" */
#define FRONT_VERSION 2u
#define FRONT_LIMITS 16
#define FRONT_PLAIN "dlq-python" /* beside `dlq`: the same command, by an interpreter of its own */

/* One call of `dlq` or of one of Slurm's commands, and the places that belong to it. */
struct front_call {
    const char *name;         /* dlq, sbatch, squeue, ... */
    char bin[PATH_MAX];       /* the directory of this program */
    char dlq[PATH_MAX];       /* the `dlq` that answers */
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

/* words.c */
bool front_is_dlq(const struct front_call *call);

/* Whether a server may run the command. Long and interactive ones run by themselves. */
bool front_is_served(const struct front_call *call, char **argv);

/* Whether the command may read the terminal of its caller. */
bool front_reads_terminal(const struct front_call *call);

/* From now on signals for us reach the process that runs the command. */
void front_pass_signals(const struct front_call *call, char **argv, int fd, pid_t pid);

/* While it is being woken after a stop: true, and errno EAGAIN, when no answer has come yet. */
bool front_is_waking(int fd);

/* After the answer: until nobody there reads our terminal any more. */
void front_await_end(int fd);

/* The command's process is gone without a word: by the signal that we passed on, or by another. */
int front_end_by_signal(const struct front_call *call);

/* talk.c: true when a server ran the command; *code is then the exit code. */
bool front_talk(const struct front_call *call, int argc, char **argv, char **envp, int *code);

#endif
