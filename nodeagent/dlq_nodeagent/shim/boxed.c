/* Guards a rank that is a container: the messages of dlq-init, the meaning of its silence, and the
 * order of the container's removal. */
#include "guard.h"

#include "init/message.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CLIENT_NS (180 * NS_PER_S) /* podman may take so long to make a container */
#define CONMON_NS (10 * NS_PER_S) /* podman's own tidying up after a container may take */
#define MAX_SWEEPS 5
#define SWEEP_NS (20 * NS_PER_S)  /* and ours after that */

bool boxed(const struct guard *guard)
{
    return guard->plan->podman[0] != NULL;
}

const char *boxed_set_up(struct guard *guard)
{
    size_t at;
    const char *wrong = mounts_pin(guard->dir_fd, guard->plan, &at);
    if (wrong != NULL && at == guard->plan->mount_count) {
        guard->ending.start_error_text = wrong;
        return "container";
    }
    if (wrong != NULL) {
        snprintf(guard->words, sizeof guard->words, "'%.160s' %s%s%s", guard->plan->mounts[at],
                 wrong, errno == 0 ? "" : ": ", errno == 0 ? "" : strerror(errno));
        guard->ending.start_error_text = guard->words;
        return "mount";
    }
    const char *stage = container_start(guard->dir_fd, guard->plan, &guard->box, &guard->child);
    guard->main_alive = stage == NULL;
    return stage;
}

/* ---- the reports about it ---- */

static void note_started(struct guard *guard)
{
    guard->box.execed = true;
    record_started(guard->dir_fd, guard->plan, guard->box.main, guard->boot_id,
                   guard->ending.started_boottime_ns, guard->ending.started_wall_ns);
    fsync(guard->dir_fd);
    guard_deliver_early_signals(guard);
}

static void note_failed(struct guard *guard, const char *stage, int error, const char *words)
{
    guard->ending.start_error.error = error;
    snprintf(guard->ending.start_error.stage, sizeof guard->ending.start_error.stage, "%s", stage);
    if (words == NULL)
        child_words(guard->plan, &guard->ending.start_error, guard->words, sizeof guard->words);
    else
        snprintf(guard->words, sizeof guard->words, "%s", words);
    guard->ending.start_error_text = guard->words;
    guard_log_start_error(guard);
    guard->main_alive = false;
    guard_end(guard, "exited");
}

static void note_ended(struct guard *guard, int status)
{
    guard->main_alive = false;
    guard->ending.reaped = true;
    guard->ending.wait_status = status;
    guard_end(guard, "exited");
}

static void listen_to_init(struct guard *guard)
{
    struct init_message message;
    while (guard->box.socket >= 0 && container_receive(&guard->box, &message)) {
        if (!guard->main_alive)
            continue;
        if (message.kind == INIT_EXECED && !guard->box.execed)
            note_started(guard);
        else if (message.kind == INIT_FAILED && !guard->box.execed)
            note_failed(guard, message.stage, message.value, NULL);
        else if (message.kind == INIT_ENDED && guard->box.execed)
            note_ended(guard, message.value);
    }
}

static const char *why_no_container(const struct container *box)
{
    if (box->client_done && WIFSIGNALED(box->client_status))
        return "podman was killed while it made the container";
    if (box->last_line[0] != '\0')
        return box->last_line;
    return box->init == 0 ? "podman made no container" : "the container ended before the job began";
}

/* Whether there is no container, or none any more. */
static bool box_gone(struct guard *guard)
{
    struct container *box = &guard->box;
    struct pollfd init = {.fd = box->init_fd, .events = POLLIN};
    if (box->init == 0)
        return box->client_done && (box->client_status != 0 || guard->childless);
    if (box->init_fd >= 0 && poll(&init, 1, 0) > 0) {
        close(box->init_fd);
        box->init_fd = -1;
    }
    return box->init_fd < 0;
}

int64_t boxed_next(const struct guard *guard)
{
    bool waits = !guard->box.client_done && guard->ending_since == 0;
    return waits ? guard->ending.started_boottime_ns + CLIENT_NS : INT64_MAX;
}

