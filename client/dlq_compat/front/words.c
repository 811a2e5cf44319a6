/* The words of a call: may a server run it, and may it read the terminal? */

#include "front.h"

#include <string.h>
#include <unistd.h>

/* Commands of `dlq` that ask, answer and end. Others run by themselves. */
static const char *const served[] = {
    "submit",  "run",     "status",   "show",    "why",    "estimate", "events", "history",
    "wait",    "cancel",  "hold",     "release", "pause",  "resume",   "diff",   "resubmit",
    "requeue", "update",  "signal",   "nodes",   "gpus",   "queues",   "teams",  "usage",
    "logs",    "version", "checkpoint", "what-if", "config", "--help", "-h",     "--version",
};

/* They stay and draw anew, or follow: the screen and the keys are theirs. */
static const char *const staying[] = {"-w", "--watch", "-f", "--follow"};

static bool is_among(const char *word, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(word, words[i]))
            return true;
    return false;
}

bool front_is_dlq(const struct front_call *call)
{
    return !strcmp(call->name, "dlq");
}

static bool is_served_by_dlq(char **argv)
{
    char *const *word = argv + 1;
    if (*word && !strcmp(*word, "--utc"))
        word++;
    if (*word && !is_among(*word, served, sizeof served / sizeof *served))
        return false;
    for (; *word && strcmp(*word, "--"); word++)
        if (is_among(*word, staying, sizeof staying / sizeof *staying))
            return false;
    return true;
}

bool front_reads_terminal(const struct front_call *call)
{
    return front_is_dlq(call) || !strcmp(call->name, "srun") || !strcmp(call->name, "sattach");
}

/* A reader of the terminal is given it by its own shell alone when it is in the background. `salloc`
 * starts a child of ours; with --no-shell it starts nothing. */
bool front_is_served(const struct front_call *call, char **argv)
{
    if (!strcmp(call->name, "salloc"))
        return argv[1] && !strcmp(argv[1], "--no-shell");
    if (front_is_dlq(call) && !is_served_by_dlq(argv))
        return false;
    return !front_reads_terminal(call) || !isatty(0) || tcgetpgrp(0) == getpgrp();
}
