/* Watches one rank: its output, the agent's commands, its time, its end. One thread, one poll. */
#include "guard.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define CHUNK 65536
#define WINDOW_NS (100 * NS_PER_MS)      /* the log's rate is kept over this span */

static bool execed(const struct guard *guard)
{
    return boxed(guard) ? guard->box.execed : guard->child.status_fd < 0;
}

static void signal_ranks(struct guard *guard, int number)
{
    if (boxed(guard)) {
        if (guard->box.main_fd >= 0)
            ranks_signal(guard->box.main, guard->box.main_fd, number);
        return;
    }
    int main_fd = (int)syscall(SYS_pidfd_open, guard->child.pid, 0);
    ranks_signal(guard->child.pid, main_fd, number);
    close(main_fd);
}

/* Signals that end or continue it go to the main process, all others to the plan's receiver. Before
 * its exec the child still ignores the shim's ignored signals. A signal would be lost, so it is
 * kept until then. */
static void signal_main(struct guard *guard, int number)
{
    if (!guard->main_alive || number <= 0)
        return;
    if (!execed(guard) && number != SIGKILL)
        guard->early_signals |= 1ull << (number - 1);
    else if (guard->plan->to_ranks && number != SIGKILL && number != SIGCONT)
        signal_ranks(guard, number);
    else if (boxed(guard))
        container_signal(&guard->box, number);
    else
        kill(guard->child.pid, number);
}

void guard_deliver_early_signals(struct guard *guard)
{
    for (int number = 1; number <= 64; number++)
        if (guard->early_signals & (1ull << (number - 1)))
            signal_main(guard, number);
}

/* ---- the end ---- */

/* Reaps all dead children. The subreaper's children are the whole job, so "no child left" proves
 * that nothing of it is left. */
void guard_reap(struct guard *guard)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (boxed(guard)) {
            boxed_child_ended(guard, pid, status);
            continue;
        }
        if (pid != guard->child.pid)
            continue;
        guard->main_alive = false;
        guard->ending.reaped = true;
        guard->ending.wait_status = status;
    }
    guard->childless = pid < 0 && errno == ECHILD;
}

/* Once true, it stays true: nothing is left that could start more. */
static bool empty(struct guard *guard)
{
    if (boxed(guard))
        return boxed_empty(guard);
    if (!guard->gone)
        guard->gone = guard->childless && cgroup_count(guard->plan) == 0;
    return guard->gone;
}

static int remaining(const struct guard *guard)
{
    if (boxed(guard))
        return cgroup_count_below(guard->plan, true);
    return guard->gone ? 0 : cgroup_count(guard->plan);
}

void guard_slow_down(struct guard *guard)
{
    guard->kill_every = guard->kill_every == 0 ? KILL_FIRST_NS : 2 * guard->kill_every;
    if (guard->kill_every > KILL_LAST_NS)
        guard->kill_every = KILL_LAST_NS;
}

/* The groups first: that is atomic where it can be. Processes that remain a round later may have
 * left the groups (a job that runs as root can). Then the tree is killed too, which means a walk
 * over /proc. */
static void kill_round(struct guard *guard)
{
    bool first = guard->kill_every == 0;
    bool grouped = cgroup_count(guard->plan) > 0;
    signal_main(guard, SIGKILL);
    if (grouped)
        cgroup_kill(guard->plan);
    if (!guard->childless && !(grouped && first))
        tree_kill();
    guard_reap(guard);
    guard_slow_down(guard);
}

/* The first reason stands; a main process that had already left by itself has "exited". */
void guard_end(struct guard *guard, const char *why)
{
    if (guard->ending_since != 0)
        return;
    guard_reap(guard);
    if (boxed(guard))
        boxed_keep_usage(guard);
    guard->ending.why = guard->main_alive ? why : "exited";
    guard->ending_since = guard->next_kill = clock_ns(CLOCK_BOOTTIME);
}

static int64_t longest(const struct guard *guard)
{
    return boxed(guard) ? BOXED_UNKILLABLE_NS : UNKILLABLE_NS;
}

