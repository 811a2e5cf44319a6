/* `scancel` inside a job: ends or signals its steps, or signals its batch script. All else it leaves
 * to `dlq slurm scancel`, which asks the master as the user. */
#include "steps.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define ANSWER_MS 10000
#define NO_STEP_CODE 225 /* as in Slurm 22.05 */

static const struct option OPTIONS[] = {
    {"signal", required_argument, NULL, 's'}, {"batch", no_argument, NULL, 'b'},
    {"full", no_argument, NULL, 'f'},         {"quiet", no_argument, NULL, 'Q'},
    {"verbose", no_argument, NULL, 'v'},      {NULL, 0, NULL, 0},
};

struct order {
    int signal; /* 0: end it */
    bool batch, full, quiet;
};

static int signal_number(const char *text)
{
    long number;
    if (parse_long(text, 64, &number))
        return (int)number;
    const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
    for (int at = 1; at < 32; at++)
        if (sigabbrev_np(at) != NULL && strcasecmp(sigabbrev_np(at), name) == 0)
            return at;
    return 0;
}

/* "17.0" of job 17: the step; "17.batch", or "17" with --batch or --full: the script. NULL: neither. */
static const char *target(const char *word, const struct order *order, char *job, size_t size)
{
    const char *dot = strchr(word, '.');
    size_t length = dot == NULL ? strlen(word) : (size_t)(dot - word);
    long number;
    if (length == 0 || length >= size)
        return NULL;
    memcpy(job, word, length);
    job[length] = '\0';
    if (!parse_long(job, 1l << 50, &number))
        return NULL;
    if (dot == NULL)
        return order->signal == 0 ? NULL : order->full ? "full" : order->batch ? "batch" : NULL;
    return dot + 1;
}

static int connect_to(const char *job, struct who *who)
{
    char words[256];
    int fd = dial_own(job, words, sizeof words);
    return fd >= 0 && hear_who(fd, who) ? dial_peer(who, 0, words, sizeof words) : -1;
}

static int order_one(const char *word, const char *what, const char *job, const struct order *order)
{
    static struct who who;
    struct frame frame;
    char *payload, said[64];
    who = (struct who){0};
    int fd = connect_to(job, &who);
    int length = snprintf(said, sizeof said, "%.32s %d", what, order->signal);
    if (fd < 0 || !send_frame(fd, ASK_SIGNAL, 0, said, (size_t)length) ||
        !receive_frame(fd, ANSWER_MS, &frame, &payload)) {
        fprintf(stderr, "scancel: error: Kill job error on job id %s: the job is not here\n", word);
        return 1;
    }
    close(fd);
    if (frame.type == SAY_REFUSED && !order->quiet)
        fprintf(stderr, "scancel: error: Kill job error on job step id %s: %s\n", job, payload);
    return frame.type == SAY_REFUSED ? NO_STEP_CODE : 0;
}

int scancel_main(int argc, char **argv)
{
    struct order order = {0};
    char job[32];
    int letter, code = 0;
    bool known = true;
    char **words = must_have(calloc((size_t)argc + 1, sizeof *words));
    memcpy(words, argv, (size_t)argc * sizeof *words); /* getopt moves ours */
    opterr = 0;
    while ((letter = getopt_long(argc, argv, "s:bfQv", OPTIONS, NULL)) >= 0) {
        if (letter == 's')
            known = known && (order.signal = signal_number(optarg)) > 0;
        order.batch = order.batch || letter == 'b';
        order.full = order.full || letter == 'f';
        order.quiet = order.quiet || letter == 'Q';
        known = known && letter != '?';
    }
    known = known && optind < argc;
    for (int at = optind; at < argc; at++) {
        int fd = known && target(argv[at], &order, job, sizeof job) != NULL
                     ? dial_own(job, (char[256]){0}, 256)
                     : -1;
        known = fd >= 0;
        if (fd >= 0)
            close(fd);
    }
    if (!known)
        become_slow("scancel", "", words, argc);
    for (int at = optind; at < argc; at++) {
        const char *what = target(argv[at], &order, job, sizeof job);
        int one = order_one(argv[at], what, job, &order);
        code = one > code ? one : code;
    }
    return code;
}
