/* Main processes of our own that run the rank's program below them: they pass its signals on, and
 * end as it did. Each program that includes this has one source file. */
#ifndef DLQ_PASSING_ON_H
#define DLQ_PASSING_ON_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static sigset_t before; /* signals that were blocked at our start */

/* How many bytes were written; errno says why there are no more. */
static size_t write_whole(int fd, const char *bytes, size_t length)
{
    size_t done = 0;
    while (done < length) {
        ssize_t wrote = write(fd, bytes + done, length - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            break;
        done += (size_t)wrote;
    }
    return done;
}

static void never_run(int number)
{
    (void)number;
}

/* A descriptor with the signals to pass on; -1: it cannot be had. No handler runs. But the agent asks
 * the kernel whether the main process catches the signal of a notice: we do, and nothing is known of
 * the program. SIGPIPE is about our own writes, and is not passed on. */
static int catch_all(void)
{
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGPIPE);
    sigprocmask(SIG_BLOCK, &all, &before);
    for (int number = 1; number < SIGRTMIN; number++)
        if (number != SIGCHLD && number != SIGKILL && number != SIGSTOP)
            signal(number, never_run);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &all, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* In the child: become the program. */
static void run_program(char **command)
{
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    execvp(command[0], command);
    int error = errno;
    dprintf(2, "dlq: cannot run %s: %s\n", command[0], strerror(error));
    _exit(error == ENOENT || error == ENOTDIR ? 127 : 126);
}

static int end_as(int status)
{
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    struct rlimit none = {0, 0};
    sigset_t its;
    setrlimit(RLIMIT_CORE, &none); /* the program has left its own */
    signal(WTERMSIG(status), SIG_DFL);
    sigemptyset(&its);
    sigaddset(&its, WTERMSIG(status));
    sigprocmask(SIG_UNBLOCK, &its, NULL);
    raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

#endif
