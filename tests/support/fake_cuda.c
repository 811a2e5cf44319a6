/* A fake libcuda.so.1 over the machine of fake_nvml.c: devices, memory, checkpoints of processes.
 *
 * Each process writes into FAKE_CUDA/PID how much it has, and the fake NVML counts that for as
 * long as the process lives. Memory is never touched but at the ends of each piece, so a test may hold
 * 100 GB of it. With FAKE_CUDA_HIDDEN the process is in no list of NVML. `dlqFakeBusy` tells how busy
 * the GPU is with this process, in percent. Compiled with -DNO_SUSPENSION it checkpoints no process.
 *
 * FAKE_CUDA_FAULT plants a fault: `error|FUNCTION|CODE` in a function of copies and waits,
 * `wrong|GPU` in copies within that GPU, `slow|GPU|MILLISECONDS` in each of them.
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
    CUDA_INVALID_DEVICE = 101,
    CUDA_ILLEGAL_STATE = 401
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
    char path[512];

    /* A test may let every program see every GPU, whatever the variable says. */
    snprintf(path, sizeof path, "%s/all", getenv("FAKE_CUDA") ? getenv("FAKE_CUDA") : "");
    if (access(path, F_OK) == 0)
        word = NULL;

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

static int planted(const char *kind, const char *name, int *number)
{
    const char *told = getenv("FAKE_CUDA_FAULT");
    char wanted[128];
    size_t length = (size_t)snprintf(wanted, sizeof wanted, "%s|%s", kind, name);

    if (!told || strncmp(told, wanted, length) || (told[length] && told[length] != '|'))
        return 0;
    *number = told[length] ? atoi(told + length + 1) : 0;
    return 1;
}

static int error_of(const char *name)
{
    int code = SUCCESS;

    return planted("error", name, &code) ? code : SUCCESS;
}

int cuGetErrorName(int code, const char **name)
{
    *name = code == 214 ? "CUDA_ERROR_ECC_UNCORRECTABLE" : NULL;
    return *name ? SUCCESS : CUDA_INVALID_VALUE;
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
    return error_of("cuCtxSynchronize");
}

int cuStreamCreate(void **stream, unsigned int flags)
{
    *stream = flags == 1 ? &current : NULL;
    return SUCCESS;
}

int cuStreamSynchronize(void *stream)
{
    return stream == &current ? error_of("cuStreamSynchronize") : CUDA_INVALID_VALUE;
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

int cuMemsetD32_v2(unsigned long long at, unsigned int value, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++)
        ((unsigned int *)(size_t)at)[i] = value;
    return error_of("cuMemsetD32_v2");
}

int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes)
{
    memcpy((void *)(size_t)to, from, bytes);
    return SUCCESS;
}

int cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, size_t bytes)
{
    char gpu[16];
    int number = 0;

    snprintf(gpu, sizeof gpu, "%u", current);
    memcpy((void *)(size_t)to, (void *)(size_t)from, bytes);
    if (planted("wrong", gpu, &number))
        ((unsigned char *)(size_t)to)[bytes / 2] ^= 4;
    if (planted("slow", gpu, &number))
        usleep((useconds_t)number * 1000);
    return error_of("cuMemcpyDtoD_v2");
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
/* CUDA's error for a call that a test refuses: lines `Checkpoint|PID|ERROR` of FAKE_CUDA/refuse. */
static int refused(const char *call, int pid)
{
    char path[512], line[128], name[32];
    const char *home = getenv("FAKE_CUDA");
    int of, code, rc = SUCCESS;
    FILE *file;

    snprintf(path, sizeof path, "%s/refuse", home ? home : "");
    file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%31[^|]|%d|%d", name, &of, &code) == 3 && !strcmp(name, call) &&
            (of == pid || !of))
            rc = code;
    if (file)
        fclose(file);
    return rc;
}