void boxed_look(struct guard *guard)
{
    bool gone = box_gone(guard); /* looked at before its last words are read, so none are missed */
    listen_to_init(guard);
    if (gone && guard->main_alive && box_gone(guard)) {
        /* Only SIGKILL ends process 1 without a word, also before its report that the program runs.
         * A program that was about to run and has not failed counts as run. */
        if (guard->box.main != 0 || guard->ending_since != 0) {
            note_ended(guard, SIGKILL);
        } else {
            while (guard->child.log_fd >= 0 && guard_pump(guard))
                ;
            note_failed(guard, "container", 0, why_no_container(&guard->box));
        }
    }
    if (clock_ns(CLOCK_BOOTTIME) >= boxed_next(guard) && guard->main_alive)
        note_failed(guard, "container", ETIMEDOUT, "podman takes too long to make the container");
    if (guard->ending_since != 0 && guard->box.sweeps == 0)
        guard->next_kill = 0; /* each step of the end waits for the end of a process */
}

void boxed_child_ended(struct guard *guard, pid_t pid, int status)
{
    struct container *box = &guard->box;
    if (pid == box->client && !box->client_done) {
        box->client_done = true;
        box->client_status = status;
    } else if (pid == box->sweeper) {
        /* podman may refuse while it still finds out that the container has stopped. */
        box->swept = status == 0 || ++box->sweeps == MAX_SWEEPS;
        box->sweeper = box->swept ? box->sweeper : 0;
    } /* else: conmon, or process 1 of a container whose conmon was killed */
}

void boxed_keep_words(struct guard *guard, const char *bytes, size_t length)
{
    struct container *box = &guard->box;
    while (length > 0 && bytes[length - 1] == '\n')
        length--;
    size_t begin = length;
    while (begin > 0 && bytes[begin - 1] != '\n')
        begin--;
    if (begin < length && !box->execed)
        snprintf(box->last_line, sizeof box->last_line, "%.*s", (int)(length - begin),
                 bytes + begin);
}

/* ---- the end ---- */

bool boxed_empty(const struct guard *guard)
{
    return guard->box.swept && guard->childless;
}

/* The container first and podman's monitor last, which tidies up by itself; then `podman rm`. A
 * client in the middle of making a container is given time, because a half-made container would
 * stay. */
void boxed_kill_round(struct guard *guard, int64_t now)
{
    struct container *box = &guard->box;
    bool late = now > guard->ending_since + CONMON_NS;
    container_signal(box, SIGKILL);
    if (cgroup_count_below(guard->plan, false) > 0)
        cgroup_kill_below(guard->plan, false);
    if (late && box->sweeper == 0) {
        cgroup_kill_below(guard->plan, true);
        tree_kill();
    }
    if (now > guard->ending_since + CONMON_NS + SWEEP_NS)
        tree_kill();
    guard_reap(guard);
    if (guard->childless && cgroup_count_below(guard->plan, false) == 0)
        container_sweep(guard->plan, box);
    guard_reap(guard);
    guard_slow_down(guard);
}

/* v1 forgets the kills of a group that is removed, and podman removes the container's. */
void boxed_keep_usage(struct guard *guard)
{
    struct usage now = cgroup_usage(guard->plan), *kept = &guard->ending.usage;
    if (guard->box.usage_kept && now.oom_kills < kept->oom_kills)
        now.oom_kills = kept->oom_kills;
    guard->box.usage_kept = true;
    *kept = now;
}

void boxed_write_ending(struct guard *guard)
{
    struct ending *ending = &guard->ending;
    boxed_keep_usage(guard);
    if (ending->usage.oom_kills <= 0 &&
        faccessat(guard->dir_fd, "podman/oom", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        ending->usage.oom_kills = 1; /* conmon's mark */
    if (!ending->reaped && ending->start_error.stage[0] == '\0') {
        ending->reaped = true; /* killed before it began, or by us at last */
        ending->wait_status = SIGKILL;
    }
}
