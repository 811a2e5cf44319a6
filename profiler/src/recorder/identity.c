/* The identity of this process: pid, start, program, and the part of the environment that names its
 * rank. */
#include "recorder.h"

#include <fcntl.h>

extern char **__environ WEAK;
extern const char *gnu_get_libc_version(void) WEAK;
extern void *__dls3 WEAK; /* only musl's loader has it */

#define VALUE_MOST 512

static const char *const keys[] = {
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME",
    "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
    "PMI_SIZE", "SLURM_JOB_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_NODEID", "DMLC_ROLE",
    "DMLC_WORKER_ID", "DMLC_SERVER_ID", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "HOROVOD_RANK",
    "HOROVOD_SIZE", "CUDA_VISIBLE_DEVICES", "TF_CONFIG",
};
static const char *const secret_words[] = {"TOKEN", "SECRET", "KEY", "PASSWORD"};

/* The program's own environment block at its start; later it may move under another thread's hands. */
static char identity[sizeof((struct dlqprof_header *)0)->identity];

static int name_contains(const char *entry, const char *word)
{
    for (; *entry && *entry != '='; entry++)
        if (text_starts(entry, word))
            return 1;
    return 0;
}

static int tells_who(const char *entry)
{
    size_t i;
    if (text_starts(entry, "DLQ_PROF_"))
        return 0;
    if (text_starts(entry, "DLQ_")) {
        for (i = 0; i < sizeof secret_words / sizeof *secret_words; i++)
            if (name_contains(entry, secret_words[i]))
                return 0;
        return 1;
    }
    for (i = 0; i < sizeof keys / sizeof *keys; i++)
        if (text_starts(entry, keys[i]) && entry[text_length(keys[i])] == '=')
            return 1;
    return 0;
}

void dlqprof_keep_identity(void)
{
    size_t used = 0, length, i;
    char **entry;
    for (entry = __environ; *entry; entry++) {
        if (!tells_who(*entry))
            continue;
        length = text_length(*entry);
        if (length > VALUE_MOST || used + length + 2 > sizeof identity)
            continue;
        for (i = 0; i < length; i++) /* a line for any value */
            identity[used++] = (*entry)[i] == '\n' ? ' ' : (*entry)[i];
        identity[used++] = '\n';
    }
    identity[used] = 0;
}

static size_t read_text(const char *path, char *to, size_t room)
{
    long fd = SYS4(SYS_openat, AT_FDCWD, ARG(path), O_RDONLY | O_CLOEXEC, 0), got = 0;
    if (fd >= 0) {
        got = SYS3(SYS_read, fd, ARG(to), room - 1);
        SYS1(SYS_close, fd);
    }
    got = got < 0 ? 0 : got;
    to[got] = 0;
    return (size_t)got;
}

/* Field 22 of /proc/self/stat; the name before it may hold spaces and brackets. */
static uint64_t start_ticks(void)
{
    char stat[1024];
    size_t length = read_text("/proc/self/stat", stat, sizeof stat), i, field = 2;
    uint64_t ticks = 0;
    while (length && stat[length - 1] != ')')
        length--;
    if (!length)
        return 0;
    for (i = length; stat[i] && field < 22; i++)
        field += stat[i] == ' ';
    for (; stat[i] >= '0' && stat[i] <= '9'; i++)
        ticks = ticks * 10 + (uint64_t)(stat[i] - '0');
    return ticks;
}

static uint32_t which_libc(void)
{
    if (gnu_get_libc_version)
        return DLQPROF_LIBC_GLIBC;
    return &__dls3 ? DLQPROF_LIBC_MUSL : DLQPROF_LIBC_OTHER;
}

void dlqprof_fill_header(struct dlqprof_header *header)
{
    size_t length;
    header->pid = (uint32_t)SYS0(SYS_getpid);
    header->parent_pid = (uint32_t)SYS0(SYS_getppid);
    header->uid = (uint32_t)SYS0(SYS_getuid);
    header->start_ticks = start_ticks();
    header->opened_ns = dlqprof_now(CLOCK_MONOTONIC);
    header->opened_unix_ns = dlqprof_now(CLOCK_REALTIME);
    header->libc = which_libc();
    length = read_text("/proc/self/comm", header->comm, sizeof header->comm);
    if (length && header->comm[length - 1] == '\n')
        header->comm[length - 1] = 0;
    text_copy(header->producer, sizeof header->producer, DLQPROF_PRODUCER);
    SYS4(SYS_readlinkat, AT_FDCWD, ARG("/proc/self/exe"), ARG(header->exe), sizeof header->exe - 1);
    text_copy(header->identity, sizeof header->identity, identity);
}
