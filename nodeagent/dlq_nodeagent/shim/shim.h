/* dlq-shim: guards one rank of one attempt. README.md in this directory is the contract. */
#ifndef DLQ_SHIM_H
#define DLQ_SHIM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "soft_limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NS_PER_S 1000000000ll
#define NS_PER_MS 1000000ll
#define MAX_CGROUPS 24
#define MAX_GROUPS 256
#define MAX_MOUNTS 64

/* Where users_check looks when the agent's state directory has no users.map. */
#ifndef DLQ_USERS_MAP
#define DLQ_USERS_MAP "/etc/dlq/users.map"
#endif

/* ---- plan.c: the plan of a rank, as the agent wrote it ---- */

struct cgroup_dir {
    const char *kind; /* memory, pids, cpu, cpuacct, freezer, ... (v1) or unified (v2) */
    const char *path;
};

struct plan {
    char *text; /* the file; every string below points into it */
    const char *job_id;
    int64_t attempt, epoch, node_rank;
    char **argv, **env;
    const char *cwd, *contact;
    uid_t uid;
    gid_t gid, groups[MAX_GROUPS];
    size_t group_count;
    bool submitter, allow_root;
    mode_t mask;
    struct soft_limits limits;
    char **limit_texts; /* the same, as they were written */
    struct cgroup_dir cgroups[MAX_CGROUPS];
    size_t cgroup_count;
    int64_t hold_ns, grace_ns, term_ns;
    int signal;
    bool to_ranks; /* signals are for the ranks of a launcher, where there are any */
    int64_t log_head_bytes, log_ring_bytes, log_bytes_per_s;
    /* A container, if `podman` is not empty; argv, env and cwd are then those inside of it. */
    char **podman, **podman_env, **podman_rm;
    const char *image_cwd; /* instead of cwd, if not NULL: not to enter it is no error */
    const char *mounts[MAX_MOUNTS], *mount_roots[MAX_MOUNTS];
    size_t mount_count, mount_root_count;
};

/* Opens, locks and reads ATTEMPT_DIR/plan. Returns the locked descriptor; keep it open, because the
 * lock says that the shim lives. Returns -1 when another shim holds it or the file is not to be
 * trusted. */
int plan_open(int dir_fd);
/* The same without the lock, for a process that only wants to know the shim's plan. */
int plan_look(int dir_fd);
/* Returns NULL, or the fault of the plan. */
const char *plan_read(int plan_fd, struct plan *plan);
/* A decimal number without sign, at most `max`; false for anything else. */
bool parse_number(const char *text, int64_t max, int64_t *out);

/* ---- users.c: may this plan have these ids? ---- */

/* Returns NULL, or why uid, gid or groups are refused. */
const char *users_check(int dir_fd, const struct plan *plan);

/* ---- child.c: the rank's main process ---- */

struct start_error {
    char stage[16]; /* empty: no error */
    int error;
};

struct child {
    pid_t pid;     /* the main process; of a container, the client that makes it */
    int status_fd; /* end of file: exec'ed; a struct start_error: it never will */
    int log_fd;    /* stdout and stderr of the job */
};

/* Forks the main process, which joins its cgroups, drops its privileges and execs. */
int child_start(const struct plan *plan, struct child *child);
/* In a forked child of `guard` that has joined its groups and has its descriptors: drops all rights
 * but the job's, and execs. Reports a failure on status_fd. Never returns. */
void child_become(const struct plan *plan, pid_t guard, int status_fd);
/* Says that a stage failed (errno says why), and ends the process. */
void child_fail(int status_fd, const char *stage);
/* For a process that is about to exec: default signal dispositions, nothing blocked. */
void child_reset_signals(void);
/* The system's words on a failed start, and the name of the file behind it. */
void child_words(const struct plan *plan, const struct start_error *error, char *words, size_t size);

/* ---- cgroup.c ---- */

struct usage {
    int64_t oom_kills, peak_memory_bytes, cpu_ns; /* -1: this node cannot tell */
};

int cgroup_join(const struct plan *plan);
void cgroup_kill(const struct plan *plan);
int cgroup_count(const struct plan *plan);
struct usage cgroup_usage(const struct plan *plan);
/* The same for the groups below: a container and, with `conmon`, its monitor. */
void cgroup_kill_below(const struct plan *plan, bool conmon);
int cgroup_count_below(const struct plan *plan, bool conmon);

/* ---- tree.c: processes below the shim, in any session or cgroup ---- */

struct process {
    pid_t pid, parent;
    bool ours; /* for readers of the process list */
};

/* A new list of all processes of the host (free it), in no order; returns their number. */
size_t tree_list(struct process **out);
/* SIGKILLs every descendant; returns how many were found. */
int tree_kill(void);

/* ---- ranks.c: the processes of a launcher such as torchrun ---- */

/* Signals the rank processes below the main process, or by `main_fd` that itself if there are none.
 * Done by a child: reading about a process may block, and the guard must not. */
void ranks_signal(pid_t main, int main_fd, int number);

/* ---- mounts.c: directories and files of the host inside a container ---- */

/* Opens every source with the user's rights and pins it at podman/mN of the attempt's directory, in
 * a mount namespace of our own. Podman therefore mounts the checked directory even if its path
 * changes, and the pin vanishes with us. NULL, or the fault (errno says more) of mount `*at`, or of
 * this host if that is mount_count. */
const char *mounts_pin(int dir_fd, const struct plan *plan, size_t *at);

/* ---- container.c: the rank's main process inside a container ---- */

