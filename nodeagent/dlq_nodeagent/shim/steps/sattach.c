/* `sattach JOB.STEP`: shows the output of a step that runs, and passes our input to it. Ends with
 * the step's exit code. Outside of the job it becomes `dlq slurm sattach`. */
#include "steps.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define WINDOW_BYTES (16 << 10)

static struct who who;
static struct grant grant;
static struct bytes heard;
static bool label, layout_only, input_over, output_none, error_none;
static long only_output = -1, only_error = -1, only_input = -1;
static uint32_t untaken;
static int digits; /* of the highest task */

static _Noreturn void fail(const char *words)
{
    fprintf(stderr, "sattach: error: %s\n", words);
    exit(1);
}

/* ---- options ---- */

static bool filter(const char *text, long *which, bool *none)
{
    *none = strcmp(text, "none") == 0;
    return *none || strcmp(text, "all") == 0 || parse_long(text, MOST_TASKS, which);
}

static bool take(const char *name, const char *value)
{
    bool no_input = false;
    if (strcmp(name, "label") == 0 || strcmp(name, "l") == 0)
        label = true;
    else if (strcmp(name, "layout") == 0)
        layout_only = true;
    else if (strcmp(name, "input-filter") == 0 && value != NULL) {
        bool good = filter(value, &only_input, &no_input);
        input_over = input_over || no_input;
        return good;
    } else if (strcmp(name, "output-filter") == 0 && value != NULL)
        return filter(value, &only_output, &output_none);
    else if (strcmp(name, "error-filter") == 0 && value != NULL)
        return filter(value, &only_error, &error_none);
    else
        return strcmp(name, "pty") == 0 || strcmp(name, "verbose") == 0 ||
               strcmp(name, "quiet") == 0 || (name[1] == '\0' && strchr("vuQ", *name) != NULL);
    return true;
}

static const char *read_options(int argc, char **argv)
{
    const char *step = NULL;
    for (int at = 1; at < argc; at++) {
        char *word = argv[at], *equals = strchr(word, '=');
        if (word[0] != '-') {
            step = word;
            continue;
        }
        if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
            puts("slurm-wlm 22.05.8");
            exit(0);
        }
        if (equals != NULL)
            *equals = '\0';
        bool takes = strstr(word, "-filter") != NULL && equals == NULL && at + 1 < argc;
        const char *value = equals != NULL ? equals + 1 : takes ? argv[++at] : NULL;
        if (!take(word + 1 + (word[1] == '-'), value)) {
            fprintf(
                stderr,
                "sattach: unrecognized option '%s'\nTry \"sattach --help\" for more information\n",
                word);
            exit(1);
        }
    }
    return step;
}

/* ---- the step ---- */

static int attach(const char *step)
{
    char words[256];
    struct frame frame;
    char *payload;
    int fd = dial_peer(&who, 0, words, sizeof words);
    if (fd < 0)
        fail(words);
    if (!send_frame(fd, ASK_ATTACH, 0, step, strlen(step)) ||
        !receive_frame(fd, 10000, &frame, &payload))
        fail("Unable to contact the step");
    if (frame.type == SAY_REFUSED)
        fail(payload);
    if (frame.type != SAY_GRANT || frame.length != sizeof grant)
        fail("Unable to contact the step");
    memcpy(&grant, payload, sizeof grant);
    free(payload);
    return fd;
}

static int task_count(void)
{
    int tasks = 0;
    for (uint32_t at = 0; at < grant.count; at++)
        tasks += grant.parts[at].tasks;
    return tasks;
}

static void show_layout(void)
{
    int next = 0;
    char list[8192];
    grant_nodes(&who, &grant, list, sizeof list);
    printf("Job step layout:\n\t%d tasks, %u nodes (%s)\n\n", task_count(), grant.count, list);
    for (uint32_t at = 0; at < grant.count; at++) {
        printf("\tNode %u (%s), %d task(s): ", at, who.peers[grant.parts[at].node].name,
               grant.parts[at].tasks);
        for (int each = 0; each < grant.parts[at].tasks; each++)
            printf("%d ", next++);
        printf("\n");
    }
}

/* ---- bytes ---- */

static void print(unsigned task, FILE *to, const char *data, size_t length)
{
    static bool middle[MOST_TASKS];
    char words[16];
    struct bytes out = {0};
    snprintf(words, sizeof words, "%*u: ", digits, task);
    bytes_labelled(&out, label ? words : "", &middle[task], data, length);
    fwrite(out.data, 1, out.used, to);
    fflush(to);
    bytes_free(&out);
}

static void obey(const struct frame *frame, const char *payload)
{
    uint32_t number = 0;
    memcpy(&number, payload, frame->length < sizeof number ? frame->length : sizeof number);
    bool known = frame->task < MOST_TASKS;
    if (frame->type == SAY_OUT && known && !output_none &&
        (only_output < 0 || only_output == frame->task))
        print(frame->task, stdout, payload, frame->length);
    else if (frame->type == SAY_ERR && known && !error_none &&
             (only_error < 0 || only_error == frame->task))
        print(frame->task, stderr, payload, frame->length);
    else if (frame->type == SAY_TAKEN)
        untaken -= number < untaken ? number : untaken;
    else if (frame->type == SAY_DONE)
        exit((int)(number & 0xff));
}

static void hear(int fd)
{
    struct frame frame;
    char *payload;
    int got = bytes_read(&heard, fd, PIECE_BYTES);
    while (got >= 0 && (got = bytes_next(&heard, &frame, &payload, MOST_FRAME_BYTES)) > 0) {
        obey(&frame, payload);
        free(payload);
    }
    if (got < 0)
        fail("the line to the step is gone");
}

static void read_input(int fd)
{
    char piece[4096];
    ssize_t got = read(0, piece, sizeof piece);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    input_over = got <= 0;
    if (input_over)
        return;
    untaken += (uint32_t)got;
    send_frame(fd, TELL_IN, only_input < 0 ? ALL_TASKS : (unsigned)only_input, piece, (size_t)got);
}

static _Noreturn void follow(int fd)
{
    for (;;) {
        bool reads = !input_over && untaken < WINDOW_BYTES;
        struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
                               {.fd = reads ? 0 : -1, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            fail("poll");
        if (fds[0].revents != 0)
            hear(fd);
        if (fds[1].revents != 0)
            read_input(fd);
    }
}

int sattach_main(int argc, char **argv)
{
    char words[256], job[64];
    char **given = must_have(calloc((size_t)argc + 1, sizeof *given));
    for (int at = 0; at < argc; at++)
        given[at] = must_have(strdup(argv[at]));
    const char *name = read_options(argc, argv), *dot = name == NULL ? NULL : strchr(name, '.');
    if (name == NULL || dot == NULL || (size_t)(dot - name) >= sizeof job)
        fail("No job/step id specified: say sattach JOB.STEP");
    snprintf(job, sizeof job, "%.*s", (int)(dot - name), name);
    int fd = dial_own(job, words, sizeof words);
    if (fd < 0)
        become_slow("sattach", job, given, argc);
    if (!hear_who(fd, &who))
        fail("the main process of this rank does not answer");
    fd = attach(dot + 1);
    digits = snprintf(NULL, 0, "%d", task_count() - 1);
    if (layout_only) {
        show_layout();
        return 0;
    }
    follow(fd);
}