static bool over(struct guard *guard)
{
    if (guard->ending_since == 0)
        return false;
    return empty(guard) || clock_ns(CLOCK_BOOTTIME) > guard->ending_since + longest(guard);
}

/* ---- time ---- */

/* The blunt signal late in a grace. Not after the same signal has been sent: a second SIGTERM kills
 * a saving program whose handler has put the default back. */
static void press(struct guard *guard)
{
    signal_main(guard, SIGCONT);
    if (guard->last_signal != SIGTERM)
        signal_main(guard, SIGTERM);
    guard->last_signal = SIGTERM;
}

/* A job that the agent has asked to leave is not asked again: it saves already. */
static bool told_to_stop(const struct guard *guard)
{
    return guard->lease.stop.kill_at != 0;
}

static void notice(struct guard *guard, int64_t now)
{
    if (told_to_stop(guard))
        return;
    guard->ending.noticed = "hold_expired";
    guard->ending.noticed_boottime_ns = now;
    guard->notice_until = guard->lease.hold.kill_at;
    record_notice(guard->dir_fd, guard->plan, guard->lease.hold.kill_at - now);
    guard->last_signal = guard->plan->signal;
    signal_main(guard, guard->plan->signal);
}

/* The file goes and the record stays: a leaving job does not turn back until its grace is over. */
static void withdraw(struct guard *guard)
{
    if (!told_to_stop(guard))
        unlinkat(guard->dir_fd, "notice.json", 0);
}

static void forget_old_notice(struct guard *guard)
{
    if (guard->notice_until != 0 && guard->ending_since > guard->notice_until &&
        !guard->lease.hold.noticed && !told_to_stop(guard))
        guard->ending.noticed = NULL;
}

static void act(struct guard *guard, enum due due, int64_t now)
{
    switch (due) {
    case DUE_HOLD_NOTICE:
        notice(guard, now);
        break;
    case DUE_HOLD_WITHDRAWN:
        withdraw(guard);
        break;
    case DUE_TERM:
        press(guard);
        break;
    case DUE_STOP_KILL:
        guard_end(guard, "stopped");
        break;
    case DUE_HOLD_KILL:
        guard_end(guard, "hold_expired");
        break;
    case DUE_NOTHING:
        break;
    }
}

static void check_time(struct guard *guard, int64_t now)
{
    enum due due;
    while (guard->ending_since == 0 && (due = lease_due(&guard->lease, now)) != DUE_NOTHING)
        act(guard, due, now);
    if (guard->ending_since != 0 && now >= guard->next_kill) {
        if (boxed(guard))
            boxed_kill_round(guard, now);
        else
            kill_round(guard);
        guard->next_kill = now + guard->kill_every;
    }
}

static bool throttled(const struct guard *guard, int64_t now)
{
    return guard->plan->log_bytes_per_s > 0 && guard->window_left <= 0 && now < guard->window_end;
}

