/* One request: the call goes over a socket, its descriptors with it, and an exit code comes back. */

#include "front.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define READY_MS 5000

static int connect_to(const struct front_call *call)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s/%s.sock", call->run_dir,
                 call->key) >= (int)sizeof address.sun_path)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (!connect(fd, (struct sockaddr *)&address, sizeof address) &&
        !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.uid == geteuid())
        return fd;
    close(fd);
    return -1;
}

/* Everything at once; false when the server is gone or stuck. */
static bool send_all(int fd, const char *data, size_t size)
{
    while (size) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
        if (poll(&poll_fd, 1, READY_MS) <= 0)
            return false;
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (sent <= 0)
            return false;
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

static bool send_header(int fd, uint32_t size)
{
    uint32_t header[3] = {FRONT_MAGIC, FRONT_VERSION, size};
    int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int descriptors[4] = {0, 1, 2, here};
    struct iovec part = {.iov_base = header, .iov_len = sizeof header};
    union {
        char space[CMSG_SPACE(sizeof descriptors)];
        struct cmsghdr align;
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space,
                             .msg_controllen = sizeof control.space};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof descriptors);
    memcpy(CMSG_DATA(rights), descriptors, sizeof descriptors);
    bool sent = here >= 0 && sendmsg(fd, &message, MSG_NOSIGNAL) == sizeof header;
    if (here >= 0)
        close(here);
    return sent;
}

static size_t put_words(char *to, char **words)
{
    size_t size = 0;
    for (; *words; words++) {
        size_t length = strlen(*words) + 1;
        if (to)
            memcpy(to + size, *words, length);
        size += length;
    }
    return size;
}

static uint32_t count_of(char **words)
{
    uint32_t count = 0;
    while (words[count])
        count++;
    return count;
}

/* umask, counts and soft limits as numbers of 8 bytes, then all words, each with its zero. */
static char *body_of(const struct front_call *call, char **argv, char **envp, size_t *size)
{
    char *name[] = {(char *)call->name, NULL};
    uint64_t numbers[3 + FRONT_LIMITS];
    mode_t mask = umask(0);
    umask(mask);
    numbers[0] = mask;
    numbers[1] = count_of(argv + 1) + 1;
    numbers[2] = count_of(envp);
    for (int which = 0; which < FRONT_LIMITS; which++) {
        struct rlimit limit;
        if (getrlimit(which, &limit))
            return NULL;
        numbers[3 + which] = limit.rlim_cur;
    }
    *size = sizeof numbers + put_words(NULL, name) + put_words(NULL, argv + 1) +
            put_words(NULL, envp);
    char *body = malloc(*size), *to = body;
    if (!body || *size > 64u << 20) {
        free(body);
        return NULL;
    }
    memcpy(to, numbers, sizeof numbers);
    to += sizeof numbers;
    to += put_words(to, name);
    to += put_words(to, argv + 1);
    put_words(to, envp);
    return body;
}

/* The command runs only after our "G". Without "R" in time we take the slow way, and it never runs
 * twice. With "R" comes the number of the process that runs it. */
static bool agree(int fd, const struct front_call *call, char **argv, char **envp)
{
    struct __attribute__((packed)) {
        char word;
        int32_t pid;
    } ready = {0};
    size_t size = 0;
    char *body = body_of(call, argv, envp, &size);
    bool sent = body && send_header(fd, (uint32_t)size) && send_all(fd, body, size);
    free(body);
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    if (!sent || poll(&poll_fd, 1, READY_MS) != 1 ||
        recv(fd, &ready, sizeof ready, MSG_WAITALL) != sizeof ready || ready.word != 'R')
        return false;
    front_pass_signals(call, argv, fd, ready.pid);
    return send(fd, "G", 1, MSG_NOSIGNAL) == 1;
}

bool front_talk(const struct front_call *call, int argc, char **argv, char **envp, int *code)
{
    (void)argc;
    int fd = connect_to(call);
    if (fd < 0)
        return false;
    if (!agree(fd, call, argv, envp)) {
        close(fd);
        return false;
    }
    struct {
        char kind;
        unsigned char code;
    } answer;
    ssize_t size;
    do
        size = front_is_waking(fd) ? -1 : recv(fd, &answer, sizeof answer, MSG_WAITALL);
    while (size < 0 && (errno == EINTR || errno == EAGAIN));
    *code = size == sizeof answer && answer.kind == 'X' ? answer.code : front_end_by_signal(call);
    front_await_end(fd);
    return true;
}
