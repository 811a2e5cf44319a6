/* Sends that never wait: datagrams to a socket of our own without a reader. */
#ifndef DATAGRAMS_H
#define DATAGRAMS_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int datagram_socket(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) ||
        getsockname(fd, (struct sockaddr *)&at, &length) ||
        connect(fd, (struct sockaddr *)&at, sizeof at))
        exit(2);
    return fd;
}

static __attribute__((unused)) void send_times(int fd, size_t bytes, int times)
{
    static char zeros[4096];
    int i;
    for (i = 0; i < times; i++)
        if (send(fd, zeros, bytes, 0) != (ssize_t)bytes)
            exit(3);
}

#endif