struct container {
    int socket; /* from dlq-init; -1: this rank is no container */
    pid_t client, init, main, sweeper;
    int init_fd, main_fd; /* pidfds, -1 when unknown or over */
    bool client_done, execed, swept;
    int client_status, sweeps;
    bool usage_kept;     /* it was read while the container's groups were there */
    char last_line[256]; /* of the output before the job's program ran: podman's words */
};

/* A sealed memory file with the words, environment and directory of a plan, for dlq-init; -1. */
int container_job(const struct plan *plan);
/* Starts `podman run`. Returns NULL, or the stage that failed (errno says why). */
const char *container_start(int dir_fd, const struct plan *plan, struct container *box,
                            struct child *child);
/* Starts the removal of the container and of its files in podman's store. */
void container_sweep(const struct plan *plan, struct container *box);
/* One message of dlq-init; false: nothing more now. Learns its processes on the way. */
struct init_message;
bool container_receive(struct container *box, struct init_message *message);
void container_signal(const struct container *box, int number);

/* ---- logring.c ---- */

struct logring {
    int dir_fd, head_fd, ring_fd;
    int64_t head_bytes, ring_bytes;
    int64_t end, dropped;
};

int logring_open(struct logring *ring, int dir_fd, const struct plan *plan);
void logring_append(struct logring *ring, const char *data, size_t length);

/* ---- contact.c ---- */

/* CLOCK_BOOTTIME instant of the agent's last contact with the master, or -1 when the file does not
 * say (missing, torn, or of another boot). */
int64_t contact_read(const char *path, const char *boot_id);

/* ---- lease.c: the instants of notice, pressure and kill ---- */

struct countdown {
    int64_t notice_at, term_at, kill_at; /* CLOCK_BOOTTIME ns; kill_at 0: not armed */
    bool noticed, termed;
};

struct lease {
    const struct plan *plan;
    const char *boot_id;
    struct countdown hold, stop;
    int64_t contact_ns, hold_ns;
};

enum due {
    DUE_NOTHING,
    DUE_HOLD_NOTICE,
    DUE_HOLD_WITHDRAWN, /* contact came back after the notice */
    DUE_TERM,
    DUE_STOP_KILL,
    DUE_HOLD_KILL
};

/* -1: the agent has not been in contact in this boot, so nothing may run. */
int lease_start(struct lease *lease, const struct plan *plan, const char *boot_id, int64_t now);
void lease_hold(struct lease *lease, int64_t hold_ns, int64_t now);
void lease_stop(struct lease *lease, int64_t grace_ns, int64_t term_ns, int64_t now);
/* The instant at which lease_due may have something to say; INT64_MAX: never. */
int64_t lease_next(const struct lease *lease);
/* One thing that is due now; call again until DUE_NOTHING. Each is said once, a kill always. */
enum due lease_due(struct lease *lease, int64_t now);

/* ---- ctl.c: commands from the agent ---- */

enum command_kind { COMMAND_SIGNAL, COMMAND_STOP, COMMAND_KILL, COMMAND_HOLD };

struct command {
    enum command_kind kind;
    int signal;
    int64_t grace_ns, term_ns, hold_ns;
};

struct ctl {
    int fd;
    char buffer[4096];
    size_t used;
    int64_t highest_epoch, attempt;
    int64_t refused;
};

int ctl_open(struct ctl *ctl, int dir_fd, const struct plan *plan);
/* Takes the waiting commands and hands every good one to `obey`; the rest is counted. */
void ctl_receive(struct ctl *ctl, void (*obey)(void *who, const struct command *), void *who);

/* ---- record.c: the files that outlive the shim ---- */

struct ending {
    const char *why; /* exited, killed, stopped, hold_expired, start_error */
    bool reaped;
    int wait_status;
    struct start_error start_error;
    const char *start_error_text;
    const char *noticed; /* NULL, "stop" or "hold_expired" */
    int64_t noticed_boottime_ns;
    struct usage usage;
    int64_t started_boottime_ns, started_wall_ns;
    int64_t log_bytes, dropped_log_bytes, refused_commands, remaining_pids;
};

/* Reserves the room of the exit record, so that a full disk cannot swallow it later. */
void record_reserve(int dir_fd);
/* Told of a start record, so that the agent need not look again and again; -1: nothing is. Without a
 * reader, or with one that does not read, the word is lost. */
extern int news_fd;
void record_started(int dir_fd, const struct plan *plan, pid_t main_pid, const char *boot_id,
                    int64_t boottime_ns, int64_t wall_ns);
/* Tries until it is on the disk. */
void record_exit(int dir_fd, const struct plan *plan, const struct ending *ending,
                 const char *boot_id);
int record_notice(int dir_fd, const struct plan *plan, int64_t left_ns);

/* ---- guard.c: from the start of the main process to the exit record ---- */

/* Runs the plan and returns when the exit record is on the disk. */
void guard_run(int dir_fd, const struct plan *plan, const char *boot_id);

/* ---- exec.c: a command beside the main process ---- */

/* `dlq-shim exec ATTEMPT_DIR TERMINAL TERM WORDS_OF_PODMAN ...`; see exec.c. Returns an exit code. */
int exec_main(int argc, char **argv);

/* ---- main.c, launcher.c ---- */

/* Both return an exit code. */
int shim_main(const char *attempt_dir);
int launcher_main(void);

/* ---- base.c ---- */

int64_t clock_ns(int clock_id);
/* Reads a small file whole as text; returns its length or -1. */
ssize_t read_text(const char *path, char *buffer, size_t size);
int write_text(const char *path, const char *text);
void read_boot_id(char id[40]);
int64_t start_ticks(pid_t pid);

#endif