static void set_timer(struct guard *guard, int64_t now)
{
    int64_t at = guard->ending_since != 0 ? guard->next_kill : lease_next(&guard->lease);
    if (boxed(guard) && boxed_next(guard) < at)
        at = boxed_next(guard);
    if (throttled(guard, now) && guard->window_end < at)
        at = guard->window_end;
    if (at < 1)
        at = 1;
    struct itimerspec when = {.it_value = {.tv_sec = at / NS_PER_S, .tv_nsec = at % NS_PER_S}};
    timerfd_settime(guard->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/* ---- incoming words ---- */

static void obey(void *who, const struct command *command)
{
    struct guard *guard = who;
    switch (command->kind) {
    case COMMAND_SIGNAL:
        signal_main(guard, command->signal);
        break;
    case COMMAND_KILL:
        guard_end(guard, "killed");
        break;
    case COMMAND_HOLD:
        lease_hold(&guard->lease, command->hold_ns, clock_ns(CLOCK_BOOTTIME));
        break;
    case COMMAND_STOP:
        guard->ending.noticed = "stop";
        guard->ending.noticed_boottime_ns = clock_ns(CLOCK_BOOTTIME);
        lease_stop(&guard->lease, command->grace_ns, command->term_ns, clock_ns(CLOCK_BOOTTIME));
        if (command->signal > 0)
            guard->last_signal = command->signal;
        signal_main(guard, command->signal);
        break;
    }
}

/* A reader of the job's output sees it too: one line, in the same words as the record. */
void guard_log_start_error(struct guard *guard)
{
    char line[sizeof guard->words + 64];
    int length = snprintf(line, sizeof line, "dlq: cannot run the job: %s: %s\n",
                          guard->ending.start_error.stage, guard->words);
    if (length > 0 && (size_t)length < sizeof line)
        logring_append(&guard->ring, line, (size_t)length);
}

/* Then its exit record comes at once: the start record need not wait for the disk. */
static bool has_ended(const struct child *child)
{
    siginfo_t info = {.si_pid = 0};
    int flags = WEXITED | WNOHANG | WNOWAIT;
    return waitid(P_PID, (id_t)child->pid, &info, flags) == 0 && info.si_pid != 0;
}

static void read_status(struct guard *guard)
{
    struct start_error error;
    ssize_t got = read(guard->child.status_fd, &error, sizeof error);
    if (got < 0)
        return;
    close(guard->child.status_fd);
    guard->child.status_fd = -1;
    if (got == (ssize_t)sizeof error) {
        guard->ending.start_error = error;
        child_words(guard->plan, &error, guard->words, sizeof guard->words);
        guard->ending.start_error_text = guard->words;
        guard_log_start_error(guard);
    } else {
        record_started(guard->dir_fd, guard->plan, guard->child.pid, guard->boot_id,
                       guard->ending.started_boottime_ns, guard->ending.started_wall_ns);
        if (!has_ended(&guard->child))
            fsync(guard->dir_fd);
    }
    guard_deliver_early_signals(guard);
}

/* Returns false when there is nothing (more) to read now. */
bool guard_pump(struct guard *guard)
{
    static char bytes[CHUNK];
    ssize_t got = read(guard->child.log_fd, bytes, sizeof bytes);
    if (got == 0) {
        close(guard->child.log_fd);
        guard->child.log_fd = -1;
    }
    if (got <= 0)
        return false;
    logring_append(&guard->ring, bytes, (size_t)got);
    if (boxed(guard) && !guard->box.execed)
        boxed_keep_words(guard, bytes, (size_t)got);
    guard->window_left -= got;
    return true;
}

static void pump_at_rate(struct guard *guard, int64_t now)
{
    if (now >= guard->window_end) {
        guard->window_end = now + WINDOW_NS;
        guard->window_left = guard->plan->log_bytes_per_s / (NS_PER_S / WINDOW_NS);
    }
    guard_pump(guard);
}

static void turn(struct guard *guard)
{
    int64_t now = clock_ns(CLOCK_BOOTTIME);
    set_timer(guard, now);
    struct pollfd fds[] = {
        {.fd = boxed(guard) ? guard->box.socket : guard->child.status_fd, .events = POLLIN},
        {.fd = throttled(guard, now) ? -1 : guard->child.log_fd, .events = POLLIN},
        {.fd = guard->ctl.fd, .events = POLLIN},
        {.fd = guard->timer_fd, .events = POLLIN},
        {.fd = guard->signal_fd, .events = POLLIN},
        {.fd = boxed(guard) ? guard->box.init_fd : -1, .events = POLLIN},
    };
    poll(fds, sizeof fds / sizeof *fds, -1);
    now = clock_ns(CLOCK_BOOTTIME);
    if (fds[0].revents != 0 && !boxed(guard))
        read_status(guard);
    if (fds[1].revents != 0)
        pump_at_rate(guard, now);
    if (fds[2].revents != 0)
        ctl_receive(&guard->ctl, obey, guard);
    if (fds[4].revents != 0) {
        struct signalfd_siginfo info;
        while (read(guard->signal_fd, &info, sizeof info) > 0)
            ;
        guard_reap(guard);
        if (!guard->main_alive)
            guard_end(guard, "exited");
    }
    if (boxed(guard) && ((fds[0].revents | fds[4].revents | fds[5].revents) != 0 ||
                         now >= boxed_next(guard)))
        boxed_look(guard);
    if (guard->ending_since == 0 || !empty(guard))
        check_time(guard, now);
}

/* ---- beginning and end ---- */

static const char *set_up(struct guard *guard)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    guard->signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    guard->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (guard->signal_fd < 0 || guard->timer_fd < 0)
        return "shim";
    if (lease_start(&guard->lease, guard->plan, guard->boot_id, clock_ns(CLOCK_BOOTTIME)) != 0)
        return "contact";
    if (ctl_open(&guard->ctl, guard->dir_fd, guard->plan) != 0)
        return "ctl";
    if (logring_open(&guard->ring, guard->dir_fd, guard->plan) != 0)
        return "log";
    guard->ending.started_boottime_ns = clock_ns(CLOCK_BOOTTIME);
    guard->ending.started_wall_ns = clock_ns(CLOCK_REALTIME);
    if (boxed(guard))
        return boxed_set_up(guard);
    if (child_start(guard->plan, &guard->child) != 0)
        return "fork";
    guard->main_alive = true;
    return NULL;
}

static void fill_usage(struct guard *guard)
{
    struct rusage spent;
    if (boxed(guard))
        boxed_write_ending(guard);
    else
        guard->ending.usage = cgroup_usage(guard->plan);
    if (getrusage(RUSAGE_CHILDREN, &spent) != 0)
        return;
    if (guard->ending.usage.cpu_ns < 0)
        guard->ending.usage.cpu_ns =
            (spent.ru_utime.tv_sec + spent.ru_stime.tv_sec) * NS_PER_S +
            (spent.ru_utime.tv_usec + spent.ru_stime.tv_usec) * 1000;
    if (guard->ending.usage.peak_memory_bytes < 0) /* of the largest process, not of the sum */
        guard->ending.usage.peak_memory_bytes = (int64_t)spent.ru_maxrss * 1024;
}

static void write_ending(struct guard *guard)
{
    if (guard->child.status_fd >= 0)
        read_status(guard);
    /* The writers are dead; at most the pipe's content is left. The bound is for a descriptor that
     * a process outside the job holds. */
    for (int piece = 0; piece < 64 && guard->child.log_fd >= 0 && guard_pump(guard); piece++)
        ;
    if (guard->ending.start_error.stage[0] != '\0' && strcmp(guard->ending.why, "exited") == 0)
        guard->ending.why = "start_error";
    forget_old_notice(guard);
    fill_usage(guard);
    guard->ending.log_bytes = guard->ring.end;
    guard->ending.dropped_log_bytes = guard->ring.dropped;
    guard->ending.refused_commands = guard->ctl.refused;
    guard->ending.remaining_pids = remaining(guard);
    if (guard->ending.remaining_pids == 0 && !guard->childless)
        guard->ending.remaining_pids = tree_kill();
    record_exit(guard->dir_fd, guard->plan, &guard->ending, guard->boot_id);
}

void guard_run(int dir_fd, const struct plan *plan, const char *boot_id)
{
    struct guard guard = {.dir_fd = dir_fd, .plan = plan, .boot_id = boot_id,
                          .child = {.status_fd = -1, .log_fd = -1},
                          .box = {.socket = -1, .init_fd = -1, .main_fd = -1}};
    const char *stage = set_up(&guard);
    if (stage != NULL) {
        guard.ending.why = "start_error";
        guard.ending.start_error.error = errno;
        snprintf(guard.ending.start_error.stage, sizeof guard.ending.start_error.stage, "%s",
                 stage);
        if (guard.ending.start_error_text != NULL)
            guard_log_start_error(&guard);
        guard.ending.usage = (struct usage){-1, -1, -1};
        guard.ending.log_bytes = guard.ring.end;
        record_exit(dir_fd, plan, &guard.ending, boot_id);
        return;
    }
    while (!over(&guard))
        turn(&guard);
    write_ending(&guard);
}
