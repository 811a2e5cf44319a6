/* In a process of its own: the connection of one srun, of one holder, or of one sattach. That of an
 * srun also serves the listeners of its step. */
#include "steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>

#define MOST_TAPS 8
#define MOST_WAITING (1 << 20) /* bytes for a listener; a slower one is let go */

struct tap {
    int fd; /* -1: a free place */
    struct bytes out, in;
};

static struct tap taps[MOST_TAPS];
static struct grant granted;
static int connection, parent;
static struct bytes heard;

static int tap_count(void)
{
    int count = 0;
    for (int at = 0; at < MOST_TAPS; at++)
        count += taps[at].fd >= 0;
    return count;
}

static void tell_taps(void)
{
    uint32_t listens = tap_count() > 0;
    send_frame(connection, STEP_TAP, 0, &listens, sizeof listens);
}

static void close_tap(struct tap *tap)
{
    close(tap->fd);
    tap->fd = -1;
    bytes_free(&tap->out);
    bytes_free(&tap->in);
    tell_taps();
}

static void flush(struct tap *tap)
{
    while (tap->fd >= 0 && tap->out.used > 0) {
        ssize_t sent = write(tap->fd, tap->out.data, tap->out.used);
        if (sent <= 0) {
            if (tap->out.used > MOST_WAITING)
                close_tap(tap);
            return;
        }
        bytes_drop(&tap->out, (size_t)sent);
    }
}

static void add_tap(int fd)
{
    for (int at = 0; at < MOST_TAPS; at++)
        if (taps[at].fd < 0) {
            fcntl(fd, F_SETFL, O_NONBLOCK);
            taps[at] = (struct tap){.fd = fd};
            bytes_frame(&taps[at].out, SAY_GRANT, 0, &granted, sizeof granted);
            flush(&taps[at]);
            tell_taps();
            return;
        }
    close(fd);
}

static void to_taps(enum frame_type type, unsigned task, const void *data, size_t length)
{
    for (int at = 0; at < MOST_TAPS; at++)
        if (taps[at].fd >= 0) {
            bytes_frame(&taps[at].out, type, task, data, length);
            flush(&taps[at]);
        }
}

static void hear_tap(struct tap *tap)
{
    struct frame frame;
    char *payload;
    int got = bytes_read(&tap->in, tap->fd, PIECE_BYTES);
    while (got >= 0 && (got = bytes_next(&tap->in, &frame, &payload, PIECE_BYTES)) > 0) {
        if (frame.type == TELL_IN)
            send_frame(connection, STEP_IN, frame.task, payload, frame.length);
        free(payload);
    }
    if (got < 0)
        close_tap(tap);
}

static _Noreturn void finish(uint32_t code)
{
    struct message over = {.kind = KID_OVER, .number = code};
    message_send(parent, &over, -1);
    for (int at = 0; at < MOST_TAPS; at++)
        if (taps[at].fd >= 0) {
            bytes_frame(&taps[at].out, SAY_DONE, 0, &code, sizeof code);
            fcntl(taps[at].fd, F_SETFL, 0);
            send_all(taps[at].fd, taps[at].out.data, taps[at].out.used);
        }
    _exit(0);
}

static void hear_srun(void)
{
    struct frame frame;
    char *payload;
    int got = bytes_read(&heard, connection, PIECE_BYTES);
    while (got >= 0 && (got = bytes_next(&heard, &frame, &payload, PIECE_BYTES)) > 0) {
        struct message message = {.kind = KID_USAGE};
        uint32_t code = 0;
        if (frame.type == STEP_USAGE && frame.length == sizeof message.usage) {
            memcpy(&message.usage, payload, sizeof message.usage);
            message_send(parent, &message, -1);
        } else if (frame.type == STEP_OVER && frame.length == sizeof code) {
            memcpy(&code, payload, sizeof code);
            finish(code);
        } else if (frame.type == SAY_OUT || frame.type == SAY_ERR || frame.type == SAY_EXIT ||
                   frame.type == SAY_TAKEN) {
            to_taps(frame.type, frame.task, payload, frame.length);
        }
        free(payload);
    }
    if (got < 0)
        finish(128 + 9); /* it was killed; its tasks end with their own connections */
}

