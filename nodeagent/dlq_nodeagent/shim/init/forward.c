/* Many connections to ports of the job over one stdin and one stdout.
 *
 * A frame is a letter, a stream's number and a number, both of 4 bytes, and perhaps bytes:
 *
 *   h 0 WINDOW      from us, first: so many bytes of a stream may be on their way, each way
 *   o STREAM PORT   to us: connect to this port
 *   k STREAM 0      from us: it is connected
 *   r STREAM COUNT  from us, with words: it is not, and why
 *   d STREAM COUNT  both ways, with bytes
 *   w STREAM COUNT  both ways: so many more bytes of it may come
 *   e STREAM 0      both ways: no more bytes of it will come
 *   x STREAM 0      both ways: it is over at once
 *
 * The client always reads, and holds at most a window of each stream. So we may wait with stdin
 * while stdout is full. */
#include "forward.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_STREAMS 256
#define WINDOW (1024 * 1024)
#define PIECE (120 * 1024)
#define HEAD 9
#define OUT_BYTES (1024 * 1024)
#define ROOM_FOR_WORDS 4096 /* of frames without a socket's bytes, for one frame that came */

struct stream {
    uint32_t id;
    int fd; /* -1: this place is free */
    bool connected, said_end, heard_end, shut;
    uint32_t credit; /* bytes that we may send */
    uint32_t owed;   /* bytes that went into the socket, and are not credited yet */
    char *bytes;     /* a ring of WINDOW, for the socket */
    size_t from, length;
};

static struct stream streams[MOST_STREAMS];
static char out[OUT_BYTES], in[HEAD + PIECE];
static size_t out_from, out_to, in_length;

/* ---- stdout ---- */

static size_t room(void)
{
    return OUT_BYTES - out_to;
}

static void put_number(char *at, uint32_t number)
{
    uint32_t wire = htonl(number);
    memcpy(at, &wire, sizeof wire);
}

static uint32_t number_at(const char *at)
{
    uint32_t wire;
    memcpy(&wire, at, sizeof wire);
    return ntohl(wire);
}

static void put_head(char letter, uint32_t id, uint32_t number)
{
    out[out_to] = letter;
    put_number(out + out_to + 1, id);
    put_number(out + out_to + 5, number);
    out_to += HEAD;
}

static void refuse(uint32_t id, const char *words)
{
    size_t length = strlen(words);
    put_head('r', id, (uint32_t)length);
    memcpy(out + out_to, words, length);
    out_to += length;
}

/* False: nobody reads any more. */
static bool flush_out(void)
{
    while (out_from < out_to) {
        ssize_t wrote = write(1, out + out_from, out_to - out_from);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            break;
        out_from += (size_t)wrote;
    }
    bool alive = out_from == out_to || errno == EAGAIN;
    if (out_from == out_to || room() < OUT_BYTES / 2) {
        memmove(out, out + out_from, out_to - out_from);
        out_to -= out_from;
        out_from = 0;
    }
    return alive;
}

/* ---- streams ---- */

static struct stream *find(uint32_t id)
{
    for (size_t at = 0; at < MOST_STREAMS; at++)
        if (streams[at].fd >= 0 && streams[at].id == id)
            return &streams[at];
    return NULL;
}

static void forget(struct stream *stream)
{
    close(stream->fd);
    free(stream->bytes);
    *stream = (struct stream){.fd = -1};
}

static void break_off(struct stream *stream)
{
    put_head('x', stream->id, 0);
    forget(stream);
}

static void forget_if_over(struct stream *stream)
{
    if (stream->said_end && stream->shut)
        forget(stream);
}

/* How this connection closes, also where we are killed. Broken: by a reset. Then the job's program
 * never takes half an input for a whole one. */
