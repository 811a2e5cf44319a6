/* The control file and the record file: found, made, mapped. Nothing here is on a recorded path. */
#include "recorder.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define CONTROL_PAGE 4096u
#define DIRECTORY_MOST 400

struct dlqprof_control *dlqprof_control;
struct dlqprof_header *dlqprof_file;
static uint32_t no_epoch;
uint32_t *dlqprof_epoch = &no_epoch;

extern char **__environ WEAK;
extern unsigned long getauxval(unsigned long) WEAK;

static char directory[DIRECTORY_MOST + 1];
static int control_writable;
static int populate_works; /* pages are made one by one; else the whole file was, when it was made */
static uint32_t epochs;    /* files this process and its parents made; survives fork */
static uint64_t mapped_bytes;
static uint32_t seen_flags; /* also from before there was a file */

/* The page that fork wipes. */
struct own {
    uint32_t epoch; /* *dlqprof_epoch */
    uint32_t state; /* of the making of this process' file; waited for as a futex */
    uint32_t maker; /* the thread that makes it */
    uint32_t missed; /* records that came while it was made and could not wait */
};
enum { FRESH = 0, ATTACHING, ATTACHED, REFUSED };
static struct own *own;
#define MAKER_PATIENCE_NS 200000000

static void futex(uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    SYS4(SYS_futex, ARG(word), op | 128 /* private */, value, timeout);
}

static size_t page_bytes(void)
{
    return getauxval ? getauxval(AT_PAGESZ) : 4096;
}

static void *map(long fd, size_t length, int writable)
{
    long flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    long at = SYS6(SYS_mmap, 0, length, PROT_READ | (writable ? PROT_WRITE : 0), flags, fd, 0);
    return at < 0 && at > -4096 ? NULL : (void *)at;
}

