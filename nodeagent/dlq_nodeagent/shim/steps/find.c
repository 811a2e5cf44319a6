/* The socket of the rank that this process is part of. */
#include "steps.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_MS 60000

extern char **environ;

static const char *variable_in(const char *environment, size_t length, const char *name)
{
    size_t name_length = strlen(name);
    for (const char *at = environment; at < environment + length; at += strlen(at) + 1)
        if (strncmp(at, name, name_length) == 0 && at[name_length] == '=')
            return at + name_length + 1;
    return NULL;
}

/* The variables of a process of ours; NULL when we may not see them. */
static char *environment_of(const char *pid, size_t *length)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/environ", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0)
        return NULL;
    struct bytes all = {0};
    if (fstat(fd, &info) == 0 && info.st_uid == geteuid())
        while (all.used < (4u << 20) && bytes_read(&all, fd, PIECE_BYTES) > 0)
            ;
    close(fd);
    *length = all.used;
    if (all.used > 0)
        bytes_add(&all, "", 1);
    return all.data;
}

static int parent_of(int pid)
{
    char path[64], text[1024];
    int parent = 0;
    char state;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    const char *behind = strrchr(text, ')');
    return behind != NULL && sscanf(behind + 1, " %c %d", &state, &parent) == 2 ? parent : 0;
}

/* The socket of the rank whose variables these are; 0: another job's, -1: none. */
static int try_environment(const char *environment, size_t length, const char *wanted_job)
{
    const char *job = variable_in(environment, length, "DLQ_JOB_ID");
    const char *beat = variable_in(environment, length, "DLQ_BEAT_FILE");
    const char *slash = beat == NULL ? NULL : strrchr(beat, '/');
    char directory[4096];
    if (job == NULL || slash == NULL || slash == beat || slash - beat >= (long)sizeof directory)
        return -1;
    if (wanted_job != NULL && strcmp(job, wanted_job) != 0)
        return 0;
    memcpy(directory, beat, (size_t)(slash - beat));
    directory[slash - beat] = '\0';
    return dial_unix(directory);
}

static int try_process(int pid, const char *wanted_job)
{
    char name[16];
    size_t length = 0;
    snprintf(name, sizeof name, "%d", pid);
    char *environment = environment_of(name, &length);
    int fd = environment == NULL ? -1 : try_environment(environment, length, wanted_job);
    free(environment);
    return fd;
}

enum { MOST_DEPTH = 64 };

/* The ancestors of a process but for process 1, the nearest first; their count. */
static int ancestors_of(int pid, int out[MOST_DEPTH])
{
    int count = 0;
    while ((pid = parent_of(pid)) > 1 && count < MOST_DEPTH)
        out[count++] = pid;
    return count;
}

/* Another cluster on this host may have a job of the same number and user. */
static bool is_relative(int pid, const int *ours, int our_count)
{
    int theirs[MOST_DEPTH], count = ancestors_of(pid, theirs);
    for (int at = 0; at < count; at++)
        for (int other = 0; other < our_count; other++)
            if (theirs[at] == ours[other])
                return true;
    return false;
}

/* Programs strip their children's variables, and leave SLURM_JOB_ID: then our ancestors have them,
 * or else any process of this user in that job. */
static int search(const char *wanted_job)
{
    int ours[MOST_DEPTH], count = ancestors_of(getpid(), ours), found = -1;
    for (int at = 0; at < count && found <= 0; at++)
        found = try_process(ours[at], wanted_job);
    DIR *processes = wanted_job == NULL || found > 0 ? NULL : opendir("/proc");
    struct dirent *entry;
    while (processes != NULL && found <= 0 && (entry = readdir(processes)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]) &&
            is_relative(atoi(entry->d_name), ours, count))
            found = try_process(atoi(entry->d_name), wanted_job);
    if (processes != NULL)
        closedir(processes);
    return found > 0 ? found : -1;
}

int dial_own(const char *wanted_job, char *words, size_t size)
{
    struct bytes own = {0};
    for (char **at = environ; *at != NULL; at++)
        bytes_add(&own, *at, strlen(*at) + 1);
    int fd = own.used == 0 ? -1 : try_environment(own.data, own.used, wanted_job);
    bytes_free(&own);
    if (fd <= 0)
        fd = search(wanted_job);
    if (fd <= 0)
        snprintf(words, size, "no job with compat = slurm runs here");
    return fd > 0 ? fd : -1;
}

bool hear_who(int fd, struct who *who)
{
    struct frame frame;
    char *payload;
    bool told = send_frame(fd, ASK_WHO, 0, "", 0) &&
                receive_frame(fd, ANSWER_MS, &frame, &payload) && frame.type == SAY_WHO &&
                who_parse(who, payload, frame.length);
    close(fd);
    return told;
}

_Noreturn void become_slow(const char *name, const char *job, char **argv, int argc)
{
    const char *own = getenv("DLQ_JOB_ID");
    if (own != NULL && (job == NULL || strcmp(job, own) == 0)) {
        /* Its main process is gone or full; another srun would come here, too. */
        fprintf(stderr, "%s: error: the main process of job %s does not answer\n", name, own);
        exit(1);
    }
    char path[4096 + 64];
    char **words = must_have(calloc((size_t)argc + 1, sizeof *words));
    ssize_t length = readlink("/proc/self/exe", path, 4096);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash != NULL) {
        sprintf(slash, "/../lib/slow/%.32s", name);
        memcpy(words, argv, (size_t)argc * sizeof *words);
        execv(path, words);
    }
    fprintf(stderr, "%s: error: this is no job with compat = slurm, and %s is not here\n", name, path);
    exit(127);
}
