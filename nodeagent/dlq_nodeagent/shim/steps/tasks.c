/* The tasks of one step on one node, and their guard: a process between them and their srun. It
 * lives no longer than that connection, and leaves nothing of the tasks behind. */
#include "tasks.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_UNTAKEN (256 << 10) /* input that the slowest task has not read yet */
#define USAGE_MS 10000
#define UNKILLABLE_MS 30000

struct task {
    int rank; /* SLURM_PROCID */
    char **words;
    int word_count;
    pid_t pid;
    int in, out, err; /* -1: closed */
    bool alive, told, wants_input;
    struct bytes waiting;
    struct task_end end;
};

struct launch launch = {
    .directory = "/", .gpus = "", .gpu_bind = "", .host = "", .ranks_here = "", .mask = 022, .limits = ""};

static struct task *tasks;
static int task_count, connection, signals;
static char **common;
static int common_count;
static struct bytes heard;

/* ---- what to run ---- */

static void take(const char *key, char *value)
{
    long number = 0;
    bool is_number = parse_long(value, 1 << 30, &number);
    struct task *last = task_count > 0 ? &tasks[task_count - 1] : NULL;
    if (strcmp(key, "task") == 0 && task_count < MOST_TASKS && is_number)
        tasks[task_count++] = (struct task){.rank = (int)number, .in = -1, .out = -1, .err = -1};
    else if (strcmp(key, "input") == 0 && last != NULL)
        last->wants_input = true;
    else if (strcmp(key, "arg") == 0 && last == NULL)
        common[common_count++] = value;
    else if (strcmp(key, "arg") == 0 && last != NULL) {
        last->words =
            must_have(realloc(last->words, ((size_t)last->word_count + 2) * sizeof *last->words));
        last->words[last->word_count++] = value;
        last->words[last->word_count] = NULL;
    } else if (strcmp(key, "env") == 0)
        launch.environment[launch.environment_count++] = value;
    else if (strcmp(key, "cwd") == 0)
        launch.directory = value;
    else if (strcmp(key, "step") == 0)
        launch.step = number;
    else if (strcmp(key, "limits") == 0)
        launch.limits = value;
    else if (strcmp(key, "gpus") == 0)
        launch.gpus = value;
    else if (strcmp(key, "gpus_per_task") == 0)
        launch.gpus_per_task = number;
    else if (strcmp(key, "gpu_bind") == 0)
        launch.gpu_bind = value;
    else if (strcmp(key, "umask") == 0)
        launch.mask = number & 0777;
    else if (strcmp(key, "columns") == 0)
        launch.columns = number;
    else if (strcmp(key, "rows") == 0)
        launch.rows = number;
    else if (strcmp(key, "terminal") == 0)
        launch.terminal = true;
}

/* ---- starting ---- */

/* Those of srun, as far as this node allows. */
static void set_limits(void)
{
    const char *at = launch.limits;
    struct rlimit now;
    for (int kind = 0; kind < RLIM_NLIMITS && *at != '\0'; kind++) {
        rlim_t wanted = strtoull(at, NULL, 16);
        if (*at != ',' && getrlimit(kind, &now) == 0) {
            now.rlim_cur = wanted < now.rlim_max ? wanted : now.rlim_max;
            setrlimit(kind, &now);
        }
        at += strcspn(at, ",");
        at += *at == ',';
    }
}

static _Noreturn void run(struct task *task, int local)
{
    char **words = task->words != NULL ? task->words : common;
    set_environment(task->rank, local);
    umask((mode_t)launch.mask);
    reset_signals();
    restore_files();
    set_limits();
    if (chdir(launch.directory) != 0) {
        dprintf(2, "slurmstepd-%s: error: couldn't chdir to `%s': %s: going to /tmp instead\n",
                launch.host, launch.directory, strerror(errno));
        if (chdir("/tmp") != 0)
            _exit(1);
    }
    execvp(words[0], words);
    int error = errno;
    if (error == ENOENT && strchr(words[0], '/') == NULL) { /* a program of this directory */
        char path[4096];
        snprintf(path, sizeof path, "./%s", words[0]);
        execv(path, words);
    }
    dprintf(2, "slurmstepd-%s: error: execve(): %s: %s\n", launch.host, words[0], strerror(error));
    _exit(error);
}

