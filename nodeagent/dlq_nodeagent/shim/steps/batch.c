/* `batch`: the main process of a rank with compat = slurm, the counterpart of slurmstepd.
 *
 *   batch COMMAND...   on rank 0: runs the batch script, serves its steps, and ends as it ends
 *   batch --hold       on the others: serves steps, and ends well when rank 0 has ended
 *
 * `--chdir DIRECTORY` before the command: the job's own, which the agent could not enter. It has
 * started us in another one.
 *
 * Signals go to the steps that run, or without one to the batch script; a cancel goes to both. A
 * holder lets them pass, as rank 0 passes them to the tasks of all nodes. `scontrol requeue` makes
 * rank 0 end with exit code 99. When the agent or the master restarts, or is silent, nothing
 * changes here: it is part of the job. */
#include "steps.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REQUEUE_CODE 99
#define REQUEUE_MS 5000      /* from the signal of a requeue to the end */
#define HOLD_FIRST_MS 25     /* between two tries to reach rank 0: doubled each time ... */
#define HOLD_AGAIN_MS 1000   /* ... up to this */
#define HOLD_MIRRORS_MS 15000 /* the master ends us sooner when rank 0 failed */
#define LIMIT_SLACK_S 2
#define STEPS_MS 30000 /* for steps that the script has left, as in Slurm */
#define CONTINUED_MS 1000 /* between CONT and TERM of a cancel ... */
#define TOGETHER_MS 50    /* ... or between TERM and CONT */
#define MOST_FDS 8200

extern char **environ;

static struct who who;
static pid_t program, holder;
static int ended_as; /* status of the script */
static int fifo = -1, signals;
static int64_t end_ms, hold_again_ms, hold_pause_ms = HOLD_FIRST_MS, continued_ms, leave_ms;
static bool told_to_end;
static int script_signal; /* of sbatch --signal=B: */
static long limit_s;      /* the job's time limit, UTC */
static char fifo_path[4200], words[4096];
static size_t words_used;

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL ? value : "";
}

static int fail(const char *what)
{
    dprintf(2, "dlq: batch: %s: %s\n", what, strerror(errno));
    return 125;
}

/* ---- who we are: the agent says it in our environment ---- */

/* DLQ_STEP_PEERS: "NAME ADDRESS PORT GPUS CPUS" of all nodes, with ';' between them. */
static bool read_peers(struct bytes *records)
{
    char *all = strdup(variable("DLQ_STEP_PEERS")), *rest = all;
    int count = 0;
    for (char *each; (each = strsep(&rest, ";")) != NULL;)
        if (*each != '\0') {
            bytes_record(records, "peer", each);
            count++;
        }
    free(all);
    return count > 0;
}

static bool read_who(void)
{
    struct bytes records = {0};
    char directory[4096];
    snprintf(directory, sizeof directory, "%s", variable("DLQ_BEAT_FILE"));
    char *slash = strrchr(directory, '/');
    if (slash == NULL || !read_peers(&records))
        return false;
    *slash = '\0';
    bytes_record(&records, "rank", variable("DLQ_STEP_RANK"));
    bytes_record(&records, "job", variable("DLQ_JOB_ID"));
    bytes_record(&records, "user", variable("SLURM_JOB_USER"));
    bytes_record(&records, "dir", directory);
    if (*variable("DLQ_STEP_KEY") != '\0')
        bytes_record(&records, "key", variable("DLQ_STEP_KEY"));
    unsetenv("DLQ_STEP_KEY"); /* programs ask us for it, by the socket */
    unsetenv("DLQ_STEP_PEERS");
    unsetenv("DLQ_STEP_RANK");
    script_signal = atoi(variable("DLQ_SCRIPT_SIGNAL"));
    limit_s = atol(variable("DLQ_TIME_LIMIT_END"));
    return who_parse(&who, records.data, records.used);
}

