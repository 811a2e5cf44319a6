/* dlq-steps: one program with several names. `batch` is the main process of a rank with compat =
 * slurm, `srun` starts a step from inside a job, and `sattach` joins one. See README.md. */
#ifndef DLQ_STEPS_H
#define DLQ_STEPS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/resource.h>
#include <sys/types.h>

#define MOST_NODES 512
#define MOST_TASKS 4096
#define MOST_GPUS 64
#define KEY_BYTES 32
#define PIECE_BYTES (64 << 10)
#define MOST_FRAME_BYTES (4 << 20) /* a launch: argv and environment */
#define MOST_NAME 64

/* ---- wire.c: frames, records, lists ---- */

enum frame_type {
    /* a request, the first frame of a connection */
    ASK_WHO = 1, /* unix socket only: the job, its nodes and key */
    ASK_STEP,    /* rank 0 only: a step, as `struct wish` */
    ASK_LAUNCH,  /* tasks on this node, as records */
    ASK_ATTACH,  /* rank 0 only: the step's number as text */
    ASK_SIGNAL,  /* rank 0 only: "STEP NUMBER", "batch NUMBER", "full NUMBER"; 0 ends a step */
    ASK_HOLD,    /* rank 0 only: tell me when the batch script has ended */
    /* answers */
    SAY_WHO = 16,
    SAY_WAIT,    /* text */
    SAY_GRANT,   /* `struct grant` */
    SAY_REFUSED, /* text */
    SAY_STARTED, /* of a task: its pid */
    SAY_OUT,
    SAY_ERR,
    SAY_EXIT,  /* of a task: `struct task_end` */
    SAY_USAGE, /* `struct usage` of this node's tasks so far */
    SAY_TAKEN, /* stdin: another so many bytes were taken, as uint32_t */
    SAY_DONE,  /* nothing of the step is left on this node */
    /* words to tasks */
    TELL_IN = 32, /* to `task`, or ALL_TASKS */
    TELL_IN_END,
    TELL_SIGNAL, /* uint32_t */
    TELL_SIZE,   /* two uint16_t: columns, rows */
    /* between srun and rank 0, about its step */
    STEP_SIGNAL, /* to srun: uint32_t */
    STEP_TAP,    /* to srun: somebody listens (1) or nobody any more (0), as uint32_t */
    STEP_IN,     /* to srun: input of the one who listens */
    STEP_USAGE,  /* from srun: `struct usage` of all nodes */
    STEP_OVER,   /* from srun: uint32_t, its exit code; to a holder: that of the batch script */
};

#define ALL_TASKS 0xffff

struct frame {
    uint32_t length;
    uint16_t type, task;
};

struct bytes {
    char *data;
    size_t used, size;
};

void bytes_add(struct bytes *bytes, const void *data, size_t length);
/* One record: KEY=VALUE and a NUL. */
void bytes_record(struct bytes *bytes, const char *key, const char *value);
void bytes_number(struct bytes *bytes, const char *key, long long value);
/* Takes `length` bytes from the front. */
void bytes_drop(struct bytes *bytes, size_t length);
void bytes_free(struct bytes *bytes);
/* Output with a label before each line; `middle`: whether the last one has not ended. */
void bytes_labelled(struct bytes *bytes, const char *label, bool *middle, const char *data,
                    size_t length);
void bytes_frame(struct bytes *bytes, enum frame_type type, unsigned task, const void *data,
                 size_t length);

/* Blocking, whatever the descriptor's mode; false: the other side is gone. */
bool send_frame(int fd, enum frame_type type, unsigned task, const void *data, size_t length);
/* Blocking; the payload gets one more NUL and belongs to the caller. False: gone, late or too
 * large. */
bool receive_frame(int fd, int timeout_ms, struct frame *frame, char **payload);
bool send_all(int fd, const void *data, size_t length);
/* Sends the rest, and waits until the other side has closed. */
void leave_line(int fd);
bool receive_all(int fd, void *data, size_t length, int timeout_ms);
/* Reads what is there. 1: something, 0: nothing now, -1: the end. */
int bytes_read(struct bytes *bytes, int fd, size_t most);
/* A whole frame at the front: 1 and its payload, 0: not yet, -1: too large. */
int bytes_next(struct bytes *bytes, struct frame *frame, char **payload, uint32_t most);