static void become(const int in[2], const int out[2], const int err[2], bool has_input)
{
    int null_fd = has_input ? in[0] : open("/dev/null", O_RDONLY | O_CLOEXEC);
    setpgid(0, 0);
    if (dup2(null_fd, 0) < 0 || dup2(out[1], 1) < 0 || dup2(err[1], 2) < 0)
        _exit(125);
}

static void become_terminal(int slave)
{
    setsid();
    ioctl(slave, TIOCSCTTY, 0);
    if (dup2(slave, 0) < 0 || dup2(slave, 1) < 0 || dup2(slave, 2) < 0)
        _exit(125);
}

static bool start(struct task *task, int local)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, master = -1, slave = -1;
    bool at_terminal = launch.terminal && local == 0 && task->rank == 0;
    struct winsize size = {.ws_col = (unsigned short)launch.columns,
                           .ws_row = (unsigned short)launch.rows};
    if (at_terminal
            ? openpty(&master, &slave, NULL, NULL, &size) != 0
            : pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
        return false;
    pid_t guard = getpid();
    task->pid = fork();
    if (task->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (getppid() != guard)
            _exit(125);
        if (at_terminal)
            become_terminal(slave);
        else
            become(in, out, err, task->wants_input);
        close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
        run(task, local);
    }
    if (!at_terminal) /* there it leads a session of its own */
        setpgid(task->pid, task->pid);
    int theirs[] = {in[0], out[1], err[1], slave};
    for (int at = 0; at < 4; at++)
        if (theirs[at] >= 0)
            close(theirs[at]);
    task->wants_input = task->wants_input || at_terminal;
    task->in = at_terminal ? master : in[1];
    task->out = at_terminal ? fcntl(master, F_DUPFD_CLOEXEC, 3) : out[0];
    task->err = at_terminal ? -1 : err[0];
    int ours[] = {task->in, task->out, task->err};
    for (int at = 0; at < 3; at++)
        if (ours[at] >= 0) {
            fcntl(ours[at], F_SETFL, O_NONBLOCK);
            fcntl(ours[at], F_SETFD, FD_CLOEXEC);
        }
    task->alive = task->pid > 0;
    if (!task->wants_input) {
        close(task->in);
        task->in = -1;
    }
    return task->alive;
}

/* ---- the end ---- */

static bool has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void kill_one(int pid, void *unused)
{
    (void)unused;
    kill(pid, SIGKILL);
}

static void reap(void)
{
    int status;
    struct rusage used;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0)
        for (int at = 0; at < task_count; at++)
            if (tasks[at].pid == pid && tasks[at].alive) {
                tasks[at].alive = false;
                tasks[at].end = (struct task_end){
                    .status = (uint32_t)status,
                    .usage = usage_of(&used)};
            }
}

static void kill_all(void)
{
    int64_t until = now_ms() + UNKILLABLE_MS;
    reap();
    while (has_children() && now_ms() < until) {
        each_below(kill_one, NULL);
        poll(NULL, 0, 2);
        reap();
    }
}

static _Noreturn void client_gone(void)
{
    kill_all();
    _exit(0);
}

static void say(enum frame_type type, unsigned task, const void *data, size_t length)
{
    if (!send_frame(connection, type, task, data, length))
        client_gone();
}

/* ---- bytes ---- */

static int living(void)
{
    int count = 0;
    for (int at = 0; at < task_count; at++)
        count += tasks[at].alive;
    return count;
}