static long open_in_directory(const char *name, long flags)
{
    char path[DIRECTORY_MOST + 80];
    size_t n = text_copy(path, sizeof path, directory);
    path[n++] = '/';
    text_copy(path + n, sizeof path - n, name);
    return SYS4(SYS_openat, AT_FDCWD, ARG(path), flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

static struct dlqprof_control *map_control(void)
{
    struct dlqprof_control *control = NULL;
    struct stat status;
    long fd = open_in_directory(DLQPROF_CONTROL_NAME, O_RDWR);
    control_writable = fd >= 0;
    if (fd < 0)
        fd = open_in_directory(DLQPROF_CONTROL_NAME, O_RDONLY);
    if (fd < 0)
        return NULL;
    if (SYS2(SYS_fstat, fd, ARG(&status)) == 0 && S_ISREG(status.st_mode) &&
        (size_t)status.st_size >= sizeof *control)
        control = map(fd, CONTROL_PAGE, control_writable);
    SYS1(SYS_close, fd);
    if (control && (!text_equal(control->magic, DLQPROF_CONTROL_MAGIC) ||
                    control->version != DLQPROF_VERSION)) {
        SYS2(SYS_munmap, ARG(control), CONTROL_PAGE);
        control = NULL;
    }
    return control;
}

static const char *directory_from_environment(void)
{
    char **entry;
    if (!&__environ || !__environ)
        return NULL;
    for (entry = __environ; *entry; entry++)
        if (text_starts(*entry, "DLQ_PROF_DIR="))
            return *entry + 13;
    return NULL;
}

void dlqprof_start(void)
{
    const char *named = directory_from_environment();
    struct dlqprof_control *control;
    void *page;
    if (!named || named[0] != '/' || text_length(named) > DIRECTORY_MOST)
        return;
    text_copy(directory, sizeof directory, named);
    control = map_control();
    if (!control)
        return;
    page = map(-1, page_bytes(), 1);
    /* Without this a forked child could write into its parent's file: rather nothing. */
    if (!page || SYS3(SYS_madvise, ARG(page), page_bytes(), MADV_WIPEONFORK) != 0)
        return;
    dlqprof_keep_identity();
    own = page;
    dlqprof_epoch = &own->epoch;
    STORE_RELEASE(&dlqprof_control, control);
}

int dlqprof_backed(void *start, size_t length)
{
    uintptr_t page = page_bytes(), first = (uintptr_t)start & ~(page - 1);
    uintptr_t end = ((uintptr_t)start + length + page - 1) & ~(page - 1);
    return !populate_works || SYS3(SYS_madvise, first, end - first, MADV_POPULATE_WRITE) == 0;
}

/* Counts this file; true while there may be one more. */
static int within_limit(struct dlqprof_control *control)
{
    uint32_t limit = LOAD(&control->file_limit);
    if (!control_writable)
        return limit == 0;
    return ADD(&control->files_opened, 1) < limit || limit == 0;
}

static void lay_out(struct dlqprof_header *header, const struct dlqprof_control *control)
{
    uint64_t wanted = LOAD(&control->ring_bytes), most = DLQPROF_RING_BYTES_MOST;
    if (DLQPROF_SOURCE == DLQPROF_NCCL_PLUGIN)
        most = DLQPROF_PLUGIN_RING_BYTES_MOST;
    if (wanted == 0 || wanted > most)
        wanted = most;
    header->version = DLQPROF_VERSION;
    header->header_bytes = sizeof *header;
    header->record_bytes = sizeof(struct dlqprof_record);
    header->chunk_records = DLQPROF_CHUNK_RECORDS;
    header->chunks = (uint32_t)(wanted / DLQPROF_CHUNK_BYTES);
    if (header->chunks == 0)
        header->chunks = 1;
    header->thread_slots = DLQPROF_THREADS;
    header->thread_bytes = sizeof(struct dlqprof_thread);
    header->thread_chunks = DLQPROF_THREAD_CHUNKS;
    header->conn_slots = DLQPROF_CONNS;
    header->conn_bytes = sizeof(struct dlqprof_conn);
    header->thread_offset = header->header_bytes;
    header->conn_offset = header->thread_offset + DLQPROF_THREADS * sizeof(struct dlqprof_thread);
    header->chunk_offset = header->conn_offset + DLQPROF_CONNS * sizeof(struct dlqprof_conn);
    header->file_bytes = header->chunk_offset + (uint64_t)header->chunks * DLQPROF_CHUNK_BYTES;
    header->source = DLQPROF_SOURCE;
}

/* A file beyond the limit would bring a signal, not an error. */
static int file_size_allowed(uint64_t size)
{
    struct rlimit limit;
    return SYS4(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, ARG(&limit)) == 0 && limit.rlim_cur >= size;
}

static int allocate(long fd, struct dlqprof_header *header, uint64_t size)
{
    long made = SYS3(SYS_madvise, ARG(header), page_bytes(), MADV_POPULATE_WRITE);
    populate_works = made == 0;
    return made == 0 || (made == -EINVAL && SYS4(SYS_fallocate, fd, 0, 0, size) == 0);
}

static struct dlqprof_header *make_file(const struct dlqprof_control *control)
{
    static const char suffix[] = DLQPROF_SUFFIX;
    struct dlqprof_header layout = {.version = 0}, *header = NULL;
    char name[64], path[DIRECTORY_MOST + 80];
    size_t n, i;
    long fd;
    lay_out(&layout, control);
    n = text_number(name, (uint64_t)SYS0(SYS_getpid));
    name[n++] = '-';
    n += text_number(name + n, dlqprof_now(CLOCK_MONOTONIC));
    text_copy(name + n, sizeof name - n, suffix);
    if (!file_size_allowed(layout.file_bytes))
        return NULL;
    fd = open_in_directory(name, O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0)
        return NULL;
    if (SYS2(SYS_ftruncate, fd, layout.file_bytes) == 0)
        header = map(fd, layout.file_bytes, 1);
    if (header && !allocate(fd, header, layout.file_bytes)) {
        SYS2(SYS_munmap, ARG(header), layout.file_bytes);
        header = NULL;
    }
    SYS1(SYS_close, fd);
    if (!header) {
        i = text_copy(path, sizeof path, directory);
        path[i++] = '/';
        text_copy(path + i, sizeof path - i, name);
        SYS3(SYS_unlinkat, AT_FDCWD, ARG(path), 0);
        return NULL;
    }
    *header = layout;
    dlqprof_fill_header(header);
    header->flags = LOAD(&seen_flags);
    for (i = 0; i < 7; i++)
        header->magic[i + 1] = DLQPROF_MAGIC[i + 1];
    STORE_RELEASE(&header->magic[0], DLQPROF_MAGIC[0]);
    return header;
}

static void make_own_file(struct dlqprof_control *control)
{
    struct dlqprof_header *parents = LOAD(&dlqprof_file), *header;
    if (parents) {
        STORE(&dlqprof_file, NULL);
        SYS2(SYS_munmap, ARG(parents), mapped_bytes);
    }
    header = within_limit(control) ? make_file(control) : NULL;
    if (header) {
        mapped_bytes = header->file_bytes;
        STORE_RELEASE(&dlqprof_file, header);
        STORE_RELEASE(&own->epoch, __atomic_add_fetch(&epochs, 1, __ATOMIC_RELAXED));
    }
    STORE_RELEASE(&own->state, header ? ATTACHED : REFUSED);
    futex(&own->state, 1 /* wake */, INT32_MAX, NULL);
}

/* Until the other thread has made the file; not for ever, because that thread may be gone. */
static void wait_for_maker(void)
{
    const struct timespec patience = {0, MAKER_PATIENCE_NS};
    if (LOAD(&own->maker) != (uint32_t)SYS0(SYS_gettid))
        futex(&own->state, 0 /* wait */, ATTACHING, &patience);
    if (LOAD_ACQUIRE(&own->state) == ATTACHING)
        ADD(&own->missed, 1);
}

uint32_t dlqprof_attach(void)
{
    struct dlqprof_control *control = LOAD_ACQUIRE(&dlqprof_control);
    uint32_t state = FRESH, epoch = LOAD_ACQUIRE(dlqprof_epoch);
    if (epoch || !control)
        return epoch;
    if (__atomic_compare_exchange_n(&own->state, &state, ATTACHING, 0, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        STORE(&own->maker, (uint32_t)SYS0(SYS_gettid));
        make_own_file(control);
    } else if (state == ATTACHING) {
        wait_for_maker();
    }
    return LOAD_ACQUIRE(dlqprof_epoch);
}

int dlqprof_refused(void)
{
    return LOAD(&own->state) == REFUSED;
}

uint32_t dlqprof_missed(void)
{
    return __atomic_exchange_n(&own->missed, 0, __ATOMIC_RELAXED);
}

void dlqprof_flag(uint32_t flags)
{
    __atomic_fetch_or(&seen_flags, flags, __ATOMIC_RELAXED);
    if (dlqprof_recording() && dlqprof_attach())
        __atomic_fetch_or(&dlqprof_file->flags, flags, __ATOMIC_RELAXED);
}
