/* The bytes, signals and ends of a step, until its last task is over. */
#include "srun.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define WINDOW_BYTES (64 << 10)

enum { SIGNALS, CONTROL, INPUT, FIRST_NODE };

static struct termios before;
static struct bytes control_heard, borrowed; /* borrowed: input of those that listen */
static int signals;
static bool tapped, input_over, is_raw;

static void node_over(struct node *node, bool whole)
{
    close(node->fd);
    node->fd = -1;
    if (!whole)
        fprintf(stderr, "srun: error: Node failure on %s\n", srun_host(node->index));
    for (int rank = 0; rank < srun.rank_count && !whole; rank++)
        if (srun.ranks[rank].node == node->index)
            ends_take(rank, SIGKILL);
}

/* ---- output ---- */

static void say_unwritten(int error)
{
    static bool said;
    if (!said && error != EPIPE)
        fprintf(stderr, "srun: error: output of the step is lost: %s\n", strerror(error));
    said = true;
}

static void write_whole(int fd, const char *data, size_t length)
{
    while (length > 0) {
        ssize_t put = write(fd, data, length);
        if (put < 0 && errno == EAGAIN) {
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            poll(&wait, 1, -1);
        } else if (put < 0 && errno != EINTR) {
            say_unwritten(errno);
            return;
        } else if (put > 0) {
            data += put;
            length -= (size_t)put;
        }
    }
}

static void print(int rank, int fd, const char *data, size_t length)
{
    char label[16];
    int digits = snprintf(NULL, 0, "%d", srun.rank_count - 1);
    struct bytes out = {0};
    if (!srun.options.label) {
        write_whole(fd, data, length);
        return;
    }
    snprintf(label, sizeof label, "%*d: ", digits, rank);
    bytes_labelled(&out, label, &srun.ranks[rank].middle, data, length);
    write_whole(fd, out.data, out.used);
    bytes_free(&out);
}

static void task_ended(struct node *node, int rank, const char *payload)
{
    struct task_end end;
    memcpy(&end, payload, sizeof end);
    node->usage.cpu_us += end.usage.cpu_us;
    if (end.usage.rss_bytes > node->usage.rss_bytes)
        node->usage.rss_bytes = end.usage.rss_bytes;
    ends_take(rank, (int)end.status);
}

/* Rank 0 hears of the whole step: the highest memory of a node, and the CPU time of all. */
static void tell_usage(void)
{
    struct usage whole = {0};
    for (uint32_t at = 0; at < srun.grant.count; at++) {
        whole.cpu_us += srun.nodes[at].usage.cpu_us;
        if (srun.nodes[at].usage.rss_bytes > whole.rss_bytes)
            whole.rss_bytes = srun.nodes[at].usage.rss_bytes;
    }
    if (srun.control >= 0)
        send_frame(srun.control, STEP_USAGE, 0, &whole, sizeof whole);
}

static void take_frame(struct node *node, const struct frame *frame, const char *payload)
{
    uint32_t number;
    bool known = frame->task < srun.rank_count && srun.ranks[frame->task].node == node->index;
    bool output = frame->type == SAY_OUT || frame->type == SAY_ERR;
    if (output && known)
        print(frame->task,
              frame->type == SAY_OUT ? srun.ranks[frame->task].out : srun.ranks[frame->task].err,
              payload, frame->length);
    if (tapped && srun.control >= 0 && (output || frame->type == SAY_EXIT))
        send_frame(srun.control, frame->type, frame->task, payload, frame->length);
    if (frame->type == SAY_EXIT && known && frame->length == sizeof(struct task_end)) {
        task_ended(node, frame->task, payload);
    } else if (frame->type == SAY_USAGE && frame->length == sizeof node->usage) {
        memcpy(&node->usage, payload, sizeof node->usage);
        tell_usage();
    } else if (frame->type == SAY_TAKEN && frame->length == sizeof number) {
        memcpy(&number, payload, sizeof number);
        node->taken += number;
    }
}

static void hear(struct node *node)
{
    struct frame frame = {0};
    char *payload;
    int got = bytes_read(&node->heard, node->fd, PIECE_BYTES);
    while (got >= 0 && (got = bytes_next(&node->heard, &frame, &payload, MOST_FRAME_BYTES)) > 0) {
        take_frame(node, &frame, payload);
        free(payload);
        if (frame.type == SAY_DONE) {
            node_over(node, true);
            break;
        }
    }
    if (got < 0)
        node_over(node, false);
}

/* ---- rank 0 ---- */

static void take_control(const struct frame *frame, const char *payload)
{
    uint32_t number = 0;
    memcpy(&number, payload, frame->length < sizeof number ? frame->length : sizeof number);
    if (frame->type == STEP_SIGNAL && number == 0)
        srun_abort_step(false);
    else if (frame->type == STEP_SIGNAL)
        srun_signal_all(number);
    else if (frame->type == STEP_TAP)
        tapped = number != 0;
    else if (frame->type == STEP_IN && borrowed.used + frame->length <= WINDOW_BYTES)
        bytes_add(&borrowed, payload, frame->length); /* a listener waits for our word about it */
}

static void hear_control(void)
{
    struct frame frame;
    char *payload;
    int got = bytes_read(&control_heard, srun.control, PIECE_BYTES);
    while (got >= 0 && (got = bytes_next(&control_heard, &frame, &payload, PIECE_BYTES)) > 0) {
        take_control(&frame, payload);
        free(payload);
    }
    if (got < 0) {
        close(srun.control);
        srun.control = -1;
    }
}

