/* A fake libnvidia-ml.so.1: answers the NVML calls the agent makes from a small text file.
 *
 * The file is named by FAKE_NVML and read anew by every call, so that a test can change the
 * machine under a running agent. One fact per line, fields separated by '|':
 *
 *   driver|580.65.06
 *   init|9                                 nvmlInit answers with this NVML error
 *   gpu|GPU-uuid|NVIDIA H100 80GB HBM3|TOTAL|USED|RESERVED     bytes; USED without RESERVED
 *   process|INDEX|PID|BYTES
 *   error|INDEX|15                         every question about this GPU answers with this error
 *   remap_failure|INDEX
 *   remap_pending|INDEX
 *   pci|INDEX|DOMAIN|BUS|DEVICE                                hexadecimal; not told: 0|INDEX+1|0
 *   ecc|INDEX|COUNT                        uncorrected since the driver was loaded
 *   throttle|INDEX|MASK                    hexadecimal, nvmlClocksThrottleReason*
 *   temperature|INDEX|CELSIUS
 *   utilization|INDEX|PERCENT
 *   power|INDEX|MILLIWATTS
 *   clock|INDEX|MHZ                        of the streaming multiprocessors
 *   link|INDEX|LINK|ACTIVE|ERRORS          NVLink; a GPU without such lines has none
 *   recovery|INDEX|ACTION                  NVML_GPU_RECOVERY_ACTION_*
 *   xid|INDEX|NUMBER                       sent once, to the first who waits for events
 *   mig|INDEX|MODE                         1: the GPU is cut into parts; not told: it cannot be
 *   mps|INDEX|PID|BYTES                    a client of an MPS server
 *   cuda|13000                             the newest CUDA that the driver runs
 *   linger|MILLISECONDS                    memory of a killed process stays so long
 *   late|MILLISECONDS                      a busy process is seen to be so only after so long
 *   minor|INDEX|NUMBER                     of its device file; not told: not supported
 *   fails|INDEX|CALL|15                    this call about this GPU answers with this error
 *
 * Programs that use fake_cuda.c tell in files of the directory FAKE_CUDA, one named by each PID:
 *
 *   hold|INDEX|BYTES|HIDDEN|BUSY|STATE     HIDDEN: it is in no list; BUSY: percent; STATE: CUprocessState
 *
 * Compiled with -DOLD_DRIVER it exports no _v3 process call, no memory _v2 and no remapped rows,
 * as drivers before 510 did.
 */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_GPUS 64
#define MAX_PROCESSES 256
#define MAX_LINKS 18
#define MAX_XIDS 64
#define MAX_FAILS 16

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    UNKNOWN = 999
};

struct gpu {
    char uuid[96], name[96];
    unsigned long long total, used, reserved;
    int error, remap_failure, remap_pending;
    unsigned int domain, bus, device;
    unsigned long long ecc, throttle;
    unsigned int temperature, utilization, recovery, power, clock;
    unsigned int links, active[MAX_LINKS];
    unsigned long long link_errors[MAX_LINKS];
    int can_mig, mig, has_minor;
    unsigned int minor;
};

struct fail {
    unsigned int gpu;
    char call[64];
    int code;
};

struct xid {
    unsigned int gpu;
    unsigned long long number;
};

struct process {
    unsigned int gpu, pid;
    unsigned long long bytes;
};