/* Walks records; NULL at the end. Splits at the first '='. */
char *record_next(char **at, const char *end, char **value);

bool parse_long(const char *text, long most, long *out);
/* Host list with brackets (`n[1-3,7],m`) into names; -1: malformed or too many. */
int hosts_expand(const char *text, char names[][MOST_NAME], int most);
int64_t now_ms(void);
void reset_signals(void);
/* Open files of this process as many as it may have; those of a program that it starts, as before.
 */
void raise_files(void);
void restore_files(void);
/* The soft limit before it was raised. */
rlim_t files_before(void);
void *must_have(void *memory);

/* ---- hash.c ---- */

void hmac_sha256(const void *key, size_t key_length, const void *data, size_t length,
                 unsigned char out[32]);
bool same_bytes(const void *left, const void *right, size_t length);

/* ---- find.c, line.c: the two kinds of connection ---- */

struct peer {
    char name[MOST_NAME], address[64];
    int port, gpus, cpus; /* cpus: 0 when they are not counted */
};

struct who {
    int rank, node_count;
    char job[24], job_dir[4096], user[64];
    bool has_key;
    unsigned char key[KEY_BYTES];
    struct peer peers[MOST_NODES];
    char **environment; /* the rank's own variables */
};

/* The socket of the rank that this process is part of; -1 with words when there is none. */
int dial_own(const char *wanted_job, char *words, size_t size);
/* Asks that socket about the job, and closes it. */
bool hear_who(int fd, struct who *who);
/* Outside of `job` (NULL: any): the program of this name that asks the master. */
_Noreturn void become_slow(const char *name, const char *job, char **argv, int argc);
int dial_unix(const char *directory);
int dial_once(const struct who *who, int node);
/* Waits for a node that still starts. */
int dial_peer(const struct who *who, int node, char *words, size_t size);
int listen_unix(const char *directory);
int listen_tcp(const char *address, int port);
/* The server's part of a new connection; false: not one of ours. */
bool admit_unix(int fd);
bool admit_tcp(int fd, const struct who *who);
bool who_parse(struct who *who, char *records, size_t length);
void who_write(const struct who *who, struct bytes *bytes);

/* ---- layout.c: the tasks of each node, and its room; pure ---- */

enum { SHARES = 1, EXACT = 2, OVERCOMMITS = 4, NO_GPUS = 8 };

struct wish {
    uint32_t nodes_min, nodes_max, tasks, tasks_per_node, cpus_per_task, flags;
    uint32_t gpus_per_task, gpus_per_node, gpus, plane; /* 0: not said */
    uint32_t candidate_count;
    uint16_t candidates[MOST_NODES];
    char name[MOST_NAME], command[MOST_NAME], nodelist[256];
};

struct part {
    uint16_t node, tasks;
    uint32_t cpus;
    uint64_t gpus; /* bits of the job's GPUs on that node */
};

struct grant {
    uint32_t step, count;
    struct part parts[MOST_NODES];
};

struct room {
    int cpus; /* 0: not known, and not counted */
    int gpus;
    int used_cpus, whole; /* by steps that share nothing */
    uint64_t used_gpus;
};

enum fit { FITS, BUSY, NEVER };

/* Fills in the parts; `why` for NEVER. */
enum fit layout_fit(const struct wish *wish, const struct room *rooms, int node_count,
                    struct grant *grant, const char **why);
/* The names of its nodes, with commas. */
void grant_nodes(const struct who *who, const struct grant *grant, char *out, size_t size);
void layout_take(const struct wish *wish, const struct grant *grant, struct room *rooms, int sign);

/* ---- records.c: the steps of this attempt, told to the agent by a file ---- */

struct usage {
    uint64_t rss_bytes, cpu_us;
};

static inline struct usage usage_of(const struct rusage *used)
{
    int64_t us = (int64_t)used->ru_utime.tv_usec + used->ru_stime.tv_usec;
    us += 1000000 * ((int64_t)used->ru_utime.tv_sec + used->ru_stime.tv_sec);
    return (struct usage){(uint64_t)used->ru_maxrss * 1024, (uint64_t)us};
}

