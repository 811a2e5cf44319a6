/* dlq-tasks: the main process of a rank with several tasks. Starts each with its own variables, and
 * writes their output as one stream of lines that begin with the task's name. Forwards signals, and
 * ends with the first that fails.
 *
 *   dlq-tasks --words DIR --grace MS [--alone] (--task|--serve NAME [VARIABLE=VALUE]...)... -- COMMAND...
 *
 * A task that fails ends the others at once; after a signal that may mean "save and leave" they have
 * the grace. When all but the serving ones are done, DIR/workers_done says so. The serving ones end
 * on the next TERM, or by themselves if the job is `--alone` on this node. DIR/failed_task names
 * the first that failed. It runs as the job, so nothing of it is believed beyond the job's own
 * fate. It is static, because it must run in any image. Our starter kills the processes that we
 * leave behind. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_TASKS 1024
#define LINE_BYTES 8192 /* a longer line is cut in two */
#define OUT_BYTES (256 << 10)
#define IDLE_MS 500     /* after that a line without an end is printed unfinished */
#define SERVERS_MS 5000 /* from TERM to KILL for tasks that only serve */
#define DRAIN_MS 2000   /* for pipes that a grandchild may still hold open */

extern char **environ;

struct task {
    const char *name;
    char **variables;
    int variable_count;
    bool serves, alive;
    pid_t pid;
    int fd, status;
    char line[LINE_BYTES];
    size_t used;
};

static struct task *tasks;
static int task_count;
static const char *words_dir;
static char **command;
static bool alone, told_done;
static int64_t grace_ms, kill_at, signalled_at;
static struct task *first_failed;
static char out[OUT_BYTES];
static size_t out_used;

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int usage(const char *what)
{
    dprintf(2, "dlq-tasks: %s\n", what);
    return 125;
}

/* ---- words for the agent ---- */

static void leave_word(const char *name, const char *text)
{
    char path[4096], draft[4096 + 8];
    snprintf(path, sizeof path, "%s/%s", words_dir, name);
    snprintf(draft, sizeof draft, "%s.tmp", path);
    int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    ssize_t written = write(fd, text, strlen(text));
    close(fd);
    if (written == (ssize_t)strlen(text))
        rename(draft, path);
}

/* ---- output ---- */

static void flush_out(void)
{
    while (out_used > 0) {
        ssize_t written = write(1, out, out_used);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            if (written < 0 && errno != EAGAIN)
                out_used = 0; /* the reader has gone */
            return;
        }
        memmove(out, out + written, out_used - (size_t)written);
        out_used -= (size_t)written;
    }
}

static bool room(void)
{
    return OUT_BYTES - out_used > LINE_BYTES + 256;
}

static void say_line(const char *name, const char *line, size_t length)
{
    int head = snprintf(out + out_used, 128, "[%.100s] ", name);
    out_used += (size_t)head;
    memcpy(out + out_used, line, length);
    out_used += length;
    out[out_used++] = '\n';
}

static void end_line(struct task *task)
{
    if (task->used > 0)
        say_line(task->name, task->line, task->used);
    task->used = 0;
}

/* One read; false at the end of the stream, or when there is nothing now. */
static bool pump(struct task *task)
{
    char bytes[LINE_BYTES];
    if (task->fd < 0 || !room())
        return false;
    size_t most = (OUT_BYTES - out_used - LINE_BYTES) / 130; /* each byte could be a line */
    if (most > sizeof bytes)
        most = sizeof bytes;
    ssize_t got = read(task->fd, bytes, most < 1 ? 1 : most);
    if (got < 0)
        return false;
    if (got == 0) {
        end_line(task);
        close(task->fd);
        task->fd = -1;
        return false;
    }
    for (ssize_t at = 0; at < got; at++) {
        if (bytes[at] == '\n') {
            if (task->used == 0)
                say_line(task->name, "", 0);
            end_line(task);
            continue;
        }
        task->line[task->used++] = bytes[at];
        if (task->used == LINE_BYTES)
            end_line(task);
    }
    return true;
}