struct machine {
    char driver[80];
    int init_error, cuda;
    long linger_ms, late_ms;
    unsigned int gpus, processes, clients, xids, fails;
    struct fail fail[MAX_FAILS];
    struct xid xid[MAX_XIDS];
    struct gpu gpu[MAX_GPUS];
    struct process process[MAX_PROCESSES], client[MAX_PROCESSES];
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

struct pci_info {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};
struct utilization {
    unsigned int gpu, memory;
};
struct event {
    void *device;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
};
struct field_value {
    unsigned int field, scope;
    long long timestamp, latency;
    unsigned int type, rc;
    union {
        double d;
        unsigned int ui;
        unsigned long long ull;
    } value;
};

static int initialized;
static unsigned int told_xids;

static void read_vitals(struct machine *m, const char *line)
{
    unsigned int index, link, active, a, b, c;
    unsigned long long number;
    struct gpu *g;

    if (sscanf(line, "xid|%u|%llu", &index, &number) == 2 && m->xids < MAX_XIDS) {
        m->xid[m->xids].gpu = index;
        m->xid[m->xids++].number = number;
        return;
    }
    if (m->fails < MAX_FAILS && sscanf(line, "fails|%u|%63[^|]|%d", &m->fail[m->fails].gpu,
                                       m->fail[m->fails].call, &m->fail[m->fails].code) == 3) {
        m->fails++;
        return;
    }
    if (sscanf(line, "%*[a-z]|%u", &index) != 1 || index >= MAX_GPUS)
        return;
    g = &m->gpu[index];
    if (sscanf(line, "pci|%*u|%x|%x|%x", &a, &b, &c) == 3)
        g->domain = a, g->bus = b, g->device = c;
    else if (sscanf(line, "ecc|%*u|%llu", &number) == 1)
        g->ecc = number;
    else if (sscanf(line, "throttle|%*u|%llx", &number) == 1)
        g->throttle = number;
    else if (sscanf(line, "temperature|%*u|%u", &a) == 1)
        g->temperature = a;
    else if (sscanf(line, "utilization|%*u|%u", &a) == 1)
        g->utilization = a;
    else if (sscanf(line, "power|%*u|%u", &a) == 1)
        g->power = a;
    else if (sscanf(line, "clock|%*u|%u", &a) == 1)
        g->clock = a;
    else if (sscanf(line, "minor|%*u|%u", &a) == 1)
        g->has_minor = 1, g->minor = a;
    else if (sscanf(line, "recovery|%*u|%u", &a) == 1)
        g->recovery = a;
    else if (sscanf(line, "link|%*u|%u|%u|%llu", &link, &active, &number) == 3 && link < MAX_LINKS) {
        g->active[link] = active;
        g->link_errors[link] = number;
        if (link >= g->links)
            g->links = link + 1;
    }
}

static void read_line(struct machine *m, const char *line)
{
    struct gpu g = {0};
    struct process p = {0};
    unsigned int index;
    int code;

    if (sscanf(line, "driver|%79[^\n]", m->driver) == 1 || sscanf(line, "init|%d", &m->init_error) == 1 ||
        sscanf(line, "cuda|%d", &m->cuda) == 1 || sscanf(line, "linger|%ld", &m->linger_ms) == 1 ||
        sscanf(line, "late|%ld", &m->late_ms) == 1)
        return;
    if (sscanf(line, "gpu|%95[^|]|%95[^|]|%llu|%llu|%llu", g.uuid, g.name, &g.total, &g.used,
               &g.reserved) == 5 && m->gpus < MAX_GPUS) {
        g.bus = m->gpus + 1;
        m->gpu[m->gpus++] = g;
    }
    else if (sscanf(line, "process|%u|%u|%llu", &p.gpu, &p.pid, &p.bytes) == 3 &&
             m->processes < MAX_PROCESSES)
        m->process[m->processes++] = p;
    else if (sscanf(line, "mps|%u|%u|%llu", &p.gpu, &p.pid, &p.bytes) == 3 &&
             m->clients < MAX_PROCESSES)
        m->client[m->clients++] = p;
    else if (sscanf(line, "mig|%u|%d", &index, &code) == 2 && index < MAX_GPUS)
        m->gpu[index].can_mig = 1, m->gpu[index].mig = code;
    else if (sscanf(line, "error|%u|%d", &index, &code) == 2 && index < MAX_GPUS)
        m->gpu[index].error = code;
    else if (sscanf(line, "remap_failure|%u", &index) == 1 && index < MAX_GPUS)
        m->gpu[index].remap_failure = 1;
    else if (sscanf(line, "remap_pending|%u", &index) == 1 && index < MAX_GPUS)
        m->gpu[index].remap_pending = 1;
    else
        read_vitals(m, line);
}

/* A process that has ended, also one whose end nobody has asked for yet. */
static int has_ended(unsigned int pid)
{
    char path[64], state = 'Z';
    FILE *file;

    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    if ((file = fopen(path, "r"))) {
        if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            state = 'Z';
        fclose(file);
    }
    return state == 'Z' || state == 'X';
}

static long ms_since(const struct timespec *then)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (now.tv_sec - then->tv_sec) * 1000 + (now.tv_nsec - then->tv_nsec) / 1000000;
}