/* A copy: a task clears its environment before it takes ours over. */
static char **own_environment(void)
{
    size_t count = 0;
    while (environ[count] != NULL)
        count++;
    char **copy = must_have(calloc(count + 1, sizeof *copy));
    for (size_t at = 0; at < count; at++)
        copy[at] = must_have(strdup(environ[at]));
    return copy;
}

/* Our own programs come first, before any PATH of the job or its image. */
static void set_path(void)
{
    char own[4096], path[8192 + 4096];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    char *slash = length <= 0 ? NULL : memrchr(own, '/', (size_t)length);
    if (slash == NULL)
        return;
    *slash = '\0';
    const char *before = getenv("PATH");
    snprintf(path, sizeof path, "%s:%.8000s", own, before != NULL ? before : "/bin:/usr/bin");
    setenv("PATH", path, 1);
}

/* ---- the batch script ---- */

static void enter(const char *directory)
{
    if (directory != NULL && chdir(directory) != 0)
        dprintf(2, "slurmstepd-%s: error: couldn't chdir to `%s': %s: going to /tmp instead\n",
                who.peers[who.rank].name, directory, strerror(errno));
}

static pid_t start(const char *directory, char **command)
{
    pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    reset_signals();
    restore_files();
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent)
        _exit(125);
    char own[24];
    snprintf(own, sizeof own, "%ld", (long)getpid());
    setenv("SLURM_TASK_PID", own, 1);
    enter(directory);
    execvp(command[0], command);
    int missing = errno == ENOENT || errno == ENOTDIR;
    dprintf(2, "dlq: cannot run %s: %s\n", command[0], strerror(errno));
    _exit(missing ? 127 : 126);
}

static void make_fifo(void)
{
    snprintf(fifo_path, sizeof fifo_path, "%s/slurm", who.job_dir);
    unlink(fifo_path);
    if (mkfifo(fifo_path, 0600) == 0) /* opened for writing too: so it never reads as ended */
        fifo = open(fifo_path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    setenv("DLQ_SLURM_CONTROL", fifo_path, 1);
}

/* As slurmstepd: programs look for this line in the job's output. */
static void say_cancelled(void)
{
    static bool said;
    char when[32];
    time_t now = time(NULL);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", localtime(&now));
    if (!said)
        dprintf(2, "slurmstepd: error: *** JOB %s ON %s CANCELLED AT %s%s ***\n", who.job,
                who.peers[who.rank].name, when,
                limit_s != 0 && now + LIMIT_SLACK_S >= limit_s ? " DUE TO TIME LIMIT" : "");
    said = true;
}

static bool was_continued(void)
{
    return continued_ms != 0 && now_ms() - continued_ms < CONTINUED_MS;
}

/* To the steps that run, else to the program. A cancel and a time limit send CONT and TERM together.
 * These end both, as in Slurm: the script must not go on to its next step. */
static void pass_on(int number)
{
    bool ends = number == SIGTERM && was_continued();
    if (ends)
        say_cancelled();
    if (program > 0 && (ends || number == script_signal))
        kill(program, number); /* first: it must not go on when its step has ended */
    if (number == script_signal && program > 0)
        return;
    if (kids_signal(number) == 0 && program > 0 && !ends)
        kill(program, number);
}

bool batch_signal(int number)
{
    return program > 0 && number > 0 && kill(program, number) == 0;
}

static void hear_fifo(void)
{
    ssize_t got = read(fifo, words + words_used, sizeof words - 1 - words_used);
    if (got <= 0)
        return;
    words_used += (size_t)got;
    words[words_used] = '\0';
    char *line = words, *end;
    for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        if (strcmp(line, "requeue") == 0 && end_ms == 0) {
            end_ms = now_ms() + REQUEUE_MS;
            pass_on(SIGCONT);
            pass_on(SIGTERM);
        }
    }
    words_used = strlen(line) < sizeof words / 2 ? strlen(line) : 0;
    memmove(words, line, words_used);
}