/* ---- starting ---- */

static void become(struct task *task)
{
    const char default_action[64] = {0}; /* the kernel's struct sigaction, all zero */
    sigset_t none;
    for (int number = 1; number <= SIGRTMAX; number++)
        syscall(SYS_rt_sigaction, number, default_action, NULL, 8);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    for (int at = 0; at < task->variable_count; at++)
        putenv(task->variables[at]);
    execvp(command[0], command);
    int missing = errno == ENOENT;
    dprintf(2, "dlq: cannot run the job: %s: '%.200s'\n", strerror(errno), command[0]);
    _exit(missing ? 127 : 126);
}

static int start(struct task *task)
{
    int output[2];
    if (pipe2(output, O_CLOEXEC) != 0)
        return -1;
    pid_t parent = getpid();
    task->pid = fork();
    if (task->pid == 0) {
        if (setpgid(0, 0) != 0 || dup2(output[1], 1) < 0 || dup2(output[1], 2) < 0)
            _exit(125);
        int null_fd = task == tasks ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null_fd >= 0) /* a client's stdin is the first task's alone */
            dup2(null_fd, 0);
        if (getppid() != parent)
            _exit(125);
        become(task);
    }
    close(output[1]);
    task->fd = output[0];
    fcntl(task->fd, F_SETFL, O_NONBLOCK);
    task->alive = task->pid > 0;
    return task->pid > 0 ? 0 : -1;
}

/* ---- the end ---- */

static int living(bool serving)
{
    int count = 0;
    for (int at = 0; at < task_count; at++)
        count += tasks[at].alive && tasks[at].serves == serving;
    return count;
}

static void signal_all(int number, bool servers_only)
{
    for (int at = 0; at < task_count; at++)
        if (tasks[at].alive && (tasks[at].serves || !servers_only))
            kill(tasks[at].pid, number);
}

static void end_servers(void)
{
    if (kill_at != 0)
        return;
    signal_all(SIGTERM, true);
    kill_at = now_ms() + SERVERS_MS;
}

static void fail_with(struct task *task)
{
    char words[256];
    first_failed = task;
    leave_word("failed_task", task->name);
    int code = WIFEXITED(task->status) ? WEXITSTATUS(task->status) : WTERMSIG(task->status);
    snprintf(words, sizeof words, "dlq: %.100s %s %d%s", task->name,
             WIFEXITED(task->status) ? "exited with" : "was ended by signal", code,
             living(false) + living(true) > 0 ? ": the others are ended" : "");
    if (room())
        say_line(task->name, words, strlen(words));
    /* Ranks leave one after another on request: each may still be saving. */
    bool leaving = signalled_at != 0 && now_ms() - signalled_at < grace_ms;
    kill_at = leaving ? signalled_at + grace_ms : now_ms();
}

static void ended(struct task *task, int status)
{
    task->alive = false;
    task->status = status;
    while (pump(task))
        flush_out();
    if (first_failed != NULL)
        return;
    bool done = living(false) == 0;
    if (status != 0 && !(task->serves && (done || told_done)))
        fail_with(task);
}

static void reap(void)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int at = 0; at < task_count; at++)
            if (tasks[at].alive && tasks[at].pid == pid)
                ended(&tasks[at], status);
    if (first_failed == NULL && !told_done && living(false) == 0) {
        told_done = true;
        if (living(true) > 0) {
            leave_word("workers_done", "yes");
            if (alone)
                end_servers();
        }
    }
}

static void forward(int number)
{
    if (number == SIGTERM || number == SIGINT || number == SIGUSR1 || number == SIGUSR2)
        signalled_at = now_ms();
    if (number == SIGTERM && told_done)
        end_servers();
    else
        signal_all(number, false);
}