static void close_as(int fd, bool broken)
{
    struct linger linger = {.l_onoff = broken, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
}

static int dial(int port, enum port_place place)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    int one = 1, fd = socket(place == PORT_ON_6 ? AF_INET6 : AF_INET,
                             SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v6.sin6_addr = in6addr_loopback;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close_as(fd, true);
    int done = place == PORT_ON_6 ? connect(fd, (struct sockaddr *)&v6, sizeof v6)
                                  : connect(fd, (struct sockaddr *)&v4, sizeof v4);
    if (done == 0 || errno == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

static struct stream *free_place(void)
{
    for (size_t at = 0; at < MOST_STREAMS; at++)
        if (streams[at].fd < 0)
            return &streams[at];
    return NULL;
}

static void open_stream(uint32_t id, uint32_t port)
{
    char words[128];
    struct stream *stream = free_place();
    if (stream == NULL) {
        refuse(id, "too many connections are open through this forward");
        return;
    }
    enum port_place place = port > 0 && port < 65536 ? port_find((int)port) : PORT_CLOSED;
    if (place == PORT_CLOSED || place == PORT_OF_OTHERS) {
        snprintf(words, sizeof words,
                 place == PORT_CLOSED ? "nothing listens on port %u of the job's loopback"
                                      : "port %u is open, but no process of this job holds it",
                 port);
        refuse(id, words);
        return;
    }
    int fd = dial((int)port, place);
    char *bytes = fd < 0 ? NULL : malloc(WINDOW);
    if (bytes == NULL) {
        refuse(id, "the connection cannot be made");
        if (fd >= 0)
            close(fd);
        return;
    }
    *stream = (struct stream){.id = id, .fd = fd, .credit = WINDOW, .bytes = bytes};
}

/* ---- frames that come ---- */

static void keep(struct stream *stream, const char *bytes, size_t length)
{
    if (stream->heard_end || stream->length + length > WINDOW) {
        break_off(stream); /* a client that does not keep the rules */
        return;
    }
    size_t to = (stream->from + stream->length) % WINDOW;
    size_t first = length < WINDOW - to ? length : WINDOW - to;
    memcpy(stream->bytes + to, bytes, first);
    memcpy(stream->bytes, bytes + first, length - first);
    stream->length += length;
}

static bool has_bytes(char letter)
{
    return letter == 'd';
}

/* False: these are no frames. */
static bool take(char letter, uint32_t id, uint32_t number, const char *bytes)
{
    struct stream *stream = find(id);
    if (letter == 'o' && stream == NULL)
        open_stream(id, number);
    else if (strchr("odwex", letter) == NULL || letter == 'o')
        return false;
    else if (stream == NULL)
        return true; /* it has ended on our side meanwhile */
    else if (letter == 'd')
        keep(stream, bytes, number);
    else if (letter == 'w')
        stream->credit += number > WINDOW ? WINDOW : number;
    else if (letter == 'e')
        stream->heard_end = true;
    else
        forget(stream);
    return true;
}

/* Takes whole frames, as long as there is room for our words. False: these are no frames. */
static bool take_frames(void)
{
    size_t at = 0;
    while (in_length - at >= HEAD && room() >= ROOM_FOR_WORDS) {
        uint32_t number = number_at(in + at + 5);
        size_t length = has_bytes(in[at]) ? number : 0;
        if (length > PIECE)
            return false;
        if (in_length - at < HEAD + length)
            break;
        if (!take(in[at], number_at(in + at + 1), number, in + at + HEAD))
            return false;
        at += HEAD + length;
    }
    memmove(in, in + at, in_length - at);
    in_length -= at;
    return true;
}

/* False: stdin has ended. */
static bool read_more(void)
{
    ssize_t got = read(0, in + in_length, sizeof in - in_length);
    if (got > 0)
        in_length += (size_t)got;
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

/* ---- sockets ---- */

static void finish_connect(struct stream *stream)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        refuse(stream->id, "the job's program does not take the connection");
        forget(stream);
        return;
    }
    stream->connected = true;
    put_head('k', stream->id, 0);
}

static void write_socket(struct stream *stream)
{
    while (stream->length > 0) {
        size_t run = WINDOW - stream->from;
        size_t length = stream->length < run ? stream->length : run;
        ssize_t wrote = send(stream->fd, stream->bytes + stream->from, length, MSG_NOSIGNAL);
        if (wrote < 0 && errno == EAGAIN)
            break;
        if (wrote < 0) {
            break_off(stream);
            return;
        }
        stream->from = (stream->from + (size_t)wrote) % WINDOW;
        stream->length -= (size_t)wrote;
        stream->owed += (uint32_t)wrote;
    }
    if (stream->owed >= WINDOW / 4) {
        put_head('w', stream->id, stream->owed);
        stream->owed = 0;
    }
    if (stream->heard_end && stream->length == 0 && !stream->shut) {
        shutdown(stream->fd, SHUT_WR);
        close_as(stream->fd, false);
        stream->shut = true;
        forget_if_over(stream);
    }
}

static void read_socket(struct stream *stream)
{
    size_t most = stream->credit < PIECE ? stream->credit : PIECE;
    ssize_t got = recv(stream->fd, out + out_to + HEAD, most, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got < 0) {
        break_off(stream);
        return;
    }
    if (got == 0) {
        stream->said_end = true;
        put_head('e', stream->id, 0);
        forget_if_over(stream);
        return;
    }
    put_head('d', stream->id, (uint32_t)got);
    out_to += (size_t)got;
    stream->credit -= (uint32_t)got;
}

static short wanted(const struct stream *stream)
{
    if (!stream->connected)
        return POLLOUT;
    short events = 0;
    if (!stream->said_end && stream->credit > 0 && room() >= PIECE + HEAD + ROOM_FOR_WORDS)
        events |= POLLIN;
    if (stream->length > 0 || (stream->heard_end && !stream->shut))
        events |= POLLOUT;
    return events;
}

static void serve(struct stream *stream, short events)
{
    if (room() < ROOM_FOR_WORDS)
        return; /* the next round */
    if (!stream->connected) {
        finish_connect(stream);
        return;
    }
    if (events & (POLLOUT | POLLERR))
        write_socket(stream);
    bool reads = stream->fd >= 0 && !stream->said_end && stream->credit > 0;
    if (reads && (events & (POLLIN | POLLHUP | POLLERR)) &&
        room() >= PIECE + HEAD + ROOM_FOR_WORDS)
        read_socket(stream);
}

/* ---- the loop ---- */

/* Frames that wait for room are taken after the next write to stdout. */
static size_t gather(struct pollfd *fds, struct stream **of)
{
    size_t count = 2;
    fds[0] = (struct pollfd){.fd = in_length < sizeof in ? 0 : -1, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = out_to > out_from ? 1 : -1, .events = POLLOUT};
    for (size_t at = 0; at < MOST_STREAMS; at++) {
        short events = streams[at].fd >= 0 ? wanted(&streams[at]) : 0;
        if (events == 0)
            continue; /* a socket that has hung up would end every wait */
        of[count] = &streams[at];
        fds[count++] = (struct pollfd){.fd = streams[at].fd, .events = events};
    }
    return count;
}

/* Everybody gets a turn: we begin elsewhere each time. */
static void serve_all(const struct pollfd *fds, struct stream **of, size_t count, size_t round)
{
    for (size_t step = 0; step + 2 < count; step++) {
        size_t at = 2 + (step + round) % (count - 2);
        if (fds[at].revents != 0 && of[at]->fd == fds[at].fd)
            serve(of[at], fds[at].revents);
    }
}

int forward_main(void)
{
    static struct pollfd fds[MOST_STREAMS + 2];
    static struct stream *of[MOST_STREAMS + 2];
    for (size_t at = 0; at < MOST_STREAMS; at++)
        streams[at].fd = -1;
    signal(SIGPIPE, SIG_IGN);
    fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
    fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_NONBLOCK);
    put_head('h', 0, WINDOW);
    for (size_t round = 0;; round++) {
        size_t count = gather(fds, of);
        if (poll(fds, count, -1) < 0 && errno != EINTR)
            return 1;
        serve_all(fds, of, count, round); /* before others come into the same places */
        if (fds[0].revents != 0 && !read_more())
            return 0;
        if (!take_frames() || !flush_out())
            return 0;
    }
}
