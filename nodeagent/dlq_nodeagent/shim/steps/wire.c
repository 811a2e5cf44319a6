/* Frames, records and lists: how the programs of a job's steps talk. */
#include "steps.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LEAVE_MS 10000

void *must_have(void *memory)
{
    if (memory == NULL) {
        dprintf(2, "dlq: no memory\n");
        _exit(1);
    }
    return memory;
}

int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void reset_signals(void)
{
    const char default_action[64] = {0}; /* the kernel's struct sigaction, all zero */
    sigset_t none;
    for (int number = 1; number <= SIGRTMAX; number++)
        syscall(SYS_rt_sigaction, number, default_action, NULL, 8);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static struct rlimit before_raise;

void raise_files(void)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &before_raise) != 0)
        return;
    most = before_raise;
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
}

rlim_t files_before(void)
{
    struct rlimit now;
    if (before_raise.rlim_max != 0)
        return before_raise.rlim_cur;
    return getrlimit(RLIMIT_NOFILE, &now) == 0 ? now.rlim_cur : RLIM_INFINITY;
}

void restore_files(void)
{
    if (before_raise.rlim_max != 0)
        setrlimit(RLIMIT_NOFILE, &before_raise);
}

/* ---- bytes ---- */

void bytes_add(struct bytes *bytes, const void *data, size_t length)
{
    if (bytes->used + length > bytes->size) {
        bytes->size = 2 * (bytes->used + length) + 256;
        bytes->data = must_have(realloc(bytes->data, bytes->size));
    }
    memcpy(bytes->data + bytes->used, data, length);
    bytes->used += length;
}

void bytes_record(struct bytes *bytes, const char *key, const char *value)
{
    bytes_add(bytes, key, strlen(key));
    bytes_add(bytes, "=", 1);
    bytes_add(bytes, value, strlen(value) + 1);
}

void bytes_number(struct bytes *bytes, const char *key, long long value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", value);
    bytes_record(bytes, key, text);
}

void bytes_drop(struct bytes *bytes, size_t length)
{
    memmove(bytes->data, bytes->data + length, bytes->used - length);
    bytes->used -= length;
}

void bytes_free(struct bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct bytes){0};
}

void bytes_labelled(struct bytes *bytes, const char *label, bool *middle, const char *data,
                    size_t length)
{
    while (length > 0) {
        const char *end = memchr(data, '\n', length);
        size_t part = end == NULL ? length : (size_t)(end - data) + 1;
        if (!*middle)
            bytes_add(bytes, label, strlen(label));
        bytes_add(bytes, data, part);
        *middle = end == NULL;
        data += part;
        length -= part;
    }
}

void bytes_frame(struct bytes *bytes, enum frame_type type, unsigned task, const void *data,
                 size_t length)
{
    struct frame frame = {
        .length = (uint32_t)length, .type = (uint16_t)type, .task = (uint16_t)task};
    bytes_add(bytes, &frame, sizeof frame);
    bytes_add(bytes, data, length);
}

/* ---- a whole frame at a time ---- */

static bool wait_for(int fd, short events, int timeout_ms)
{
    struct pollfd wait = {.fd = fd, .events = events};
    int ready;
    while ((ready = poll(&wait, 1, timeout_ms)) < 0 && errno == EINTR)
        ;
    return ready > 0;
}

bool send_all(int fd, const void *data, size_t length)
{
    const char *at = data;
    while (length > 0) {
        ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN) {
            wait_for(fd, POLLOUT, -1);
            continue;
        }
        if (sent < 0)
            return false;
        at += sent;
        length -= (size_t)sent;
    }
    return true;
}

bool send_frame(int fd, enum frame_type type, unsigned task, const void *data, size_t length)
{
    struct bytes whole = {0};
    bytes_frame(&whole, type, task, data, length);
    bool sent = send_all(fd, whole.data, whole.used);
    bytes_free(&whole);
    return sent;
}

