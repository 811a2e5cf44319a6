/* The steps of this attempt: a file in its own directory that the agent reads and the master keeps.
 *
 * The newest MOST_KEPT are told one by one. Older ones that have ended are only counted. */
#include "steps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_KEPT 1000
#define EVERY_MS 200

static struct step kept[MOST_KEPT];
static uint32_t next_number, dropped, dropped_failed;
static bool changed, script_over;
static struct usage script;
static int64_t written_ms;

static int64_t utc_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Letters that are safe in a line of this file, and to show. */
static void put_words(char *out, size_t size, const char *words)
{
    size_t at = 0;
    for (; words[at] != '\0' && at + 1 < size; at++)
        out[at] =
            (unsigned char)words[at] < 0x20 || (unsigned char)words[at] > 0x7e ? '?' : words[at];
    out[at] = '\0';
}

struct step *records_begin(const struct wish *wish, const struct grant *grant,
                           const struct who *who)
{
    struct step *place = NULL;
    for (int at = 0; at < MOST_KEPT && (place == NULL || place->used); at++) {
        struct step *each = &kept[at];
        if (!each->used || (!each->running && (place == NULL || each->number < place->number)))
            place = each;
    }
    if (place == NULL)
        return NULL;
    if (place->used) {
        dropped++;
        dropped_failed += place->code != 0;
    }
    *place = (struct step){.used = true,
                           .running = true,
                           .number = next_number++,
                           .tasks = wish->tasks,
                           .nodes = grant->count,
                           .start_ms = utc_ms()};
    put_words(place->name, sizeof place->name, wish->name);
    grant_nodes(who, grant, place->nodelist, sizeof place->nodelist);
    changed = true;
    return place;
}

void records_end(struct step *step, int code)
{
    step->running = false;
    step->code = code;
    step->end_ms = utc_ms();
    changed = true;
}

void records_script(const struct rusage *used)
{
    script = usage_of(used);
    script_over = changed = true;
}

void records_touch(void)
{
    changed = true;
}

static int by_number(const void *left, const void *right)
{
    const struct step *a = *(struct step *const *)left, *b = *(struct step *const *)right;
    return (a->number > b->number) - (a->number < b->number);
}

/* "dlq-steps 1 DROPPED DROPPED_FAILED", after the script's end also its memory and CPU time; then a
 * line for each step, its fields divided by tabs. */
static void put_all(struct bytes *out)
{
    struct step *ordered[MOST_KEPT];
    size_t count = 0;
    char line[2048];
    for (int at = 0; at < MOST_KEPT; at++)
        if (kept[at].used)
            ordered[count++] = &kept[at];
    qsort(ordered, count, sizeof *ordered, by_number);
    snprintf(line, sizeof line, "dlq-steps\t1\t%u\t%u", dropped, dropped_failed);
    bytes_add(out, line, strlen(line));
    if (script_over) {
        snprintf(line, sizeof line, "\t%llu\t%llu", (unsigned long long)script.rss_bytes,
                 (unsigned long long)script.cpu_us);
        bytes_add(out, line, strlen(line));
    }
    bytes_add(out, "\n", 1);
    for (size_t at = 0; at < count; at++) {
        const struct step *step = ordered[at];
        snprintf(line, sizeof line, "%u\t%s\t%u\t%u\t%s\t%d\t%lld\t%lld\t%llu\t%llu\t%s\n",
                 step->number, step->name, step->nodes, step->tasks,
                 step->running ? "running" : "ended", step->code, (long long)step->start_ms,
                 (long long)step->end_ms, (unsigned long long)step->usage.rss_bytes,
                 (unsigned long long)step->usage.cpu_us, step->nodelist);
        bytes_add(out, line, strlen(line));
    }
}

int records_write(const char *directory, bool now)
{
    int64_t wait_ms = written_ms + EVERY_MS - now_ms();
    if (!changed)
        return -1;
    if (!now && wait_ms > 0)
        return (int)wait_ms;
    struct bytes out = {0};
    put_all(&out);
    int at = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = at < 0 ? -1
                    : openat(at, "steps.tmp", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                             0600);
    if (fd >= 0 && write(fd, out.data, out.used) == (ssize_t)out.used)
        renameat(at, "steps.tmp", at, "steps"); /* else the agent keeps what it knows */
    if (fd >= 0)
        close(fd);
    if (at >= 0)
        close(at);
    bytes_free(&out);
    changed = false;
    written_ms = now_ms();
    return -1;
}