/* Rewrites the state in the file of another process: from `from` to `to`, and its GPU with it. */
static int step_state(const char *call, int pid, unsigned int from, unsigned int to,
                      const unsigned int *onto)
{
    char path[512], draft[520], line[128];
    unsigned int gpu, hidden, busy, state;
    unsigned long long bytes;
    const char *home = getenv("FAKE_CUDA");
    FILE *in, *out;
    int rc = CUDA_INVALID_VALUE, wrong = 0, code = refused(call, pid);

    if (code)
        return code;
    snprintf(path, sizeof path, "%s/%d", home ? home : "", pid);
    snprintf(draft, sizeof draft, "%s/draft.state.%d", home ? home : "", pid);
    if (!(in = fopen(path, "r")))
        return rc;
    if (!(out = fopen(draft, "w"))) {
        fclose(in);
        return rc;
    }
    while (fgets(line, sizeof line, in))
        if (sscanf(line, "hold|%u|%llu|%u|%u|%u", &gpu, &bytes, &hidden, &busy, &state) == 5) {
            wrong |= state != from;
            fprintf(out, "hold|%u|%llu|%u|%u|%u\n", onto ? onto[gpu] : gpu, bytes, hidden, busy, to);
            rc = SUCCESS;
        }
    fclose(in);
    fclose(out);
    if (wrong)
        return CUDA_ILLEGAL_STATE;
    return rc || rename(draft, path) ? CUDA_INVALID_VALUE : SUCCESS;
}

/* The layouts of cuda.h. */
struct gpu_pair {
    unsigned char from[16], to[16];
};
struct restore_args {
    struct gpu_pair *pairs;
    unsigned int count;
    char reserved[52 - sizeof(struct gpu_pair *)];
    unsigned long long reserved1;
};

static int gpu_of_bytes(const struct machine *m, const unsigned char *bytes)
{
    unsigned int i, k;

    for (i = 0; i < m->gpus; i++) {
        const char *at = m->gpu[i].uuid + strlen("GPU-");
        unsigned char raw;

        for (k = 0; k < 16 && sscanf(at, "%2hhx", &raw) == 1 && raw == bytes[k]; k++)
            at += at[2] == '-' ? 3 : 2;
        if (k == 16)
            return (int)i;
    }
    return -1;
}

int cuCheckpointProcessGetState(int pid, int *state)
{
    char path[512], line[128];
    unsigned int gpu, hidden, busy, found;
    unsigned long long bytes;
    const char *home = getenv("FAKE_CUDA");
    FILE *file;
    int rc = CUDA_INVALID_VALUE;

    snprintf(path, sizeof path, "%s/%d", home ? home : "", pid);
    if (!(file = fopen(path, "r")))
        return rc;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "hold|%u|%llu|%u|%u|%u", &gpu, &bytes, &hidden, &busy, &found) == 5) {
            *state = (int)found;
            rc = SUCCESS;
        }
    fclose(file);
    return rc;
}

int cuCheckpointProcessLock(int pid, void *arguments)
{
    (void)arguments;
    return step_state("Lock", pid, 0, 1, NULL);
}

int cuCheckpointProcessCheckpoint(int pid, void *arguments)
{
    (void)arguments;
    return step_state("Checkpoint", pid, 1, 2, NULL);
}

int cuCheckpointProcessRestore(int pid, void *arguments)
{
    const struct restore_args *args = arguments;
    unsigned int onto[MAX_GPUS], i;
    struct machine m;

    if (machine(&m))
        return CUDA_NOT_INITIALIZED;
    for (i = 0; i < MAX_GPUS; i++)
        onto[i] = i;
    for (i = 0; args && i < args->count; i++) {
        int from = gpu_of_bytes(&m, args->pairs[i].from), to = gpu_of_bytes(&m, args->pairs[i].to);

        if (from < 0 || to < 0 || strcmp(m.gpu[from].name, m.gpu[to].name))
            return CUDA_INVALID_DEVICE;
        onto[from] = (unsigned int)to;
    }
    return step_state("Restore", pid, 2, 1, onto);
}

int cuCheckpointProcessUnlock(int pid, void *arguments)
{
    (void)arguments;
    return step_state("Unlock", pid, 1, 0, NULL);
}
#endif
