/* rate send|write ROUNDS CALLS: CPU time of this thread per call, in nanoseconds, a line per round:
 * "OFF ON", with recording switched in between by this program itself (nothing to switch: no matter). */
#include "datagrams.h"

#include "switching.h"

#include <string.h>

static double measure(int sends, int fd, long calls)
{
    double start = cpu_ns();
    long i;
    for (i = 0; i < calls; i++)
        if ((sends ? send(fd, "", 0, 0) : write(fd, "x", 1)) < 0)
            exit(3);
    return (cpu_ns() - start) / (double)calls;
}

/* A connected pair: nothing is queued by a send of nothing, on a stream. */
static int stream_socket(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&at, &length) ||
        connect(fd, (struct sockaddr *)&at, sizeof at) || accept(listener, NULL, NULL) < 0)
        exit(2);
    return fd;
}

int main(int argc, char **argv)
{
    struct dlqprof_control *control = map_control();
    int sends = argc > 3 && !strcmp(argv[1], "send"), round, fd;
    if (argc < 4)
        return 2;
    fd = sends ? stream_socket() : open("/dev/null", O_WRONLY);
    control->mode = DLQPROF_RECORD;
    measure(sends, fd, 2000); /* the file is made, the chunks are there */
    for (round = 0; round < atoi(argv[2]); round++) {
        double off, on;
        control->mode = DLQPROF_OFF;
        off = measure(sends, fd, atol(argv[3]));
        control->mode = DLQPROF_RECORD;
        on = measure(sends, fd, atol(argv[3]));
        printf("%.2f %.2f\n", off, on);
    }
    return 0;
}
