/* rate send|write ROUNDS CALLS: CPU time of this thread per call, in nanoseconds, a line per round:
 * "OFF ON", with recording switched in between by this program itself (nothing to switch: no matter). */
#include "datagrams.h"

#include <dlqprof.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static struct dlqprof_control *map_control(void)
{
    static struct dlqprof_control nobody;
    const char *directory = getenv("DLQ_PROF_DIR");
    char path[4096];
    int fd;
    void *at;
    snprintf(path, sizeof path, "%s/%s", directory ? directory : "", DLQPROF_CONTROL_NAME);
    fd = open(path, O_RDWR);
    at = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? &nobody : at;
}

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