/* One piece of a task's output; false when there is nothing more now. */
static bool pump(int at, int *fd, enum frame_type type)
{
    char piece[PIECE_BYTES];
    ssize_t got = *fd < 0 ? -1 : read(*fd, piece, sizeof piece);
    if (*fd < 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
        return false;
    if (got <= 0) {
        close(*fd);
        *fd = -1;
        return false;
    }
    say(type, (unsigned)tasks[at].rank, piece, (size_t)got);
    return true;
}

static void close_input(struct task *task)
{
    if (task->in >= 0)
        close(task->in);
    task->in = -1;
    bytes_free(&task->waiting);
}

static size_t untaken(void)
{
    size_t most = 0;
    for (int at = 0; at < task_count; at++)
        most = tasks[at].waiting.used > most ? tasks[at].waiting.used : most;
    return most;
}

/* Input counts as taken when the slowest task has it, or none is left that reads. */
static uint64_t input_come, input_taken;

static void feed(void)
{
    for (int at = 0; at < task_count; at++) {
        struct task *task = &tasks[at];
        while (task->in >= 0 && task->waiting.used > 0) {
            ssize_t put = write(task->in, task->waiting.data, task->waiting.used);
            if (put < 0 && errno == EAGAIN)
                break;
            if (put < 0)
                close_input(task);
            else
                bytes_drop(&task->waiting, (size_t)put);
        }
        if (task->told || (task->waiting.used == 0 && !task->wants_input))
            close_input(task);
    }
    uint32_t more = (uint32_t)(input_come - untaken() - input_taken);
    if (more > 0)
        say(SAY_TAKEN, 0, &more, sizeof more);
    input_taken += more;
}

static void put_input(unsigned rank, const char *data, size_t length)
{
    if (untaken() + length > MOST_UNTAKEN)
        client_gone(); /* an srun that does not wait */
    input_come += length;
    for (int at = 0; at < task_count; at++)
        if ((rank == ALL_TASKS || (int)rank == tasks[at].rank) && tasks[at].in >= 0)
            bytes_add(&tasks[at].waiting, data, length);
}

static void signal_tasks(int number)
{
    for (int at = 0; at < task_count; at++)
        if (tasks[at].alive)
            kill(-tasks[at].pid, number);
    if (number == SIGKILL)
        each_below(kill_one, NULL);
}

static void obey(const struct frame *frame, const char *payload)
{
    uint32_t number = 0;
    uint16_t size[2];
    switch (frame->type) {
    case TELL_IN: put_input(frame->task, payload, frame->length); break;
    case TELL_IN_END:
        for (int at = 0; at < task_count; at++)
            if (launch.terminal && tasks[at].rank == 0)
                bytes_add(&tasks[at].waiting, "\x04", 1);
            else
                tasks[at].wants_input = false; /* closed when it has taken the rest */
        break;
    case TELL_SIGNAL:
        memcpy(&number, payload, frame->length < sizeof number ? frame->length : sizeof number);
        if (number >= 1 && number <= 64)
            signal_tasks((int)number);
        break;
    case TELL_SIZE:
        if (frame->length == sizeof size && launch.terminal && task_count > 0) {
            memcpy(size, payload, sizeof size);
            struct winsize now = {.ws_col = size[0], .ws_row = size[1]};
            ioctl(tasks[0].in, TIOCSWINSZ, &now);
        }
        break;
    default: break;
    }
}

static void hear(void)
{
    struct frame frame;
    char *payload;
    int got = bytes_read(&heard, connection, PIECE_BYTES);
    while (got >= 0 && (got = bytes_next(&heard, &frame, &payload, PIECE_BYTES)) > 0) {
        obey(&frame, payload);
        free(payload);
    }
    if (got < 0)
        client_gone();
}

/* ---- what they use ---- */

static void say_usage(void)
{
    struct usage usage = {0};
    each_below(add_usage, &usage);
    for (int at = 0; at < task_count; at++)
        if (!tasks[at].alive) {
            usage.cpu_us += tasks[at].end.usage.cpu_us;
            if (tasks[at].end.usage.rss_bytes > usage.rss_bytes)
                usage.rss_bytes = tasks[at].end.usage.rss_bytes;
        }
    say(SAY_USAGE, 0, &usage, sizeof usage);
}

/* ---- the loop ---- */

/* A task is told of as ended when all that it wrote has been passed on. */
static void tell_ends(void)
{
    for (int at = 0; at < task_count; at++) {
        struct task *task = &tasks[at];
        if (task->alive || task->told)
            continue;
        while (pump(at, &task->out, SAY_OUT) || pump(at, &task->err, SAY_ERR))
            ;
        task->told = true;
        say(SAY_EXIT, (unsigned)task->rank, &task->end, sizeof task->end);
    }
}

static void turn(struct pollfd *fds, int64_t *usage_ms)
{
    int count = 0;
    fds[count++] = (struct pollfd){.fd = connection, .events = POLLIN};
    fds[count++] = (struct pollfd){.fd = signals, .events = POLLIN};
    for (int at = 0; at < task_count; at++) {
        fds[count++] = (struct pollfd){.fd = tasks[at].out, .events = POLLIN};
        fds[count++] = (struct pollfd){.fd = tasks[at].err, .events = POLLIN};
        fds[count++] = (struct pollfd){.fd = tasks[at].waiting.used > 0 ? tasks[at].in : -1,
                                       .events = POLLOUT};
    }
    int64_t left = *usage_ms - now_ms();
    poll(fds, (nfds_t)count, left < 0 ? 0 : (int)left);
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == (ssize_t)sizeof info)
        ;
    for (int at = 0; at < task_count; at++) {
        if (fds[2 + 3 * at].revents != 0)
            pump(at, &tasks[at].out, SAY_OUT);
        if (fds[3 + 3 * at].revents != 0)
            pump(at, &tasks[at].err, SAY_ERR);
    }
    if (fds[0].revents != 0)
        hear();
    feed();
    reap();
    tell_ends();
    if (now_ms() >= *usage_ms) {
        say_usage();
        *usage_ms = now_ms() + USAGE_MS;
    }
}

