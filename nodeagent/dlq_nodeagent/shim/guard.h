/* Shared by guard.c and boxed.c: one rank that is being watched. */
#ifndef DLQ_GUARD_H
#define DLQ_GUARD_H

#include "shim.h"

#include <errno.h>
#include <sys/wait.h>

#define KILL_FIRST_NS (10 * NS_PER_MS) /* between two rounds of SIGKILL, growing to ... */
#define KILL_LAST_NS (500 * NS_PER_MS)
#define UNKILLABLE_NS (30 * NS_PER_S) /* after that the record names the remaining processes */
#define BOXED_UNKILLABLE_NS (45 * NS_PER_S) /* a container's monitor has time to tidy up first */

struct guard {
    int dir_fd;
    const struct plan *plan;
    const char *boot_id;
    struct child child;
    struct container box; /* if plan->podman says so */
    struct logring ring;
    struct ctl ctl;
    int signal_fd, timer_fd;
    bool main_alive, childless;
    bool gone; /* nothing of the job is left */
    struct lease lease;
    int64_t notice_until; /* the time that the hold's notice has left the job; 0: none was given */
    int last_signal;
    uint64_t early_signals;
    int64_t window_end, window_left;
    int64_t ending_since, next_kill, kill_every; /* 0: the job may live */
    struct ending ending;
    char words[320]; /* the text of ending.start_error */
};

/* ---- guard.c ---- */

/* The first reason stands; a main process that had already left by itself has "exited". */
void guard_end(struct guard *guard, const char *why);
void guard_reap(struct guard *guard);
void guard_deliver_early_signals(struct guard *guard);
void guard_log_start_error(struct guard *guard);
/* Returns false when there is nothing (more) to read now. */
bool guard_pump(struct guard *guard);
void guard_slow_down(struct guard *guard);

/* ---- boxed.c: the differences of a rank that is a container ---- */

bool boxed(const struct guard *guard);
/* NULL, or the stage that failed. */
const char *boxed_set_up(struct guard *guard);
/* After dlq-init spoke, process 1 ended, or a child of ours did. */
void boxed_look(struct guard *guard);
/* The instant (CLOCK_BOOTTIME) at which to look again in any case. */
int64_t boxed_next(const struct guard *guard);
void boxed_child_ended(struct guard *guard, pid_t pid, int status);
void boxed_kill_round(struct guard *guard, int64_t now);
bool boxed_empty(const struct guard *guard);
void boxed_keep_usage(struct guard *guard);
void boxed_keep_words(struct guard *guard, const char *bytes, size_t length);
/* Fills in the record's fields for a container that ended, or was ended, without a word. */
void boxed_write_ending(struct guard *guard);

#endif