/* Adds what one process has; with pid 0 it is dead, and only its memory counts. */
static void add_holds(struct machine *m, const char *path, unsigned int pid)
{
    char line[128];
    unsigned int hidden, busy, state;
    struct process p = {.pid = pid};
    struct stat found;
    FILE *file = fopen(path, "r");
    int late = stat(path, &found) == 0 && ms_since(&found.st_mtim) < m->late_ms;

    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "hold|%u|%llu|%u|%u|%u", &p.gpu, &p.bytes, &hidden, &busy, &state) != 5 ||
            p.gpu >= m->gpus || state == 2 /* CU_PROCESS_STATE_CHECKPOINTED */)
            continue;
        m->gpu[p.gpu].used += p.bytes;
        if (pid && !hidden && m->processes < MAX_PROCESSES)
            m->process[m->processes++] = p;
        if (pid && busy && !late) {
            m->gpu[p.gpu].utilization = busy;
            m->gpu[p.gpu].power = 650000;
            m->gpu[p.gpu].clock = 1980;
        }
    }
    if (file)
        fclose(file);
}

static void read_holds(struct machine *m)
{
    char path[512], dead[520];
    const char *home = getenv("FAKE_CUDA");
    DIR *directory = home ? opendir(home) : NULL;
    struct dirent *entry;
    struct stat found;

    while (directory && (entry = readdir(directory))) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof path, "%s/%s", home, entry->d_name);
        if (strstr(entry->d_name, ".dead")) {
            if (stat(path, &found) == 0 && ms_since(&found.st_ctim) < m->linger_ms)
                add_holds(m, path, 0);
            else
                unlink(path);
        }
        else if (!strchr(entry->d_name, '.')) {
            unsigned int pid = (unsigned int)atoi(entry->d_name);

            if (!has_ended(pid)) {
                add_holds(m, path, pid);
                continue;
            }
            snprintf(dead, sizeof dead, "%s.dead", path);
            rename(path, dead);
            if (m->linger_ms)
                add_holds(m, dead, 0);
        }
    }
    if (directory)
        closedir(directory);
}

static int machine(struct machine *m)
{
    char line[512];
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;

    memset(m, 0, sizeof *m);
    if (!file)
        return UNKNOWN;
    while (fgets(line, sizeof line, file))
        read_line(m, line);
    fclose(file);
    read_holds(m);
    return SUCCESS;
}

/* A handle is the index plus one, so that it is never NULL. `call` is the question. */
static int gpu_asked(const char *call, struct machine *m, void *handle, struct gpu **gpu)
{
    size_t index = (size_t)handle - 1;
    unsigned int i;
    int rc = initialized ? machine(m) : UNINITIALIZED;

    if (rc)
        return rc;
    if (!handle || index >= m->gpus)
        return INVALID_ARGUMENT;
    *gpu = &m->gpu[index];
    for (i = 0; i < m->fails; i++)
        if (m->fail[i].gpu == index && !strcmp(m->fail[i].call, call))
            return m->fail[i].code;
    return (*gpu)->error;
}

#define gpu_of(m, handle, gpu) gpu_asked(__func__, m, handle, gpu)

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

