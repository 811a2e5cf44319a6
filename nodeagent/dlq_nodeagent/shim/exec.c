/* A command beside the main process of a rank (`dlq exec`), and its guard, which lives no longer
 * than its caller.
 *
 * The agent gives the guard these descriptors. 0, 1, 2 are the command's (with a terminal: all
 * three its slave). 3, the leash, is a socket: at its end everything is killed, and on it the guard
 * reports the command's end. 4 is a pidfd of the rank's shim: when that ends, everything is killed.
 *
 * The command is started as the main process was: from the same plan, in the same groups, with the
 * same ids and nothing more. In a container it is podman that starts it; the words, the environment
 * and the directory go to dlq-init in a memory file. */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LEASH = 3, SHIM = 4, COMMAND_IN_BOX = 3 };
enum { DONE = 0, USAGE = 2, NOT_OURS = 3 };

#define ROUND_NS (10 * NS_PER_MS)
#define UNKILLABLE_NS (30 * NS_PER_S)
#define BOX_LEAVES_NS NS_PER_S /* podman tidies up behind a command that has ended by itself */

struct exec {
    struct plan plan;
    bool terminal;
    char **podman; /* words of `podman exec`, NULL-terminated; empty: not in a container */
    pid_t child;
};

/* ---- the command ---- */

static void own_terminal(const struct exec *exec, int status_fd)
{
    setsid();
    if (exec->terminal && ioctl(0, TIOCSCTTY, 0) != 0)
        child_fail(status_fd, "terminal");
    write_text("/proc/self/oom_score_adj", "0");
}

static void run_plain(const struct exec *exec, pid_t guard, int status_fd)
{
    own_terminal(exec, status_fd);
    if (cgroup_join(&exec->plan) != 0)
        child_fail(status_fd, "cgroup");
    if (close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) != 0)
        child_fail(status_fd, "output");
    child_become(&exec->plan, guard, status_fd);
}

static void run_boxed(const struct exec *exec, pid_t guard, int status_fd)
{
    int job = container_job(&exec->plan);
    own_terminal(exec, status_fd);
    status_fd = fcntl(status_fd, F_DUPFD_CLOEXEC, 64); /* its number may be the one that is wanted */
    if (job < 0 || dup2(job, COMMAND_IN_BOX) < 0 ||
        close_range(COMMAND_IN_BOX + 1, ~0u, CLOSE_RANGE_CLOEXEC) != 0)
        child_fail(status_fd, "container");
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != guard)
        _exit(127);
    umask(022);
    child_reset_signals();
    environ = exec->plan.podman_env;
    execvp(exec->podman[0], exec->podman);
    child_fail(status_fd, "container");
}

/* Returns when the command has been exec'ed (`error` is empty), or never will be. */
static int start(struct exec *exec, struct start_error *error)
{
    int status[2];
    pid_t guard = getpid();
    memset(error, 0, sizeof *error);
    if (pipe2(status, O_CLOEXEC) != 0 || (exec->child = fork()) < 0)
        return -1;
    if (exec->child == 0) {
        if (exec->podman[0] != NULL)
            run_boxed(exec, guard, status[1]);
        run_plain(exec, guard, status[1]);
    }
    close(status[1]);
    while (read(status[0], error, sizeof *error) < 0 && errno == EINTR)
        ;
    close(status[0]);
    return 0;
}

/* ---- the guard ---- */

static void say(const char *text)
{
    ssize_t written = send(LEASH, text, strlen(text), MSG_NOSIGNAL);
    (void)written; /* the reader has gone: then the leash has ended too */
}

static void say_error(const struct exec *exec, const struct start_error *error)
{
    char words[512], line[640];
    child_words(&exec->plan, error, words, sizeof words);
    for (char *at = words; *at != '\0'; at++)
        if ((unsigned char)*at < ' ')
            *at = '?';
    snprintf(line, sizeof line, "error %s %d %s\n", error->stage, error->error, words);
    say(line);
}

static void say_status(int status)
{
    char line[64];
    if (WIFSIGNALED(status))
        snprintf(line, sizeof line, "signal %d\n", WTERMSIG(status));
    else
        snprintf(line, sizeof line, "exit %d\n", WEXITSTATUS(status));
    say(line);
}

/* Reaps; true when the command is among them. */
static bool reap(const struct exec *exec, int *status)
{
    bool found = false;
    int each;
    pid_t pid;
    while ((pid = waitpid(-1, &each, WNOHANG)) > 0)
        if (pid == exec->child) {
            *status = each;
            found = true;
        }
    return found;
}

static bool has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void pause_ns(int64_t ns)
{
    struct timespec span = {.tv_nsec = ns};
    nanosleep(&span, NULL);
}

static void await_children(const struct exec *exec, int64_t span_ns)
{
    int status;
    int64_t end = clock_ns(CLOCK_BOOTTIME) + span_ns;
    while (has_children() && clock_ns(CLOCK_BOOTTIME) < end) {
        pause_ns(ROUND_NS);
        reap(exec, &status);
    }
}

