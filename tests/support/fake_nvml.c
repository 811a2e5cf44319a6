/* A fake libnvidia-ml.so.1: answers the NVML calls the agent makes from a small text file.
 *
 * The file is named by DLQ_FAKE_NVML and read anew by every call, so that a test can change the
 * machine under a running agent. One fact per line, fields separated by '|':
 *
 *   driver|580.65.06
 *   init|9                                 nvmlInit answers with this NVML error
 *   gpu|GPU-uuid|NVIDIA H100 80GB HBM3|TOTAL|USED|RESERVED     bytes; USED without RESERVED
 *   process|INDEX|PID|BYTES
 *   error|INDEX|15                         every question about this GPU answers with this error
 *   remap_failure|INDEX
 *
 * Compiled with -DOLD_DRIVER it exports no _v3 process call, no memory _v2 and no remapped rows,
 * as drivers before 510 did.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GPUS 64
#define MAX_PROCESSES 256

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7, UNKNOWN = 999 };

struct gpu {
    char uuid[96], name[96];
    unsigned long long total, used, reserved;
    int error, remap_failure;
};

struct process {
    unsigned int gpu, pid;
    unsigned long long bytes;
};

struct machine {
    char driver[80];
    int init_error;
    unsigned int gpus, processes;
    struct gpu gpu[MAX_GPUS];
    struct process process[MAX_PROCESSES];
};

/* The layouts of nvml.h. */
struct memory_v1 {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};
struct process_info {
    unsigned int pid;
    unsigned long long used_gpu_memory;
    unsigned int gpu_instance, compute_instance;
};

static int initialized;

static void read_line(struct machine *m, const char *line)
{
    struct gpu g = {0};
    struct process p = {0};
    unsigned int index;
    int code;

    if (sscanf(line, "driver|%79[^\n]", m->driver) == 1 || sscanf(line, "init|%d", &m->init_error) == 1)
        return;
    if (sscanf(line, "gpu|%95[^|]|%95[^|]|%llu|%llu|%llu", g.uuid, g.name, &g.total, &g.used,
               &g.reserved) == 5 && m->gpus < MAX_GPUS)
        m->gpu[m->gpus++] = g;
    else if (sscanf(line, "process|%u|%u|%llu", &p.gpu, &p.pid, &p.bytes) == 3 &&
             m->processes < MAX_PROCESSES)
        m->process[m->processes++] = p;
    else if (sscanf(line, "error|%u|%d", &index, &code) == 2 && index < MAX_GPUS)
        m->gpu[index].error = code;
    else if (sscanf(line, "remap_failure|%u", &index) == 1 && index < MAX_GPUS)
        m->gpu[index].remap_failure = 1;
}

static int machine(struct machine *m)
{
    char line[512];
    const char *path = getenv("DLQ_FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;

    memset(m, 0, sizeof *m);
    if (!file)
        return UNKNOWN;
    while (fgets(line, sizeof line, file))
        read_line(m, line);
    fclose(file);
    return SUCCESS;
}

/* A handle is the index plus one, so that it is never NULL. */
static int gpu_of(struct machine *m, void *handle, struct gpu **gpu)
{
    size_t index = (size_t)handle - 1;
    int rc = initialized ? machine(m) : UNINITIALIZED;

    if (rc)
        return rc;
    if (!handle || index >= m->gpus)
        return INVALID_ARGUMENT;
    *gpu = &m->gpu[index];
    return (*gpu)->error;
}

int nvmlInitWithFlags(unsigned int flags)
{
    struct machine m;
    int rc = machine(&m);

    (void)flags;
    if (rc || m.init_error)
        return rc ? rc : m.init_error;
    initialized = 1;
    return SUCCESS;
}

int nvmlShutdown(void)
{
    initialized = 0;
    return SUCCESS;
}

const char *nvmlErrorString(int code)
{
    (void)code;
    return "an error of the fake driver";
}

int nvmlSystemGetDriverVersion(char *text, unsigned int size)
{
    struct machine m;
    int rc = machine(&m);

    if (!rc)
        snprintf(text, size, "%s", m.driver);
    return rc;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    struct machine m;
    int rc = initialized ? machine(&m) : UNINITIALIZED;

    *count = m.gpus;
    return rc;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle)
{
    struct machine m;
    struct gpu *gpu;

    *handle = (void *)(size_t)(index + 1);
    return gpu_of(&m, *handle, &gpu);
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned int size)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    if (!rc)
        snprintf(text, size, "%s", gpu->uuid);
    return rc;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned int size)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    if (!rc)
        snprintf(text, size, "%s", gpu->name);
    return rc;
}

int nvmlDeviceGetMemoryInfo(void *handle, struct memory_v1 *memory)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    if (rc)
        return rc;
    memory->total = gpu->total;
    memory->used = gpu->used + gpu->reserved;
    memory->free = gpu->total - memory->used;
    return SUCCESS;
}

static int processes_of(void *handle, unsigned int *count, struct process_info *out)
{
    struct machine m;
    struct gpu *gpu;
    unsigned int found = 0, room = *count, i;
    int rc = gpu_of(&m, handle, &gpu);

    if (rc)
        return rc;
    for (i = 0; i < m.processes; i++) {
        if (m.process[i].gpu != (size_t)handle - 1)
            continue;
        if (out && found < room) {
            out[found].pid = m.process[i].pid;
            out[found].used_gpu_memory = m.process[i].bytes;
            out[found].gpu_instance = out[found].compute_instance = ~0u;
        }
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned int *count, struct process_info *out)
{
    return processes_of(handle, count, out);
}

#ifndef OLD_DRIVER
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *count, struct process_info *out)
{
    return processes_of(handle, count, out);
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *memory)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    if (rc)
        return rc;
    memory->total = gpu->total;
    memory->used = gpu->used;
    memory->reserved = gpu->reserved;
    memory->free = gpu->total - gpu->used - gpu->reserved;
    return SUCCESS;
}

int nvmlDeviceGetRemappedRows(void *handle, unsigned int *corrected, unsigned int *uncorrected,
                              unsigned int *pending, unsigned int *failure)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    if (rc)
        return rc;
    *corrected = *uncorrected = *pending = 0;
    *failure = gpu->remap_failure;
    return SUCCESS;
}
#endif
