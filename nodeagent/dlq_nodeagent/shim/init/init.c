/* dlq-init: process 1 of a container. Starts the job's program, forwards signals, reaps, and tells
 * the shim how the program really ended - which exit codes of containers cannot say.
 *
 * Descriptor 3 is the socket to the shim, 4 a memory file with the job: NUL-terminated records
 * `umask=` (octal), `limit=NAME:NUMBER`, `cwd=` (or `try=`: not to enter it is no error),
 * `env=NAME=VALUE`, `arg=`, and `end`. Environment and arguments travel so, because anything given to the container engine shows in
 * its command line and its database. Statically linked: it must run in any image. When the shim is
 * gone (end of file on 3) nothing guards the job any more, so everything in the container is killed.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../soft_limits.h"
#include "forward.h"
#include "message.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHIM = 3, JOB = 4, CANNOT = 125, NOT_RUN = 126, NOT_FOUND = 127, KILLED = 137 };
/* As `dlq-init exec` it is not process 1 but becomes a command beside the job's program. Its words,
 * environment and directory come in the same form, by descriptor 3. */
enum { COMMAND = 3 };

struct job {
    const char *cwd, *wish;
    mode_t mask;
    struct soft_limits limits;
    char **argv, **env;
};

static int tell(enum init_kind kind, int value, const char *stage)
{
    struct init_message message = {.kind = kind, .value = value};
    snprintf(message.stage, sizeof message.stage, "%s", stage);
    return send(SHIM, &message, sizeof message, MSG_NOSIGNAL) == (ssize_t)sizeof message ? 0 : -1;
}

static char *slurp(int fd, size_t *length)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || info.st_size <= 0)
        return NULL;
    char *text = calloc(1, (size_t)info.st_size + 1);
    *length = (size_t)info.st_size;
    for (size_t used = 0; text != NULL && used < *length;) {
        ssize_t got = pread(fd, text + used, *length - used, (off_t)used);
        if (got <= 0)
            return NULL;
        used += (size_t)got;
    }
    return text;
}

/* The image's own variables, except those that the job sets: the job's come later and win. */
static size_t keep_image_env(char **env, size_t mine, char **image)
{
    size_t count = mine;
    for (; *image != NULL; image++) {
        size_t name = strcspn(*image, "=");
        bool ours = false;
        for (size_t at = 0; at < mine && !ours; at++)
            ours = strncmp(env[at], *image, name + 1) == 0;
        if (!ours)
            env[count++] = *image;
    }
    return count;
}

static bool read_job(int fd, struct job *job)
{
    size_t length = 0, args = 0, envs = 0, inherited = 0;
    char *text = slurp(fd, &length);
    if (text == NULL)
        return false;
    for (char **each = environ; *each != NULL; each++)
        inherited++;
    job->argv = calloc(length / 2 + 1, sizeof *job->argv);
    job->env = calloc(length / 2 + inherited + 1, sizeof *job->env);
    if (job->argv == NULL || job->env == NULL)
        return false;
    for (char *record = text; record < text + length; record += strlen(record) + 1) {
        if (strncmp(record, "arg=", 4) == 0)
            job->argv[args++] = record + 4;
        else if (strncmp(record, "env=", 4) == 0)
            job->env[envs++] = record + 4;
        else if (strncmp(record, "umask=", 6) == 0)
            job->mask = (mode_t)strtoul(record + 6, NULL, 8) & 0777;
        else if (strncmp(record, "limit=", 6) == 0)
            soft_limit_take(&job->limits, record + 6);
        else if (strncmp(record, "cwd=", 4) == 0)
            job->cwd = record + 4;
        else if (strncmp(record, "try=", 4) == 0)
            job->wish = record + 4;
        else if (strcmp(record, "end") == 0) {
            keep_image_env(job->env, envs, environ);
            return args > 0;
        }
    }
    return false;
}