/* ---- a holder ---- */

/* In a process of its own: waits for the word of rank 0, and ends with its code, or else with 255.
 */
static void ask_rank_0(void)
{
    struct frame frame;
    char *payload;
    uint32_t code;
    pid_t parent = getpid();
    holder = fork();
    if (holder < 0) { /* no more processes: again later */
        holder = 0;
        hold_again_ms = now_ms() + HOLD_AGAIN_MS;
    }
    if (holder != 0 || getpid() == parent)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent)
        _exit(255);
    int fd = dial_once(&who, 0);
    if (fd < 0 || !send_frame(fd, ASK_HOLD, 0, "", 0) || !receive_frame(fd, -1, &frame, &payload) ||
        frame.type != STEP_OVER || frame.length != sizeof code)
        _exit(255);
    memcpy(&code, payload, sizeof code);
    _exit(code & 0xff);
}

/* The agent reads it and tells the master: with rank 0 the job is done, whatever we hear of it. */
static void say_that_we_serve(void)
{
    int at = open(who.job_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd =
        at < 0 ? -1 : openat(at, "workers_done", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && write(fd, "yes", 3) == 3)
        close(fd);
    if (at >= 0)
        close(at);
}

static _Noreturn void end_with(int code)
{
    records_write(who.job_dir, true);
    _exit(code);
}

static void holder_ended(int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 255;
    holder = 0;
    if (code == 0 || code == REQUEUE_CODE)
        end_with(code);
    if (code != 255) {
        struct pollfd told = {.fd = signals, .events = POLLIN};
        if (!told_to_end)
            poll(&told, 1, HOLD_MIRRORS_MS);
        end_with(code);
    }
    if (told_to_end)
        end_with(0);
    hold_again_ms = now_ms() + hold_pause_ms;
    hold_pause_ms = 2 * hold_pause_ms < HOLD_AGAIN_MS ? 2 * hold_pause_ms : HOLD_AGAIN_MS;
}

/* ---- the loop ---- */

/* The end of rank 0, as its script ended. */
static _Noreturn void finish(void)
{
    int number = WIFSIGNALED(ended_as) ? WTERMSIG(ended_as) : 0;
    int code = end_ms != 0 ? REQUEUE_CODE : number != 0 ? 128 + number : WEXITSTATUS(ended_as);
    kids_hear(); /* a step that ended with the script has its own code */
    kids_bye(code);
    if (number != 0 && code != REQUEUE_CODE) {
        struct rlimit none = {0, 0};
        records_write(who.job_dir, true);
        setrlimit(RLIMIT_CORE, &none);
        reset_signals();
        kill(getpid(), number);
    }
    end_with(code);
}

/* Steps that it has left get CONT and TERM, and KILL with the rank, as in Slurm. */
static void program_ended(int status)
{
    program = 0;
    ended_as = status;
    leave_ms = now_ms() + STEPS_MS;
    hear_fifo(); /* a request that came just before the end */
    kids_hear();
    kids_close();
    kids_signal(SIGCONT);
    if (kids_signal(SIGTERM) == 0)
        finish();
}

static void reap(void)
{
    int status;
    struct rusage used;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0) {
        kids_reaped(pid);
        if (pid == program) {
            records_script(&used);
            program_ended(status);
        }
        if (pid == holder)
            holder_ended(status);
    }
}

static void hear_signal(int number)
{
    if (number == SIGCHLD || number == SIGPIPE)
        return;
    if (who.rank == 0) {
        pass_on(number);
    } else {
        told_to_end = true; /* or to save: the tasks of rank 0 do that here */
        if (number == SIGTERM && holder == 0)
            end_with(0);
    }
}

/* The signals that have come, as bits. */
static uint64_t read_signals(void)
{
    struct signalfd_siginfo info;
    uint64_t heard = 0;
    while (read(signals, &info, sizeof info) == (ssize_t)sizeof info)
        heard |= 1ull << (info.ssi_signo - 1);
    return heard;
}