int nvmlSystemGetNVMLVersion(char *text, unsigned int size)
{
    struct machine m;
    int rc = machine(&m);

    if (!rc)
        snprintf(text, size, "13.%s", m.driver);
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

static int processes_of(const char *call, void *handle, unsigned int *count, struct process_info *out, int clients)
{
    struct machine m;
    struct gpu *gpu;
    unsigned int found = 0, room = *count, i, all;
    const struct process *each;
    int rc = gpu_asked(call, &m, handle, &gpu);

    if (rc)
        return rc;
    each = clients ? m.client : m.process;
    all = clients ? m.clients : m.processes;
    for (i = 0; i < all; i++) {
        if (each[i].gpu != (size_t)handle - 1)
            continue;
        if (out && found < room) {
            out[found].pid = each[i].pid;
            out[found].used_gpu_memory = each[i].bytes;
            out[found].gpu_instance = out[found].compute_instance = ~0u;
        }
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned int *count, struct process_info *out)
{
    return processes_of(__func__, handle, count, out, 0);
}

int nvmlDeviceGetPciInfo_v3(void *handle, struct pci_info *pci)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    if (rc)
        return rc;
    memset(pci, 0, sizeof *pci);
    pci->domain = gpu->domain, pci->bus = gpu->bus, pci->device = gpu->device;
    return SUCCESS;
}

int nvmlDeviceGetMinorNumber(void *handle, unsigned int *minor)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    if (rc || !gpu->has_minor)
        return rc ? rc : NOT_SUPPORTED;
    *minor = gpu->minor;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned int *celsius)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    (void)sensor;
    if (rc || !gpu->temperature)
        return rc ? rc : NOT_SUPPORTED;
    *celsius = gpu->temperature;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned int *milliwatts)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    if (rc || !gpu->power)
        return rc ? rc : NOT_SUPPORTED;
    *milliwatts = gpu->power;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *handle, int type, unsigned int *mhz)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    if (rc || type != 1 || !gpu->clock)
        return rc ? rc : NOT_SUPPORTED;
    *mhz = gpu->clock;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *handle, struct utilization *rates)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    if (rc)
        return rc;
    rates->gpu = gpu->utilization;
    rates->memory = 0;
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(void *handle, int type, int counter, unsigned long long *count)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    if (rc)
        return rc;
    if (type != 1 || counter != 0) /* uncorrected, volatile */
        return INVALID_ARGUMENT;
    *count = gpu->ecc;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    if (!rc)
        *reasons = gpu->throttle;
    return rc;
}

int nvmlDeviceGetNvLinkState(void *handle, unsigned int link, unsigned int *active)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    if (rc)
        return rc;
    if (link >= gpu->links)
        return gpu->links ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *active = gpu->active[link];
    return SUCCESS;
}

int nvmlDeviceGetNvLinkErrorCounter(void *handle, unsigned int link, int counter,
                                    unsigned long long *count)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    if (rc)
        return rc;
    if (link >= gpu->links)
        return INVALID_ARGUMENT;
    *count = counter == 0 ? gpu->link_errors[link] : 0;
    return SUCCESS;
}

int nvmlEventSetCreate(void **set)
{
    *set = &told_xids;
    return SUCCESS;
}

int nvmlEventSetFree(void *set)
{
    (void)set;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set)
{
    struct machine m;
    struct gpu *gpu;

    (void)types, (void)set;
    return gpu_of(&m, handle, &gpu);
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned int timeout_ms)
{
    struct machine m;
    int rc = initialized ? machine(&m) : UNINITIALIZED;

    (void)set, (void)timeout_ms;
    if (rc)
        return rc;
    if (told_xids >= m.xids)
        return TIMEOUT;
    memset(event, 0, sizeof *event);
    event->device = (void *)(size_t)(m.xid[told_xids].gpu + 1);
    event->type = 8; /* nvmlEventTypeXidCriticalError */
    event->data = m.xid[told_xids].number;
    told_xids++;
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    struct machine m;
    int rc = machine(&m);

    *version = m.cuda;
    return rc;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetMigMode(void *handle, unsigned int *now, unsigned int *after_reset)
{
    struct machine m;
    struct gpu *gpu;
    int rc = gpu_of(&m, handle, &gpu);

    if (rc || !gpu->can_mig)
        return rc ? rc : NOT_SUPPORTED;
    *now = *after_reset = (unsigned int)gpu->mig;
    return SUCCESS;
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned int *count, struct process_info *out)
{
    return processes_of(__func__, handle, count, out, 1);
}

int nvmlDeviceGetFieldValues(void *handle, int count, struct field_value *values)
{
    struct machine m;
    struct gpu *gpu;
    int i, rc = gpu_of(&m, handle, &gpu);

    for (i = 0; !rc && i < count; i++) {
        values[i].rc = values[i].field == 230 ? SUCCESS : NOT_SUPPORTED;
        values[i].value.ui = gpu->recovery;
    }
    return rc;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *count, struct process_info *out)
{
    return processes_of(__func__, handle, count, out, 0);
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
    *corrected = *uncorrected = 0;
    *pending = gpu->remap_pending;
    *failure = gpu->remap_failure;
    return SUCCESS;
}
#endif