/* Everything below us, in any session: we are its subreaper. */
static void kill_all(const struct exec *exec)
{
    int status;
    int64_t end = clock_ns(CLOCK_BOOTTIME) + UNKILLABLE_NS;
    while (has_children() && clock_ns(CLOCK_BOOTTIME) < end) {
        tree_kill();
        pause_ns(ROUND_NS / 10);
        reap(exec, &status);
    }
}

/* The agent says one byte for each signal; false: it says no more. Podman's client is no place for a
 * signal that is meant for its command. */
static bool pass_signal(const struct exec *exec)
{
    unsigned char number;
    if (recv(LEASH, &number, 1, MSG_DONTWAIT) != 1)
        return false;
    if (exec->podman[0] == NULL && number > 0 && number <= 64)
        kill(-exec->child, number); /* it leads a group of its own */
    return true;
}

static void watch(const struct exec *exec, int signals)
{
    struct pollfd fds[] = {{.fd = signals, .events = POLLIN},
                           {.fd = LEASH, .events = POLLIN | POLLRDHUP},
                           {.fd = SHIM, .events = POLLIN}};
    for (;;) {
        struct signalfd_siginfo info;
        int status;
        if (reap(exec, &status)) {
            if (exec->podman[0] != NULL)
                await_children(exec, BOX_LEAVES_NS);
            kill_all(exec);
            say_status(status);
            return;
        }
        poll(fds, 3, -1);
        if (fds[2].revents != 0) {
            kill_all(exec);
            say("rank_ended\n");
            return;
        }
        if (fds[1].revents != 0 && !pass_signal(exec)) { /* the agent, or the caller, has gone */
            kill_all(exec);
            return;
        }
        while (read(signals, &info, sizeof info) == (ssize_t)sizeof info)
            ;
    }
}

static int become_guard(void)
{
    static const int ignored[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE, SIGALRM,
                                  SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTOU};
    sigset_t child;
    for (size_t at = 0; at < sizeof ignored / sizeof *ignored; at++)
        signal(ignored[at], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_SETMASK, &child, NULL);
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    fcntl(LEASH, F_SETFD, FD_CLOEXEC);
    fcntl(SHIM, F_SETFD, FD_CLOEXEC);
    return signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The command's ends of its pipes, or its terminal, are its own alone: their end is seen. */
static void let_go_of_output(void)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++)
        if (null_fd < 0 || dup2(null_fd, fd) < 0)
            close(fd);
}

/* One more variable, instead of the plan's own of that name. */
static bool add_variable(struct plan *plan, char *variable)
{
    size_t count = 0, kept = 0, name = strcspn(variable, "=") + 1;
    while (plan->env[count] != NULL)
        count++;
    char **env = calloc(count + 2, sizeof *env);
    if (env == NULL)
        return false;
    for (size_t at = 0; at < count; at++)
        if (strncmp(plan->env[at], variable, name) != 0)
            env[kept++] = plan->env[at];
    env[kept] = variable;
    plan->env = env;
    return true;
}

/* ATTEMPT_DIR TERMINAL VARIABLE COUNT, then COUNT words of podman, then the command. TERMINAL is yes or
 * no, VARIABLE is TERM=... or empty. */
int exec_main(int argc, char **argv)
{
    struct exec exec = {0};
    struct start_error error;
    int64_t words;
    if (argc < 5 || !parse_number(argv[3], argc - 5, &words))
        return USAGE;
    close_range(SHIM + 1, ~0u, 0);
    int dir_fd = open(argv[0], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int plan_fd = dir_fd < 0 ? -1 : plan_look(dir_fd);
    int signals = become_guard();
    if (plan_fd < 0 || signals < 0 || chdir("/") != 0)
        return NOT_OURS;
    const char *wrong = plan_read(plan_fd, &exec.plan);
    wrong = wrong != NULL ? wrong : users_check(dir_fd, &exec.plan);
    if (wrong != NULL || (words > 0) != (exec.plan.podman[0] != NULL)) {
        char line[256];
        snprintf(line, sizeof line, "error plan 0 %s\n", wrong != NULL ? wrong : "another runtime");
        say(line);
        return DONE;
    }
    exec.terminal = strcmp(argv[1], "yes") == 0;
    exec.podman = calloc((size_t)words + 1, sizeof *exec.podman);
    exec.plan.argv = argv + 4 + words;
    if (exec.podman == NULL || (argv[2][0] != '\0' && !add_variable(&exec.plan, argv[2])))
        return NOT_OURS;
    memcpy(exec.podman, argv + 4, (size_t)words * sizeof *exec.podman);
    if (start(&exec, &error) != 0)
        return NOT_OURS;
    let_go_of_output();
    if (error.stage[0] != '\0') {
        kill_all(&exec);
        say_error(&exec, &error);
        return DONE;
    }
    say("started\n");
    watch(&exec, signals);
    return DONE;
}
