/* The environment of a task. */
#include "tasks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static const char *const NODE_PREFIXES[] = {"SLURM",
                                            "DLQ_",
                                            "PET_",
                                            "MASTER_",
                                            "NODE_RANK=",
                                            "NNODES=",
                                            "NPROC_PER_NODE=",
                                            "CUDA_VISIBLE_DEVICES="};

static bool is_of_the_node(const char *variable)
{
    for (size_t at = 0; at < sizeof NODE_PREFIXES / sizeof *NODE_PREFIXES; at++)
        if (strncmp(variable, NODE_PREFIXES[at], strlen(NODE_PREFIXES[at])) == 0)
            return true;
    return false;
}

static void set(const char *name, const char *value)
{
    setenv(name, value, 1);
}

static void set_number(const char *name, long value)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    set(name, text);
}

/* The entries of a comma list whose places are in `bits`. */
static void choose(const char *list, uint64_t bits, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (int place = 0; *list != '\0' && place < 64; place++) {
        int length = (int)strcspn(list, ",");
        if (bits & (1ull << place))
            used += (size_t)snprintf(out + used, size - used, "%s%.*s", used > 0 ? "," : "", length,
                                     list);
        if (used >= size)
            return;
        list += length + (list[length] == ',');
    }
}

static uint64_t nth_bit(uint64_t bits, long nth)
{
    for (int bit = 0; bit < 64; bit++)
        if ((bits & (1ull << bit)) && nth-- == 0)
            return 1ull << bit;
    return 0;
}

static long nth_number(const char *list, long nth)
{
    for (; nth > 0 && strchr(list, ',') != NULL; nth--)
        list = strchr(list, ',') + 1;
    return atol(list);
}

/* The GPUs of a task, of those of its step: all, its share, or as --gpu-bind says. */
static uint64_t task_gpus(uint64_t all, int local)
{
    int count = __builtin_popcountll(all);
    uint64_t own = 0;
    if (count == 0)
        return 0;
    if (strncmp(launch.gpu_bind, "single:", 7) == 0 && atol(launch.gpu_bind + 7) > 0)
        return nth_bit(all, local / atol(launch.gpu_bind + 7) % count);
    if (strncmp(launch.gpu_bind, "map_gpu:", 8) == 0) {
        long entries = 1;
        for (const char *at = launch.gpu_bind + 8; *at != '\0'; at++)
            entries += *at == ',';
        return nth_bit(all, nth_number(launch.gpu_bind + 8, local % entries));
    }
    if (launch.gpus_per_task == 0 || strcmp(launch.gpu_bind, "none") == 0)
        return all;
    for (long at = 0; at < launch.gpus_per_task; at++)
        own |= nth_bit(all, local * launch.gpus_per_task + at);
    return own;
}

static void set_gpus(int local)
{
    static char text[16384];
    uint64_t all = strtoull(launch.gpus, NULL, 16), own = task_gpus(all, local);
    const char *const lists[] = {"CUDA_VISIBLE_DEVICES", "DLQ_VIRTUAL_DEVICES"};
    for (int at = 0; at < 2; at++)
        for (char **each = launch.who->environment; *each != NULL; each++) {
            size_t length = strlen(lists[at]);
            if (strncmp(*each, lists[at], length) == 0 && (*each)[length] == '=') {
                choose(*each + length + 1, own, text, sizeof text);
                set(lists[at], text);
            }
        }
    for (char **each = launch.who->environment; *each != NULL; each++)
        if (strncmp(*each, "SLURM_JOB_GPUS=", 15) == 0) {
            choose(*each + 15, own, text, sizeof text);
            set("SLURM_STEP_GPUS", text);
        }
}

void set_environment(int rank, int local)
{
    clearenv();
    for (char **each = launch.who->environment; *each != NULL; each++)
        if (is_of_the_node(*each))
            putenv(*each);
    for (size_t at = 0; at < launch.environment_count; at++)
        if (strchr(launch.environment[at], '=') != NULL)
            putenv(launch.environment[at]);
    set("SLURMD_NODENAME", launch.host);
    set("SLURM_TOPOLOGY_ADDR", launch.host);
    set("SLURM_TOPOLOGY_ADDR_PATTERN", "node");
    char umask_text[16];
    snprintf(umask_text, sizeof umask_text, "%04lo", launch.mask);
    set("SLURM_UMASK", umask_text);
    set_number("SLURM_PROCID", rank);
    set_number("SLURM_LOCALID", local);
    set_number("SLURM_TASK_PID", getpid());
    set("SLURM_GTIDS", launch.ranks_here);
    if (*launch.gpus != '\0')
        set_gpus(local);
}
