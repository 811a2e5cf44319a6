/* Makes every recorded call once, over loopback, with sizes that name it; prints each result.
 *
 * The output must not depend on the profiler: the tests compare. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static char buffer[1 << 16];
/* Not constants, or the compiler would know better. */
static void *volatile nowhere = (void *)1;
static volatile int too_few = -1;

static void say(const char *what, long result)
{
    printf("%s %ld %s\n", what, result, result < 0 ? strerror(errno) : "");
}

static void expect_all(int fd, size_t bytes)
{
    while (bytes) {
        ssize_t got = recv(fd, buffer, bytes, MSG_WAITALL);
        if (got <= 0)
            exit(3);
        bytes -= (size_t)got;
    }
}

static void pair(int type, int ends[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, type, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) ||
        getsockname(listener, (struct sockaddr *)&at, &length))
        exit(2);
    ends[0] = socket(AF_INET, type, 0);
    if (type == SOCK_DGRAM) {
        ends[1] = listener;
        if (connect(ends[0], (struct sockaddr *)&at, sizeof at))
            exit(2);
        return;
    }
    if (listen(listener, 1) || connect(ends[0], (struct sockaddr *)&at, sizeof at))
        exit(2);
    ends[1] = accept(listener, NULL, NULL);
    if (close(listener))
        exit(2);
}

static struct iovec *two(size_t first, size_t second)
{
    static struct iovec parts[2];
    parts[0] = (struct iovec){buffer, first};
    parts[1] = (struct iovec){buffer + 4096, second};
    return parts;
}

static void stream(void)
{
    struct msghdr message;
    int ends[2], file = open("/proc/self/exe", O_RDONLY);
    pair(SOCK_STREAM, ends);
    say("send", send(ends[0], buffer, 101, 0));
    say("sendto", sendto(ends[0], buffer, 102, 0, NULL, 0));
    say("write", write(ends[0], buffer, 103));
    say("writev", writev(ends[0], two(4, 100), 2));
    memset(&message, 0, sizeof message);
    message.msg_iov = two(5, 100);
    message.msg_iovlen = 2;
    say("sendmsg", sendmsg(ends[0], &message, 0));
    say("sendfile", sendfile(ends[0], file, NULL, 106));
    say("peek", recv(ends[1], buffer, 7, MSG_PEEK));
    say("recv", recv(ends[1], buffer, 101, MSG_WAITALL));
    say("recvfrom", recvfrom(ends[1], buffer, 102, MSG_WAITALL, NULL, NULL));
    say("read", read(ends[1], buffer, 103));
    say("readv", readv(ends[1], two(4, 100), 2));
    message.msg_iov = two(5, 100);
    say("recvmsg", recvmsg(ends[1], &message, MSG_WAITALL));
    expect_all(ends[1], 106);
    say("close", close(ends[0]));
    say("end", recv(ends[1], buffer, 10, 0));
    say("close", close(ends[1]));
    close(file);
}

static void many(void)
{
    struct mmsghdr messages[2];
    struct iovec parts[2] = {{buffer, 201}, {buffer + 4096, 202}};
    int ends[2], i;
    pair(SOCK_DGRAM, ends);
    memset(messages, 0, sizeof messages);
    for (i = 0; i < 2; i++) {
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    say("sendmmsg", sendmmsg(ends[0], messages, 2, 0));
    for (i = 0; i < 2; i++)
        parts[i].iov_len = 4096;
    say("recvmmsg", recvmmsg(ends[1], messages, 2, 0, NULL));
    close(ends[0]);
    close(ends[1]);
}

/* errno is the call's, also after a call that went well. */
static void errors(void)
{
    int ends[2], closed, pipes[2];
    pair(SOCK_STREAM, ends);
    say("again", recv(ends[0], buffer, 1, MSG_DONTWAIT));
    say("fault", send(ends[0], nowhere, 10, 0));
    say("fault", writev(ends[0], nowhere, 2));
#ifdef __GLIBC__ /* musl looks into the message itself */
    say("fault", sendmsg(ends[0], nowhere, 0));
    say("fault", recvmsg(ends[0], nowhere, 0));
#endif
    say("invalid", writev(ends[0], two(1, 1), too_few));
    close(ends[1]);
    closed = ends[1];
    say("bad", write(closed, buffer, 1));
    say("bad", close(closed));
    say("pipe", send(ends[0], buffer, 1, MSG_NOSIGNAL) + send(ends[0], buffer, 1, MSG_NOSIGNAL));
    close(ends[0]);
    errno = 4242;
    pair(SOCK_STREAM, ends);
    errno = 4242;
    send(ends[0], buffer, 64, 0);
    printf("errno %d\n", errno);
    errno = 4243;
    recv(ends[1], buffer, 64, 0);
    close(ends[0]);
    close(ends[1]);
    printf("errno %d\n", errno);
    if (pipe(pipes))
        exit(2);
    say("pipe", write(pipes[1], "abc", 3));
    say("pipe", read(pipes[0], buffer, 10));
}

int main(void)
{
    stream();
    many();
    errors();
    return 7;
}
