/* The ends of a step's tasks: Slurm's words about them, its exit code, and the end of the others.
 */
#include "srun.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define ALIKE_MS 10 /* ends within this are told in one line */
#define KILL_WAIT_S 30 /* from TERM to KILL, as in Slurm */

static int code, ended[MOST_TASKS], ended_status[MOST_TASKS], ended_count;
static bool ending, forced;
static int64_t kill_ms, first_over_ms, say_ms, limit_ms;

/* ---- words ---- */

void srun_say(const char *format, const char *words)
{
    if (srun.options.quiet)
        return;
    fprintf(stderr, "srun: ");
    fprintf(stderr, format, words);
    fprintf(stderr, "\n");
}

/* "task 3", or "tasks 0,2-3", of a rising list. */
void srun_name_tasks(const int *tasks, int count, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, count > 1 ? "tasks " : "task ");
    for (int at = 0; at < count && used < size; at++) {
        int last = at;
        while (last + 1 < count && tasks[last + 1] == tasks[last] + 1)
            last++;
        used += (size_t)snprintf(out + used, size - used, last > at ? "%s%d-%d" : "%s%d",
                                 at > 0 ? "," : "", tasks[at], tasks[last]);
        at = last;
    }
}

void srun_name_step(char *out, size_t size)
{
    snprintf(out, size, "%s.%u", srun.who.job, srun.grant.step);
}

static int by_number(const void *left, const void *right)
{
    return *(const int *)left - *(const int *)right;
}

static void say_end(int node, int status, int *tasks, int count)
{
    char names[2048];
    qsort(tasks, (size_t)count, sizeof *tasks, by_number);
    srun_name_tasks(tasks, count, names, sizeof names);
    if (WIFSIGNALED(status))
        fprintf(stderr, "srun: error: %s: %s: %s%s\n", srun_host(node), names,
                strsignal(WTERMSIG(status)), WCOREDUMP(status) ? " (core dumped)" : "");
    else
        fprintf(stderr, "srun: error: %s: %s: Exited with exit code %d\n", srun_host(node), names,
                WEXITSTATUS(status));
}

/* Tasks of a node that ended alike, in one line. */
static void say_ends(void)
{
    static int alike[MOST_TASKS];
    for (int at = 0; at < ended_count; at++) {
        int count = 0, status = ended_status[at],
            node = srun.ranks[ended[at] < 0 ? 0 : ended[at]].node;
        for (int other = at; other < ended_count && ended[at] >= 0; other++)
            if (ended[other] >= 0 && ended_status[other] == status &&
                srun.ranks[ended[other]].node == node) {
                alike[count++] = ended[other];
                ended[other] = other == at ? ended[at] : -1;
            }
        if (count > 0)
            say_end(node, status, alike, count);
    }
    ended_count = 0;
    say_ms = 0;
}

/* ---- the end of tasks ---- */

void srun_send_to_all(enum frame_type type, const void *data, size_t length)
{
    for (uint32_t at = 0; at < srun.grant.count; at++)
        if (srun.nodes[at].fd >= 0)
            send_frame(srun.nodes[at].fd, type, ALL_TASKS, data, length);
}

void srun_signal_all(uint32_t number)
{
    srun_send_to_all(TELL_SIGNAL, &number, sizeof number);
}

static void end_step(bool at_once, const char *why)
{
    char step[64], when[32];
    time_t now = time(NULL);
    if (ending)
        return;
    ending = true;
    srun_name_step(step, sizeof step);
    say_ends();
    srun_say("launch/slurm: _step_signal: Terminating StepId=%s", step);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", localtime(&now));
    fprintf(stderr, "slurmstepd-%s: error: *** STEP %s ON %s CANCELLED AT %s%s ***\n", srun_host(0),
            step, srun_host(0), when, why);
    kill_ms = now_ms() + (at_once ? 0 : KILL_WAIT_S * 1000);
    if (at_once)
        return;
    srun_signal_all(SIGCONT);
    srun_signal_all(SIGTERM);
}

void srun_abort_step(bool at_once)
{
    bool first = !ending;
    end_step(at_once, "");
    if (first)
        srun_say("Job step aborted: Waiting up to %s seconds for job step to finish.", "32");
}

void ends_take(int rank, int status)
{
    int own = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (srun.ranks[rank].over)
        return;
    srun.ranks[rank].over = true;
    srun.left--;
    if (first_over_ms == 0)
        first_over_ms = now_ms();
    if (own == 0)
        return;
    say_ms = say_ms == 0 ? now_ms() + ALIKE_MS : say_ms;
    ended[ended_count] = rank;
    ended_status[ended_count++] = status;
    forced = forced ||
             (WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM));
    code = own > code ? own : code;
    if (srun.options.kill_on_bad_exit && srun.left > 0)
        end_step(false, "");
}

/* -W: so long after the first task the others are ended. */
static void end_stragglers(void)
{
    static int still[MOST_TASKS], over[MOST_TASKS];
    char words[2200], step[64], names[2048];
    int still_count = 0, over_count = 0;
    for (int rank = 0; rank < srun.rank_count; rank++)
        if (srun.ranks[rank].over)
            over[over_count++] = rank;
        else
            still[still_count++] = rank;
    snprintf(words, sizeof words, "%d", srun.options.wait_s);
    srun_say("First task exited %ss ago", words);
    srun_name_step(step, sizeof step);
    srun_name_tasks(still, still_count, names, sizeof names);
    snprintf(words, sizeof words, "StepId=%s %s: running", step, names);
    srun_say("%s", words);
    srun_name_tasks(over, over_count, names, sizeof names);
    snprintf(words, sizeof words, "StepId=%s %s: exited", step, names);
    srun_say("%s", words);
    srun_abort_step(true);
}

/* ---- times ---- */

static int64_t wait_end_ms(void)
{
    bool waits = srun.options.wait_s > 0 && first_over_ms != 0 && srun.left > 0 && !ending;
    return waits ? first_over_ms + srun.options.wait_s * 1000ll : 0;
}

void ends_begin(void)
{
    if (srun.options.time_s > 0)
        limit_ms = now_ms() + srun.options.time_s * 1000ll;
}

int ends_pause(void)
{
    int64_t wait = -1, at[] = {kill_ms, wait_end_ms(), say_ms, ending ? 0 : limit_ms};
    for (int each = 0; each < 4; each++)
        if (at[each] != 0) {
            int64_t left = at[each] - now_ms();
            left = left < 0 ? 0 : left;
            wait = wait < 0 || left < wait ? left : wait;
        }
    return (int)wait;
}

void ends_turn(void)
{
    int64_t straggle_ms = wait_end_ms();
    if (limit_ms != 0 && now_ms() >= limit_ms)
        end_step(false, " DUE TO TIME LIMIT");
    if (say_ms != 0 && now_ms() >= say_ms)
        say_ends();
    if (straggle_ms != 0 && now_ms() >= straggle_ms)
        end_stragglers();
    if (kill_ms != 0 && now_ms() >= kill_ms) {
        srun_signal_all(SIGKILL);
        kill_ms = 0;
    }
}

int ends_whole(void)
{
    char step[64];
    say_ends();
    srun_name_step(step, sizeof step);
    if (forced)
        srun_say("Force Terminated StepId=%s", step);
    return code;
}