/* ---- input ---- */

static bool window_open(void)
{
    for (uint32_t at = 0; at < srun.grant.count; at++)
        if (srun.nodes[at].fd >= 0 && srun.nodes[at].sent - srun.nodes[at].taken >= WINDOW_BYTES)
            return false;
    return true;
}

static void put_input(const char *data, size_t length)
{
    srun_send_to_all(TELL_IN, data, length);
    for (uint32_t at = 0; at < srun.grant.count; at++)
        srun.nodes[at].sent += length;
}

static void read_input(void)
{
    char piece[16384];
    ssize_t got = read(srun.input, piece, sizeof piece);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    input_over = got <= 0;
    if (input_over)
        srun_send_to_all(TELL_IN_END, "", 0);
    else
        put_input(piece, (size_t)got);
}

static void pass_borrowed(void)
{
    uint32_t length = (uint32_t)borrowed.used;
    if (length == 0 || !window_open())
        return;
    put_input(borrowed.data, length);
    bytes_drop(&borrowed, length);
    if (srun.control >= 0)
        send_frame(srun.control, SAY_TAKEN, 0, &length, sizeof length);
}

/* ---- the terminal ---- */

static void leave_raw(void)
{
    if (is_raw)
        tcsetattr(0, TCSADRAIN, &before);
    is_raw = false;
}

static void enter_raw(void)
{
    struct termios raw;
    if (!srun.options.pty || srun.input != 0 || tcgetattr(0, &before) != 0)
        return;
    raw = before;
    cfmakeraw(&raw);
    is_raw = tcsetattr(0, TCSADRAIN, &raw) == 0;
    atexit(leave_raw);
}

static void tell_size(void)
{
    struct winsize size;
    if (ioctl(0, TIOCGWINSZ, &size) != 0)
        return;
    uint16_t told[2] = {size.ws_col, size.ws_row};
    srun_send_to_all(TELL_SIZE, told, sizeof told);
}

/* ---- signals ---- */

static void interrupt(void)
{
    static int64_t last_ms;
    char words[2200], step[64], names[2048];
    static int running[MOST_TASKS];
    int count = 0;
    srun_name_step(step, sizeof step);
    if (srun.options.quit_on_interrupt || (last_ms != 0 && now_ms() - last_ms < 1000)) {
        srun_say("sending Ctrl-C to StepId=%s", step);
        srun_signal_all(SIGINT);
        srun_abort_step(false);
        return;
    }
    last_ms = now_ms();
    for (int rank = 0; rank < srun.rank_count; rank++)
        if (!srun.ranks[rank].over)
            running[count++] = rank;
    srun_name_tasks(running, count, names, sizeof names);
    snprintf(words, sizeof words, "StepId=%s %s: running", step, names);
    srun_say("interrupt (one more within 1 sec to abort)%s", "");
    srun_say("%s", words);
}

static void hear_signals(void)
{
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGWINCH) {
            tell_size();
        } else if (info.ssi_signo == SIGINT) {
            interrupt();
        } else if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP ||
                   info.ssi_signo == SIGQUIT) {
            /* A preemption may send TERM here, and tasks save then. Slurm's kills at each of them. */
            srun_say("forcing job termination%s", "");
            srun_abort_step(info.ssi_signo == SIGQUIT);
        } else {
            srun_signal_all(info.ssi_signo);
        }
    }
}

static void catch_signals(void)
{
    static const int NUMBERS[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                  SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH};
    sigset_t caught;
    sigemptyset(&caught);
    for (size_t at = 0; at < sizeof NUMBERS / sizeof *NUMBERS; at++)
        sigaddset(&caught, NUMBERS[at]);
    sigprocmask(SIG_BLOCK, &caught, NULL);
    signal(SIGPIPE, SIG_IGN);
    signals = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* ---- the loop ---- */

static int turn(struct pollfd *fds)
{
    bool reads = !input_over && window_open();
    int alive = 0;
    fds[SIGNALS] = (struct pollfd){.fd = signals, .events = POLLIN};
    fds[CONTROL] = (struct pollfd){.fd = srun.control, .events = POLLIN};
    fds[INPUT] = (struct pollfd){.fd = reads ? srun.input : -1, .events = POLLIN};
    for (uint32_t at = 0; at < srun.grant.count; at++)
        fds[FIRST_NODE + at] = (struct pollfd){.fd = srun.nodes[at].fd, .events = POLLIN};
    poll(fds, srun.grant.count + FIRST_NODE, ends_pause());
    if (fds[SIGNALS].revents != 0)
        hear_signals();
    if (fds[CONTROL].revents != 0)
        hear_control();
    if (fds[INPUT].revents != 0)
        read_input();
    for (uint32_t at = 0; at < srun.grant.count; at++) {
        if (srun.nodes[at].fd >= 0 && fds[FIRST_NODE + at].revents != 0)
            hear(&srun.nodes[at]);
        alive += srun.nodes[at].fd >= 0;
    }
    pass_borrowed();
    ends_turn();
    return alive;
}

int pump_all(void)
{
    static struct pollfd fds[MOST_NODES + FIRST_NODE];
    ends_begin();
    catch_signals();
    enter_raw();
    while (turn(fds) > 0)
        ;
    leave_raw();
    tell_usage();
    return ends_whole();
}