struct task_end {
    uint32_t status; /* of wait */
    struct usage usage;
};

struct step {
    bool used, running;
    uint32_t number, tasks, nodes;
    int code; /* its srun's */
    char name[MOST_NAME], nodelist[1024];
    int64_t start_ms, end_ms; /* UTC */
    struct usage usage;
};

struct step *records_begin(const struct wish *wish, const struct grant *grant,
                           const struct who *who);
void records_end(struct step *step, int code);
/* The batch script has ended, and has used so much. */
void records_script(const struct rusage *used);
void records_touch(void);
/* Writes the file if something has changed, not too often; returns ms until it wants to, or -1. */
int records_write(const char *directory, bool now);

/* ---- the programs ---- */

int batch_main(int argc, char **argv);
int srun_main(int argc, char **argv);
int sattach_main(int argc, char **argv);
int scancel_main(int argc, char **argv);
/* Serves ASK_LAUNCH on a connection, until everything has ended. */
_Noreturn void tasks_serve(int fd, const struct who *who, char *records, size_t length);

/* ---- kids.c: a process for each connection, and what it and the main process say ---- */

enum message_kind {
    /* from a kid */
    KID_ADMITTED,
    KID_WISH,
    KID_ATTACH, /* with its connection */
    KID_HOLD,
    KID_SIGNAL, /* `text`: a step, "batch" or "full"; `number`: the signal, or 0 */
    KID_USAGE,
    KID_OVER,
    /* to a kid */
    TO_GRANT,
    TO_WAIT,
    TO_REFUSE,
    TO_SIGNAL,
    TO_TAP, /* with a connection */
    TO_BYE,
};

struct message {
    uint32_t kind, number;
    union {
        struct wish wish;
        struct grant grant;
        struct usage usage;
        char text[256];
    };
};

/* `passed`: a descriptor that goes along, or -1. */
bool message_send(int sock, const struct message *message, int passed);
/* 1: one, 0: none now, -1: the end. */
int message_receive(int sock, struct message *message, int *passed);

void kids_begin(struct who *who, int unix_fd, int tcp_fd);
/* Their descriptors for poll, from `fds` on; their count. */
int kids_poll(struct pollfd *fds, int most);
void kids_turn(const struct pollfd *fds, int count);
void kids_reaped(pid_t pid);
/* Takes the messages that are there already. */
void kids_hear(void);
/* The batch script of this rank; false: there is none. */
bool batch_signal(int number);
/* To every srun of this job; how many there are. */
int kids_signal(int number);
/* Steps that run. */
int kids_running(void);
/* Refuses those that wait, and all that come. */
void kids_close(void);
/* The batch script has ended: tells those that hold the other nodes, and waits a moment for them.
 */
void kids_bye(int code);

/* In a kid: an srun's connection and its step, until one of them ends. */
_Noreturn void control_serve(int fd, int sock, const char *payload, size_t length);
_Noreturn void hold_serve(int fd, int sock);
_Noreturn void signal_serve(int fd, int sock, const char *payload);
_Noreturn void attach_serve(int fd, int sock, const char *payload);

/* ---- options.c: those of srun ---- */

struct options {
    int tasks, nodes_min, nodes_max, cpus_per_task, tasks_per_node, relative;
    int gpus, gpus_per_task, gpus_per_node, wait_s, plane;
    long time_s;     /* 0: no limit */
    unsigned limits; /* those of srun that tasks get, as bits of their numbers */
    bool no_gpus;
    bool tasks_said, nodes_said, exact, overlap, overcommit, label, unbuffered, pty, multi_prog,
        kill_on_bad_exit;
    bool append, mode_said, cyclic, block, quiet, quit_on_interrupt, exclusive, test_only;
    const char *nodelist, *exclude, *job, *chdir, *output, *error, *input, *export, *name,
        *gpu_bind;
    char **command;
};

/* 0: go on; else: the exit code is one less (help, an error that was said). */
int options_read(int argc, char **argv, struct options *options);

#endif
