/* Small things every part needs: clocks and small files. */
#include "shim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t clock_ns(int clock_id)
{
    struct timespec now = {0};
    clock_gettime((clockid_t)clock_id, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

ssize_t read_text(const char *path, char *buffer, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t used = 0;
    ssize_t got = 0;
    while (used + 1 < size && (got = read(fd, buffer + used, size - 1 - used)) > 0)
        used += (size_t)got;
    close(fd);
    buffer[used] = '\0';
    return got < 0 ? -1 : (ssize_t)used;
}

int write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t length = (ssize_t)strlen(text);
    int result = write(fd, text, (size_t)length) == length ? 0 : -1;
    close(fd);
    return result;
}

void read_boot_id(char id[40])
{
    if (read_text("/proc/sys/kernel/random/boot_id", id, 40) < 0)
        id[0] = '\0';
    id[strcspn(id, "\n")] = '\0';
}

/* Field 22 of /proc/PID/stat; the name in field 2 may contain anything, so count from its end. */
int64_t start_ticks(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (read_text(path, text, sizeof text) < 0)
        return -1;
    char *field = strrchr(text, ')');
    for (int number = 2; field != NULL && number < 22; number++) {
        field = strchr(field, ' ');
        if (field != NULL)
            field++;
    }
    return field == NULL ? -1 : strtoll(field, NULL, 10);
}
