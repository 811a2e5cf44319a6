/* Signals of a call go on to the process that runs the command. A stop (Ctrl-Z) stops that process
 * too where it may read the terminal: the shell has the terminal then. */

#include "front.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#define WAKE_EVERY_MS 100
#define WAKES 50
#define STOPS 100
#define END_MS 1000

static volatile sig_atomic_t line = -1, runner, last_signal, wakes;
static bool reads_terminal;

/* To the process that runs the command. It may have ended: the answer then says so. */
static void tell(int number)
{
    unsigned char message[2] = {'S', (unsigned char)number};
    if (send(line, message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        line = -1;
}

static void pass_on(int number)
{
    int saved = errno;
    if (number != SIGWINCH)
        last_signal = number;
    tell(number);
    errno = saved;
}

static bool in_background(void)
{
    pid_t before = reads_terminal ? tcgetpgrp(0) : -1;
    return before > 0 && before != getpgrp();
}

/* As the kernel stops a process that takes no care of it: not at all where no shell could wake it. */
static void stop(int number)
{
    struct sigaction before, plain = {.sa_handler = SIG_DFL};
    sigset_t set, blocked;
    sigemptyset(&set);
    sigaddset(&set, number);
    sigaction(number, &plain, &before);
    sigprocmask(SIG_UNBLOCK, &set, &blocked);
    raise(number);
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    sigaction(number, &before, NULL);
}

/* In the background the kernel stops a reader of the terminal, so we stop again. */
static void stop_both(int number)
{
    int saved = errno;
    tell(SIGSTOP);
    stop(number);
    for (int i = 0; i < STOPS && in_background(); i++)
        stop(SIGTTIN);
    wakes = WAKES;
    if (line >= 0)
        kill(runner, SIGCONT);
    errno = saved;
}

/* Our stop goes through its line, and may come after our wake: so it is woken more than once. */
bool front_is_waking(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    if (wakes <= 0 || poll(&poll_fd, 1, WAKE_EVERY_MS) > 0)
        return false;
    wakes--;
    kill(runner, SIGCONT);
    errno = EAGAIN;
    return true;
}

void front_pass_signals(const struct front_call *call, char **argv, int fd, pid_t pid)
{
    static const int numbers[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                  SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH};
    struct sigaction now, ours = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    line = fd;
    runner = pid;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!sigaction(numbers[i], NULL, &now) && now.sa_handler != SIG_IGN)
            sigaction(numbers[i], &ours, NULL);
    if (!front_reads_terminal(call))
        return;
    reads_terminal = isatty(0);
    for (; *argv; argv++)
        if (!strcmp(*argv, "--input=none") || !strcmp(*argv, "-inone"))
            reads_terminal = false;
    ours.sa_handler = stop_both;
    ours.sa_flags = 0; /* the wait for the answer is begun anew, with its wakes */
    if (!sigaction(SIGTSTP, NULL, &now) && now.sa_handler != SIG_IGN)
        sigaction(SIGTSTP, &ours, NULL);
}

void front_await_end(int fd)
{
    char byte;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    while (reads_terminal && poll(&poll_fd, 1, END_MS) > 0 && recv(fd, &byte, 1, 0) > 0)
        continue;
}

int front_end_by_signal(const struct front_call *call)
{
    if (last_signal) {
        signal(last_signal, SIG_DFL);
        raise(last_signal);
    }
    fprintf(stderr, "%s: error: the process that ran the command was killed\n", call->name);
    return 1;
}