bool receive_all(int fd, void *data, size_t length, int timeout_ms)
{
    int64_t until = timeout_ms < 0 ? INT64_MAX : now_ms() + timeout_ms;
    for (char *at = data; length > 0;) {
        int64_t left = timeout_ms < 0 ? -1 : until - now_ms();
        if (timeout_ms >= 0 && left <= 0)
            return false;
        if (!wait_for(fd, POLLIN, (int)left))
            return false;
        ssize_t got = recv(fd, at, length, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return false;
        at += got;
        length -= (size_t)got;
    }
    return true;
}

bool receive_frame(int fd, int timeout_ms, struct frame *frame, char **payload)
{
    *payload = NULL;
    if (!receive_all(fd, frame, sizeof *frame, timeout_ms) || frame->length > MOST_FRAME_BYTES)
        return false;
    *payload = must_have(malloc((size_t)frame->length + 1));
    (*payload)[frame->length] = '\0';
    if (receive_all(fd, *payload, frame->length, timeout_ms))
        return true;
    free(*payload);
    *payload = NULL;
    return false;
}

/* A close with something unread would drop the tail of our own words. */
void leave_line(int fd)
{
    char piece[4096];
    int64_t until = now_ms() + LEAVE_MS;
    shutdown(fd, SHUT_WR);
    while (now_ms() < until && wait_for(fd, POLLIN, LEAVE_MS) && recv(fd, piece, sizeof piece, 0) > 0)
        ;
    close(fd);
}

/* ---- as much as is there ---- */

int bytes_read(struct bytes *bytes, int fd, size_t most)
{
    char piece[PIECE_BYTES];
    ssize_t got = read(fd, piece, most < sizeof piece ? most : sizeof piece);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (got <= 0)
        return -1;
    bytes_add(bytes, piece, (size_t)got);
    return 1;
}

int bytes_next(struct bytes *bytes, struct frame *frame, char **payload, uint32_t most)
{
    if (bytes->used < sizeof *frame)
        return 0;
    memcpy(frame, bytes->data, sizeof *frame);
    if (frame->length > most)
        return -1;
    if (bytes->used < sizeof *frame + frame->length)
        return 0;
    *payload = must_have(malloc((size_t)frame->length + 1));
    memcpy(*payload, bytes->data + sizeof *frame, frame->length);
    (*payload)[frame->length] = '\0';
    bytes_drop(bytes, sizeof *frame + frame->length);
    return 1;
}

/* ---- words ---- */

char *record_next(char **at, const char *end, char **value)
{
    while (*at < end) {
        char *key = *at, *equals = strchr(key, '=');
        *at += strlen(key) + 1;
        if (equals == NULL)
            continue;
        *equals = '\0';
        *value = equals + 1;
        return key;
    }
    return NULL;
}

bool parse_long(const char *text, long most, long *out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *out = strtol(text, &end, 10);
    return errno == 0 && *end == '\0' && *out <= most;
}

static int add_range(const char *head, size_t head_length, const char *item, const char *tail,
                     char names[][MOST_NAME], int count, int most)
{
    long first, last;
    char from[32];
    size_t width = strcspn(item, "-,]");
    if (width >= sizeof from || width == 0)
        return -1;
    memcpy(from, item, width);
    from[width] = '\0';
    if (!parse_long(from, 9999999, &first))
        return -1;
    last = first;
    if (item[width] == '-') {
        char to[32];
        size_t more = strcspn(item + width + 1, ",]");
        if (more >= sizeof to)
            return -1;
        memcpy(to, item + width + 1, more);
        to[more] = '\0';
        if (!parse_long(to, 9999999, &last) || last < first)
            return -1;
    }
    for (long number = first; number <= last; number++) {
        if (count >= most)
            return -1;
        if (snprintf(names[count++], MOST_NAME, "%.*s%0*ld%s", (int)head_length, head, (int)width,
                     number, tail) >= MOST_NAME)
            return -1;
    }
    return count;
}

int hosts_expand(const char *text, char names[][MOST_NAME], int most)
{
    int count = 0;
    while (*text != '\0') {
        size_t plain = strcspn(text, "[,");
        if (text[plain] != '[') {
            if (plain > 0) {
                if (count >= most || plain >= MOST_NAME)
                    return -1;
                snprintf(names[count++], MOST_NAME, "%.*s", (int)plain, text);
            }
            text += plain + (text[plain] == ',');
            continue;
        }
        const char *close = strchr(text + plain, ']');
        if (close == NULL)
            return -1;
        char tail[MOST_NAME];
        size_t tail_length = strcspn(close + 1, ",");
        if (tail_length >= sizeof tail || plain >= MOST_NAME)
            return -1;
        memcpy(tail, close + 1, tail_length);
        tail[tail_length] = '\0';
        for (const char *item = text + plain + 1; item < close;) {
            count = add_range(text, plain, item, tail, names, count, most);
            if (count < 0)
                return -1;
            item += strcspn(item, ",]");
            item += *item == ',';
        }
        text = close + 1 + tail_length;
        text += *text == ',';
    }
    return count;
}
