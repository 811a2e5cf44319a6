/* Commands of the agent: lines in the FIFO `ctl`, `1 EPOCH ATTEMPT VERB ...`, each one write.
 *   signal NUMBER | kill | stop SIGNAL GRACE_MS TERM_MS | hold MS
 * A FIFO needs no short path (a unix socket does) and no agent on the other side. */
#include "shim.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_MS (INT64_MAX / NS_PER_MS / 4)
#define MAX_WORDS 8

int ctl_open(struct ctl *ctl, int dir_fd, const struct plan *plan)
{
    /* Read and write: with a writer of our own the FIFO never reports an end of file. */
    ctl->fd = openat(dir_fd, "ctl", O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    ctl->used = 0;
    ctl->refused = 0;
    ctl->highest_epoch = plan->epoch;
    ctl->attempt = plan->attempt;
    return ctl->fd < 0 ? -1 : 0;
}

static size_t split(char *line, char *words[MAX_WORDS])
{
    size_t count = 0;
    char *rest = NULL;
    char *word = strtok_r(line, " ", &rest);
    for (; word != NULL && count < MAX_WORDS; word = strtok_r(NULL, " ", &rest))
        words[count++] = word;
    return count;
}

static bool parse_verb(char *words[], size_t count, struct command *command)
{
    int64_t signal = 0, grace = 0, term = 0, hold = 0;
    if (count == 2 && strcmp(words[0], "signal") == 0) {
        command->kind = COMMAND_SIGNAL;
        if (!parse_number(words[1], 64, &signal) || signal == 0)
            return false;
    } else if (count == 1 && strcmp(words[0], "kill") == 0) {
        command->kind = COMMAND_KILL;
    } else if (count == 4 && strcmp(words[0], "stop") == 0) {
        command->kind = COMMAND_STOP;
        if (!parse_number(words[1], 64, &signal) || !parse_number(words[2], MAX_MS, &grace) ||
            !parse_number(words[3], MAX_MS, &term))
            return false;
    } else if (count == 2 && strcmp(words[0], "hold") == 0) {
        command->kind = COMMAND_HOLD;
        if (!parse_number(words[1], MAX_MS, &hold) || hold == 0)
            return false;
    } else {
        return false;
    }
    command->signal = (int)signal;
    command->grace_ns = grace * NS_PER_MS;
    command->term_ns = term * NS_PER_MS;
    command->hold_ns = hold * NS_PER_MS;
    return true;
}

/* False: malformed, of another attempt, or of an epoch that is over. */
static bool accept_line(struct ctl *ctl, char *line, struct command *command)
{
    char *words[MAX_WORDS];
    int64_t epoch, attempt;
    size_t count = split(line, words);
    if (count < 4 || strcmp(words[0], "1") != 0 || !parse_number(words[1], INT64_MAX, &epoch) ||
        !parse_number(words[2], INT64_MAX, &attempt) || attempt != ctl->attempt ||
        epoch < ctl->highest_epoch || !parse_verb(words + 3, count - 3, command))
        return false;
    ctl->highest_epoch = epoch;
    return true;
}

void ctl_receive(struct ctl *ctl, void (*obey)(void *who, const struct command *), void *who)
{
    ssize_t got = read(ctl->fd, ctl->buffer + ctl->used, sizeof ctl->buffer - 1 - ctl->used);
    if (got <= 0)
        return;
    ctl->used += (size_t)got;
    ctl->buffer[ctl->used] = '\0';
    char *line = ctl->buffer, *newline;
    while ((newline = memchr(line, '\n', ctl->used - (size_t)(line - ctl->buffer))) != NULL) {
        struct command command = {0};
        *newline = '\0';
        if (accept_line(ctl, line, &command))
            obey(who, &command);
        else
            ctl->refused++;
        line = newline + 1;
    }
    ctl->used -= (size_t)(line - ctl->buffer);
    memmove(ctl->buffer, line, ctl->used);
    if (ctl->used == sizeof ctl->buffer - 1) { /* a line longer than any command */
        ctl->used = 0;
        ctl->refused++;
    }
}