static void reset_signals(void)
{
    const char default_action[64] = {0}; /* the kernel's struct sigaction, all zero */
    sigset_t none;
    for (int number = 1; number <= SIGRTMAX; number++)
        syscall(SYS_rt_sigaction, number, default_action, NULL, 8);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* "No such file" about a file that is there means its interpreter. Does not change errno. */
static const char *exec_stage(const char *program)
{
    int error = errno;
    bool there = error == ENOENT && strchr(program, '/') != NULL && access(program, F_OK) == 0;
    errno = error;
    return there ? "interpreter" : "exec";
}

static void fail(const char *stage)
{
    tell(INIT_FAILED, errno, stage);
    _exit(CANNOT);
}

/* Into the job's directory, with the job's limits; -1 with errno. */
static int enter(const struct job *job)
{
    soft_limits_set(&job->limits);
    umask(job->mask);
    if (job->wish != NULL && chdir(job->wish) != 0 && chdir("/") != 0)
        return -1;
    return job->cwd != NULL ? chdir(job->cwd) : 0;
}

static void run(const struct job *job)
{
    if (tell(INIT_MAIN, 0, "") != 0)
        _exit(CANNOT);
    setsid();
    if (enter(job) != 0)
        fail("chdir");
    reset_signals();
    environ = job->env; /* execvp searches the PATH of `environ`: the image's or the job's */
    execvp(job->argv[0], job->argv);
    fail(exec_stage(job->argv[0]));
}

/* Starts the program; returns when it has been exec'ed, or never will be. */
static pid_t start(const struct job *job)
{
    int execed[2];
    char nothing;
    if (pipe2(execed, O_CLOEXEC) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        close(execed[0]);
        run(job);
    }
    close(execed[1]);
    while (child > 0 && read(execed[0], &nothing, 1) < 0 && errno == EINTR)
        ;
    close(execed[0]);
    return child;
}

static int exit_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Reaps all that has died; leaves when the main process is among them. Its leftovers die with us. */
static void reap(pid_t program)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == program) {
            tell(INIT_ENDED, status, "");
            _exit(exit_code(status));
        }
}

static void serve(pid_t program, int signals)
{
    struct pollfd fds[] = {{.fd = signals, .events = POLLIN}, {.fd = SHIM, .events = POLLIN}};
    for (;;) {
        struct signalfd_siginfo info;
        reap(program);
        poll(fds, 2, -1);
        if (fds[1].revents != 0) { /* the shim never speaks: it has gone */
            kill(-1, SIGKILL);
            _exit(KILLED);
        }
        while (read(signals, &info, sizeof info) == (ssize_t)sizeof info)
            if (info.ssi_signo != SIGCHLD)
                kill(program, (int)info.ssi_signo);
    }
}

static int become_command(void)
{
    struct job job = {.mask = 022};
    if (!read_job(COMMAND, &job))
        return CANNOT;
    close(COMMAND);
    if (enter(&job) != 0) {
        dprintf(2, "dlq: cannot run the command: %s: '%.200s'\n", strerror(errno), job.cwd);
        return NOT_RUN;
    }
    reset_signals();
    environ = job.env;
    execvp(job.argv[0], job.argv);
    int found = errno != ENOENT;
    dprintf(2, "dlq: cannot run the command: %s: '%.200s'\n", strerror(errno), job.argv[0]);
    return found ? NOT_RUN : NOT_FOUND;
}

int main(int argc, char **argv)
{
    struct job job = {.mask = 022};
    sigset_t all;
    if (argc == 2 && strcmp(argv[1], "exec") == 0)
        return become_command();
    if (argc == 2 && strcmp(argv[1], "forward") == 0)
        return forward_main();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* the job has our uid, but not our descriptors */
    fcntl(SHIM, F_SETFD, FD_CLOEXEC);
    int signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    if (tell(INIT_HELLO, 0, "") != 0 || signals < 0 || !read_job(JOB, &job))
        return CANNOT;
    close(JOB);
    pid_t program = start(&job);
    if (program < 0) {
        tell(INIT_FAILED, errno, "fork");
        return CANNOT;
    }
    /* The child has reported the failed start already: the first message counts. */
    tell(INIT_EXECED, 0, "");
    serve(program, signals);
}
