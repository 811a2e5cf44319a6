/* Programs that measure switch recording on and off by themselves. */
#ifndef SWITCHING_H
#define SWITCHING_H

#include <dlqprof.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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

#endif