/* Ends as the first that failed has ended. */
static int leave(void)
{
    fcntl(1, F_SETFL, 0);
    flush_out();
    if (first_failed == NULL)
        return 0;
    if (WIFEXITED(first_failed->status))
        return WEXITSTATUS(first_failed->status);
    int number = WTERMSIG(first_failed->status);
    sigset_t none;
    struct rlimit core = {0, 0};
    setrlimit(RLIMIT_CORE, &core);
    signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    kill(getpid(), number);
    return 128 + number;
}

/* The rest in the pipes; bounded, because a grandchild may keep one open. */
static void drain(void)
{
    int64_t until = now_ms() + DRAIN_MS;
    fcntl(1, F_SETFL, 0);
    for (int at = 0; at < task_count; at++) {
        while (now_ms() < until && pump(&tasks[at]))
            flush_out();
        end_line(&tasks[at]);
        flush_out();
    }
}

static void turn(struct pollfd *fds, int signals)
{
    bool open_line = false, readable = room();
    for (int at = 0; at < task_count; at++) {
        fds[at] = (struct pollfd){.fd = readable ? tasks[at].fd : -1, .events = POLLIN};
        open_line = open_line || tasks[at].used > 0;
    }
    fds[task_count] = (struct pollfd){.fd = signals, .events = POLLIN};
    fds[task_count + 1] = (struct pollfd){.fd = out_used > 0 ? 1 : -1, .events = POLLOUT};
    int64_t wait = open_line ? IDLE_MS : -1;
    if (kill_at != 0) {
        int64_t left = kill_at - now_ms();
        wait = left < 0 ? 100 : wait < 0 || left < wait ? left : wait;
    }
    int ready = poll(fds, (nfds_t)task_count + 2, (int)wait);
    for (int at = 0; at < task_count; at++) {
        if (ready == 0 && room())
            end_line(&tasks[at]);
        else if (fds[at].revents != 0)
            pump(&tasks[at]);
    }
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD)
            forward((int)info.ssi_signo);
    reap();
    if (kill_at != 0 && now_ms() >= kill_at)
        signal_all(SIGKILL, first_failed == NULL);
    flush_out();
}

/* ---- words ---- */

static const char *read_words(int argc, char **argv)
{
    for (int at = 1; at < argc; at++) {
        if (strcmp(argv[at], "--") == 0) {
            command = argv + at + 1;
            return at + 1 < argc && task_count > 0 && words_dir != NULL ? NULL : "nothing to run";
        }
        if (strcmp(argv[at], "--alone") == 0)
            alone = true;
        else if (strcmp(argv[at], "--words") == 0 && at + 1 < argc)
            words_dir = argv[++at];
        else if (strcmp(argv[at], "--grace") == 0 && at + 1 < argc)
            grace_ms = atoll(argv[++at]);
        else if ((strcmp(argv[at], "--task") == 0 || strcmp(argv[at], "--serve") == 0) &&
                 at + 1 < argc && task_count < MAX_TASKS) {
            struct task *task = &tasks[task_count++];
            task->serves = strcmp(argv[at], "--serve") == 0;
            task->name = argv[++at];
            task->variables = argv + at + 1;
        } else if (task_count > 0 && strchr(argv[at], '=') != NULL)
            tasks[task_count - 1].variable_count++;
        else
            return "words that mean nothing";
    }
    return "no command";
}

int main(int argc, char **argv)
{
    sigset_t all;
    tasks = calloc(MAX_TASKS, sizeof *tasks);
    const char *wrong = tasks == NULL ? "no memory" : read_words(argc, argv);
    struct pollfd *fds = calloc((size_t)task_count + 2, sizeof *fds);
    if (wrong != NULL || fds == NULL)
        return usage(wrong != NULL ? wrong : "no memory");
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    int signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0)
        return usage("no signals");
    signal(SIGPIPE, SIG_IGN);
    for (int at = 0; at < task_count; at++)
        if (start(&tasks[at]) != 0) {
            signal_all(SIGKILL, false);
            return usage(strerror(errno));
        }
    fcntl(1, F_SETFL, O_NONBLOCK);
    while (living(false) + living(true) > 0)
        turn(fds, signals);
    drain();
    return leave();
}
