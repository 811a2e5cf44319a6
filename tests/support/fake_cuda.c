/* A fake libcuda.so.1 over the machine of fake_nvml.c: devices, memory, checkpoints of processes.
 *
 * Each process writes into FAKE_CUDA/PID how much it has, and the fake NVML counts that for as
 * long as the process lives. Memory is never touched but at the ends of each piece, so a test may hold
 * 100 GB of it. With FAKE_CUDA_HIDDEN the process is in no list of NVML. `dlqFakeBusy` tells how busy
 * the GPU is with this process, in percent. Compiled with -DNO_SUSPENSION it checkpoints no process.
 */
#define _GNU_SOURCE
#include "fake_nvml.c"

#include <sys/mman.h>

#define MAX_PIECES 256
#define PAGE 4096UL

enum {
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_DEVICE = 101
};

struct piece {
    void *at;
    size_t bytes;
    unsigned int gpu;
};

static unsigned int seen[MAX_GPUS], visible, current, busy_percent;
static struct piece pieces[MAX_PIECES];
static int cuda_ready;

static int write_holds(unsigned int pid, unsigned int state)
{
    unsigned long long bytes[MAX_GPUS] = {0};
    char path[512], draft[520];
    const char *home = getenv("FAKE_CUDA");
    FILE *file;
    int i;

    if (!home)
        return CUDA_NOT_INITIALIZED;
    snprintf(path, sizeof path, "%s/%u", home, pid);
    snprintf(draft, sizeof draft, "%s/draft.%u", home, pid);
    for (i = 0; i < MAX_PIECES; i++)
        bytes[pieces[i].gpu] += pieces[i].bytes;
    if (!(file = fopen(draft, "w")))
        return CUDA_NOT_INITIALIZED;
    for (i = 0; i < MAX_GPUS; i++)
        if (bytes[i] || (unsigned int)i == current)
            fprintf(file, "hold|%d|%llu|%d|%u|%u\n", i, bytes[i], getenv("FAKE_CUDA_HIDDEN") != NULL,
                    busy_percent, state);
    fclose(file);
    return rename(draft, path) ? CUDA_NOT_INITIALIZED : SUCCESS;
}

static void see(const struct machine *m)
{
    const char *word = getenv("CUDA_VISIBLE_DEVICES");
    unsigned int i;

    visible = 0;
    if (!word)
        for (i = 0; i < m->gpus; i++)
            seen[visible++] = i;
    while (word && *word) {
        size_t length = strcspn(word, ",");

        for (i = 0; i < m->gpus; i++)
            if ((strlen(m->gpu[i].uuid) == length && !strncmp(word, m->gpu[i].uuid, length)) ||
                (isdigit((unsigned char)*word) && (unsigned int)atoi(word) == i))
                seen[visible++] = i;
        word += length + (word[length] == ',');
    }
}

int cuInit(unsigned int flags)
{
    struct machine m;

    (void)flags;
    if (machine(&m))
        return CUDA_NOT_INITIALIZED;
    see(&m);
    cuda_ready = visible > 0;
    return cuda_ready ? SUCCESS : CUDA_NO_DEVICE;
}

int cuDriverGetVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

int cuDeviceGetCount(int *count)
{
    *count = (int)visible;
    return cuda_ready ? SUCCESS : CUDA_NOT_INITIALIZED;
}

