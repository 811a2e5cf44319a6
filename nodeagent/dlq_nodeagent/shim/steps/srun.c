/* `srun` inside a job: asks rank 0 for a step, starts its tasks on each node of it, and passes
 * bytes, signals and exit codes. Outside of a job it becomes `dlq slurm srun`. */
#include "srun.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOLD_MS 5000
#define AGAIN_MS 300
#define FULL_MS 600000 /* a rank without a free process is asked again for so long */

struct srun srun = {.control = -1};

_Noreturn void srun_fail(const char *words)
{
    const char *code = getenv("SLURM_EXIT_ERROR"); /* tells our errors from those of tasks */
    long number;
    fprintf(stderr, "srun: error: %s\n", words);
    exit(code != NULL && parse_long(code, 255, &number) ? (int)number : 1);
}

const char *srun_host(int node)
{
    return srun.who.peers[srun.grant.parts[node].node].name;
}

/* ---- the step ---- */

/* A rank that has no process left for us may have one again. */
static void ask_who(int argc, char **argv)
{
    char words[256];
    int64_t until = now_ms() + FULL_MS;
    do {
        int fd = dial_own(srun.options.job, words, sizeof words);
        if (fd < 0)
            become_slow("srun", srun.options.job, argv, argc);
        if (hear_who(fd, &srun.who))
            return;
        poll(NULL, 0, AGAIN_MS);
    } while (now_ms() < until);
    srun_fail("the main process of this rank does not answer");
}

static bool in_list(const char *name, char list[][MOST_NAME], int count)
{
    for (int at = 0; at < count; at++)
        if (strcmp(list[at], name) == 0)
            return true;
    return false;
}

static void choose_candidates(struct wish *wish)
{
    static char wanted[MOST_NODES][MOST_NAME], not[MOST_NODES][MOST_NAME];
    int want =
        srun.options.nodelist == NULL ? 0 : hosts_expand(srun.options.nodelist, wanted, MOST_NODES);
    int avoid =
        srun.options.exclude == NULL ? 0 : hosts_expand(srun.options.exclude, not, MOST_NODES);
    int found = 0, first = srun.options.relative > 0 ? srun.options.relative : 0;
    if (want < 0 || avoid < 0)
        srun_fail("Invalid node list");
    for (int turn = 0; turn < 2; turn++)
        for (int node = first; node < srun.who.node_count; node++) {
            bool named = in_list(srun.who.peers[node].name, wanted, want);
            if (named != (turn == 0) || in_list(srun.who.peers[node].name, not, avoid))
                continue;
            wish->candidates[wish->candidate_count++] = (uint16_t)node;
            found += named;
        }
    if (found < want)
        srun_fail("Unable to create step: Requested node configuration is not available");
    if (want > 0 && (int)wish->nodes_min < want)
        wish->nodes_min = (uint32_t)want;
}

static void make_wish(struct wish *wish)
{
    int job_nodes = srun.who.node_count, each = srun.options.tasks_per_node;
    char words[128];
    if (srun.options.nodes_min > job_nodes) {
        snprintf(words, sizeof words, "Only allocated %d nodes asked for %d", job_nodes,
                 srun.options.nodes_min);
        srun_fail(words);
    }
    int least = srun.options.nodes_min > 0 ? srun.options.nodes_min
                : srun.options.tasks_said  ? 1
                                           : job_nodes;
    int most = srun.options.nodes_max > 0 ? srun.options.nodes_max : job_nodes;
    int tasks = srun.options.tasks > 0 && (srun.options.tasks_said || !srun.options.nodes_said)
                    ? srun.options.tasks
                    : least * (each > 0 ? each : 1);
    if (tasks < least)
        least = tasks;
    wish->nodes_min = (uint32_t)least;
    wish->nodes_max = (uint32_t)(most < least ? least : most);
    wish->tasks = (uint32_t)tasks;
    wish->tasks_per_node = (uint32_t)each;
    wish->cpus_per_task = (uint32_t)srun.options.cpus_per_task;
    wish->gpus_per_task = (uint32_t)srun.options.gpus_per_task;
    wish->gpus_per_node = (uint32_t)srun.options.gpus_per_node;
    wish->gpus = (uint32_t)srun.options.gpus;
    wish->plane = (uint32_t)srun.options.plane;
    wish->flags = (srun.options.overlap ? SHARES : 0) |
                  (srun.options.exact || srun.options.cpus_per_task > 0 ? EXACT : 0) |
                  (srun.options.overcommit ? OVERCOMMITS : 0) |
                  (srun.options.no_gpus ? NO_GPUS : 0);
    const char *slash = strrchr(srun.options.command[0], '/');
    snprintf(wish->name, sizeof wish->name, "%s",
             srun.options.name != NULL ? srun.options.name
             : slash != NULL           ? slash + 1
                                       : srun.options.command[0]);
    choose_candidates(wish);
}

static void say_busy(void)
{
    if (!srun.options.quiet)
        fprintf(stderr,
                "srun: Job %s step creation temporarily disabled, retrying (Requested nodes are "
                "busy)\n",
                srun.who.job);
}

/* Waits for the grant; false: the line has gone first. */
static bool hear_grant(bool *waited)
{
    struct frame frame;
    char *payload, words[512];
    while (receive_frame(srun.control, -1, &frame, &payload)) {
        if (frame.type == SAY_REFUSED) {
            snprintf(words, sizeof words, "Unable to create step for job %s: %s", srun.who.job,
                     payload);
            srun_fail(words);
        }
        if (frame.type == SAY_GRANT && frame.length == sizeof srun.grant) {
            memcpy(&srun.grant, payload, sizeof srun.grant);
            free(payload);
            return true;
        }
        if (frame.type == SAY_WAIT && !*waited)
            say_busy();
        *waited = *waited || frame.type == SAY_WAIT;
        free(payload);
    }
    return false;
}

static void get_step(void)
{
    static struct wish wish;
    char words[256] = "the line to the first node is gone";
    bool waited = false;
    int64_t until = now_ms() + FULL_MS;
    make_wish(&wish);
    for (;;) {
        srun.control = dial_peer(&srun.who, 0, words, sizeof words);
        if (srun.control < 0)
            srun_fail(words);
        if (send_frame(srun.control, ASK_STEP, 0, &wish, sizeof wish) && hear_grant(&waited))
            break;
        close(srun.control);
        if (now_ms() >= until)
            srun_fail("the first node takes no more steps");
        poll(NULL, 0, AGAIN_MS); /* it has no process left for us */
    }
    if (waited && !srun.options.quiet)
        fprintf(stderr, "srun: Step created for job %s\n", srun.who.job);
}

/* Rank 0 knows it before we end: the batch script may end with us. */
static void tell_code(uint32_t code)
{
    struct frame frame;
    char *payload;
    if (srun.control < 0 || !send_frame(srun.control, STEP_OVER, 0, &code, sizeof code))
        return;
    while (receive_frame(srun.control, TOLD_MS, &frame, &payload))
        free(payload);
}

int srun_main(int argc, char **argv)
{
    int stop = options_read(argc, argv, &srun.options);
    if (stop != 0)
        return stop - 1;
    ask_who(argc, argv);
    get_step();
    launch_place();
    if (srun.options.multi_prog)
        programs_read(srun.options.command[0]);
    launch_open_files();
    launch_all();
    uint32_t code = (uint32_t)pump_all();
    tell_code(code);
    return (int)code;
}