static void hear_parent(void)
{
    struct message message;
    int passed, got;
    while ((got = message_receive(parent, &message, &passed)) > 0) {
        if (message.kind == TO_GRANT) {
            granted = message.grant;
            send_frame(connection, SAY_GRANT, 0, &message.grant, sizeof message.grant);
        } else if (message.kind == TO_WAIT) {
            send_frame(connection, SAY_WAIT, 0, "", 0);
        } else if (message.kind == TO_SIGNAL) {
            send_frame(connection, STEP_SIGNAL, 0, &message.number, sizeof message.number);
        } else if (message.kind == TO_TAP && passed >= 0) {
            add_tap(passed);
        } else if (message.kind == TO_REFUSE) {
            send_frame(connection, SAY_REFUSED, 0, message.text, strlen(message.text));
            _exit(0);
        }
    }
    if (got < 0)
        _exit(1);
}

_Noreturn void control_serve(int fd, int sock, const char *payload, size_t length)
{
    struct message wish = {.kind = KID_WISH};
    connection = fd;
    parent = sock;
    for (int at = 0; at < MOST_TAPS; at++)
        taps[at].fd = -1;
    if (length != sizeof wish.wish)
        _exit(1);
    memcpy(&wish.wish, payload, sizeof wish.wish);
    message_send(parent, &wish, -1);
    for (;;) {
        struct pollfd fds[2 + MOST_TAPS] = {{.fd = connection, .events = POLLIN},
                                            {.fd = parent, .events = POLLIN}};
        for (int at = 0; at < MOST_TAPS; at++)
            fds[2 + at] =
                (struct pollfd){.fd = taps[at].fd,
                                .events = (short)(POLLIN | (taps[at].out.used > 0 ? POLLOUT : 0))};
        poll(fds, 2 + MOST_TAPS, -1);
        if (fds[1].revents != 0)
            hear_parent();
        if (fds[0].revents != 0)
            hear_srun();
        for (int at = 0; at < MOST_TAPS; at++) {
            if (taps[at].fd >= 0 && taps[at].fd == fds[2 + at].fd &&
                (fds[2 + at].revents & POLLOUT))
                flush(&taps[at]);
            if (taps[at].fd >= 0 && taps[at].fd == fds[2 + at].fd &&
                (fds[2 + at].revents & ~POLLOUT))
                hear_tap(&taps[at]);
        }
    }
}

/* ---- a holder, and an sattach ---- */

static void await_message(int fd, int sock, struct message *message)
{
    int passed;
    struct pollfd fds[] = {{.fd = sock, .events = POLLIN}, {.fd = fd, .events = POLLRDHUP}};
    do {
        poll(fds, 2, -1);
        if (fds[1].revents != 0)
            _exit(0);
    } while (message_receive(sock, message, &passed) == 0);
}

_Noreturn void hold_serve(int fd, int sock)
{
    struct message message = {.kind = KID_HOLD};
    message_send(sock, &message, -1);
    await_message(fd, sock, &message);
    if (message.kind == TO_BYE)
        send_frame(fd, STEP_OVER, 0, &message.number, sizeof message.number);
    _exit(0);
}

_Noreturn void signal_serve(int fd, int sock, const char *payload)
{
    struct message message = {.kind = KID_SIGNAL};
    char what[33];
    unsigned number;
    if (sscanf(payload, "%32s %u", what, &number) != 2 || number > 64)
        _exit(1);
    message.number = number;
    snprintf(message.text, sizeof message.text, "%s", what);
    message_send(sock, &message, -1);
    await_message(fd, sock, &message);
    if (message.kind == TO_REFUSE)
        send_frame(fd, SAY_REFUSED, 0, message.text, strlen(message.text));
    else
        send_frame(fd, SAY_DONE, 0, "", 0);
    _exit(0);
}

_Noreturn void attach_serve(int fd, int sock, const char *payload)
{
    struct message message = {.kind = KID_ATTACH};
    long number = -1;
    if (!parse_long(payload, UINT32_MAX, &number))
        _exit(1);
    message.number = (uint32_t)number;
    message_send(sock, &message, fd);
    await_message(fd, sock, &message);
    if (message.kind == TO_REFUSE)
        send_frame(fd, SAY_REFUSED, 0, message.text, strlen(message.text));
    _exit(0);
}