int cuDeviceGet(int *device, int ordinal)
{
    if (ordinal < 0 || ordinal >= (int)visible)
        return CUDA_INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

int cuDeviceGetUuid(unsigned char *uuid, int device)
{
    struct machine m;
    const char *text;
    int i;

    if (machine(&m) || device >= (int)visible)
        return CUDA_INVALID_DEVICE;
    text = m.gpu[seen[device]].uuid + strlen("GPU-");
    for (i = 0; i < 16 && sscanf(text, "%2hhx", &uuid[i]) == 1; i++)
        text += text[2] == '-' ? 3 : 2;
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    if (device < 0 || device >= (int)visible)
        return CUDA_INVALID_DEVICE;
    *context = (void *)(size_t)(device + 1);
    return SUCCESS;
}

int cuCtxSetCurrent(void *context)
{
    current = seen[(size_t)context - 1];
    return write_holds((unsigned int)getpid(), 0);
}

int cuCtxSynchronize(void)
{
    return SUCCESS;
}

int cuMemGetInfo_v2(size_t *left, size_t *total)
{
    struct machine m;

    if (machine(&m))
        return CUDA_NOT_INITIALIZED;
    *total = m.gpu[current].total;
    *left = *total - m.gpu[current].used - m.gpu[current].reserved;
    return SUCCESS;
}

int cuMemAlloc_v2(unsigned long long *at, size_t bytes)
{
    size_t left, total;
    int i, rc = cuMemGetInfo_v2(&left, &total);

    if (rc || bytes > left)
        return rc ? rc : CUDA_OUT_OF_MEMORY;
    for (i = 0; i < MAX_PIECES && pieces[i].bytes; i++)
        ;
    if (i == MAX_PIECES)
        return CUDA_OUT_OF_MEMORY;
    pieces[i].at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pieces[i].at == MAP_FAILED)
        return CUDA_OUT_OF_MEMORY;
    pieces[i].bytes = bytes;
    pieces[i].gpu = current;
    *at = (unsigned long long)(size_t)pieces[i].at;
    return write_holds((unsigned int)getpid(), 0);
}

int cuMemFree_v2(unsigned long long at)
{
    int i;

    for (i = 0; i < MAX_PIECES; i++)
        if (pieces[i].bytes && pieces[i].at == (void *)(size_t)at) {
            munmap(pieces[i].at, pieces[i].bytes);
            memset(&pieces[i], 0, sizeof pieces[i]);
            return write_holds((unsigned int)getpid(), 0);
        }
    return CUDA_INVALID_VALUE;
}

int cuMemsetD8_v2(unsigned long long at, unsigned char value, size_t bytes)
{
    size_t end = bytes < PAGE ? bytes : PAGE;

    memset((void *)(size_t)at, value, end);
    memset((void *)(size_t)(at + bytes - end), value, end);
    return SUCCESS;
}

int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes)
{
    memcpy(to, (void *)(size_t)from, bytes);
    return SUCCESS;
}

int dlqFakeBusy(unsigned int percent)
{
    busy_percent = percent;
    return write_holds((unsigned int)getpid(), 0);
}

#ifndef NO_SUSPENSION
/* Rewrites the state in the file of another process: from one of `from` to `to`. */
static int step_state(int pid, unsigned int from, unsigned int to)
{
    char path[512], draft[520], line[128];
    unsigned int gpu, hidden, busy, state;
    unsigned long long bytes;
    const char *home = getenv("FAKE_CUDA");
    FILE *in, *out;
    int rc = CUDA_INVALID_VALUE;

    snprintf(path, sizeof path, "%s/%d", home ? home : "", pid);
    snprintf(draft, sizeof draft, "%s/draft.state.%d", home ? home : "", pid);
    if (!(in = fopen(path, "r")))
        return rc;
    if (!(out = fopen(draft, "w"))) {
        fclose(in);
        return rc;
    }
    while (fgets(line, sizeof line, in))
        if (sscanf(line, "hold|%u|%llu|%u|%u|%u", &gpu, &bytes, &hidden, &busy, &state) == 5 &&
            state == from) {
            fprintf(out, "hold|%u|%llu|%u|%u|%u\n", gpu, bytes, hidden, busy, to);
            rc = SUCCESS;
        }
    fclose(in);
    fclose(out);
    return rc || rename(draft, path) ? CUDA_INVALID_VALUE : SUCCESS;
}

int cuCheckpointProcessLock(int pid, void *arguments)
{
    (void)arguments;
    return step_state(pid, 0, 1);
}

int cuCheckpointProcessCheckpoint(int pid, void *arguments)
{
    (void)arguments;
    return step_state(pid, 1, 2);
}

int cuCheckpointProcessRestore(int pid, void *arguments)
{
    (void)arguments;
    return step_state(pid, 2, 1);
}

int cuCheckpointProcessUnlock(int pid, void *arguments)
{
    (void)arguments;
    return step_state(pid, 1, 0);
}
#endif