static void hear_signals(void)
{
    const uint64_t term = 1ull << (SIGTERM - 1), cont = 1ull << (SIGCONT - 1);
    uint64_t heard = read_signals();
    int64_t until = now_ms() + TOGETHER_MS;
    struct pollfd more = {.fd = signals, .events = POLLIN};
    /* On its way through another process the CONT of a cancel may come second. */
    while (program > 0 && (heard & term) && !(heard & cont) && !was_continued() &&
           now_ms() < until) {
        poll(&more, 1, TOGETHER_MS);
        heard |= read_signals();
    }
    if (heard & cont)
        continued_ms = now_ms();
    for (int number = 1; number <= 64; number++)
        if (heard & (1ull << (number - 1)))
            hear_signal(number);
}

static int pause_for(int records_ms)
{
    int64_t wait = records_ms;
    int64_t at[] = {end_ms, leave_ms, holder == 0 && who.rank > 0 ? hold_again_ms : 0};
    for (int each = 0; each < 3; each++)
        if (at[each] != 0) {
            int64_t left = at[each] - now_ms();
            left = left < 0 ? 0 : left;
            wait = wait < 0 || left < wait ? left : wait;
        }
    return (int)wait;
}

static _Noreturn void serve(void)
{
    static struct pollfd fds[MOST_FDS];
    for (;;) {
        fds[0] = (struct pollfd){.fd = signals, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = fifo, .events = POLLIN};
        int count = kids_poll(fds + 2, MOST_FDS - 2);
        poll(fds, (nfds_t)count + 2, pause_for(records_write(who.job_dir, false)));
        if (fds[1].revents != 0)
            hear_fifo();
        if (fds[0].revents != 0)
            hear_signals();
        reap();
        kids_turn(fds + 2, count);
        if (holder == 0 && who.rank > 0 && now_ms() >= hold_again_ms)
            ask_rank_0();
        if (leave_ms != 0 && (kids_running() == 0 || now_ms() >= leave_ms))
            finish();
        if (end_ms != 0 && now_ms() >= end_ms) {
            if (program > 0)
                kill(program, SIGKILL); /* other processes end with the rank */
            kids_bye(REQUEUE_CODE);
            end_with(REQUEUE_CODE);
        }
    }
}

int batch_main(int argc, char **argv)
{
    sigset_t all;
    const char *directory = NULL;
    if (argc > 2 && strcmp(argv[1], "--chdir") == 0) {
        directory = argv[2];
        argv += 2;
        argc -= 2;
    }
    bool holds = argc == 2 && strcmp(argv[1], "--hold") == 0;
    if (argc < 2)
        return fail("there is nothing to run");
    if (!read_who())
        return fail("the agent has not said which rank this is");
    struct peer *own = &who.peers[who.rank];
    int unix_fd = listen_unix(who.job_dir);
    if (unix_fd < 0)
        return fail(who.job_dir);
    int tcp_fd = who.has_key && who.node_count > 1 ? listen_tcp(own->address, own->port) : -1;
    if (tcp_fd < 0 && who.has_key && who.node_count > 1) /* behind another address */
        tcp_fd = listen_tcp("::", own->port);
    if (tcp_fd < 0 && who.has_key && who.node_count > 1) {
        /* Another program has taken it: it must not pass for us. Another attempt has another one. */
        dprintf(2, "dlq: batch: port %d of this node: %s: the job is queued again\n", own->port,
                strerror(errno));
        return REQUEUE_CODE;
    }
    raise_files();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    kids_begin(&who, unix_fd, tcp_fd);
    if (holds) {
        hold_again_ms = now_ms();
        say_that_we_serve();
    } else {
        make_fifo();
        set_path();
        program = start(directory, argv + 1);
        if (program < 0)
            return fail("fork");
    }
    who.environment = own_environment();
    serve();
}