static void name_ranks(void)
{
    struct bytes all = {0};
    char text[32];
    for (int at = 0; at < task_count; at++) {
        snprintf(text, sizeof text, "%s%d", at > 0 ? "," : "", tasks[at].rank);
        bytes_add(&all, text, strlen(text));
    }
    bytes_add(&all, "", 1);
    launch.ranks_here = all.data;
}

_Noreturn void tasks_serve(int fd, const struct who *ours, char *records, size_t length)
{
    char *at = records, *key, *value;
    sigset_t all;
    launch.who = ours;
    connection = fd;
    launch.host = launch.who->peers[launch.who->rank].name;
    tasks = must_have(calloc(MOST_TASKS, sizeof *tasks));
    launch.environment = must_have(calloc(length / 2 + 2, sizeof *launch.environment));
    common = must_have(calloc(length / 2 + 2, sizeof *common));
    while ((key = record_next(&at, records + length, &value)) != NULL)
        take(key, value);
    name_ranks();
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    for (int each = 0; each < task_count; each++) {
        bool runs = (tasks[each].words != NULL || common_count > 0) && start(&tasks[each], each);
        uint32_t pid = (uint32_t)tasks[each].pid;
        if (!runs)
            tasks[each].end.status = (uint32_t)(errno & 0xff) << 8;
        else
            say(SAY_STARTED, (unsigned)tasks[each].rank, &pid, sizeof pid);
    }
    struct pollfd *fds = must_have(calloc(2 + 3 * (size_t)task_count, sizeof *fds));
    int64_t usage_ms = now_ms() + USAGE_MS;
    tell_ends();
    while (living() > 0)
        turn(fds, &usage_ms);
    tell_ends();
    kill_all(); /* what they left behind */
    say(SAY_DONE, 0, "", 0);
    leave_line(connection);
    _exit(0);
}
