/* The job's output: the first bytes in `log.head`, the last ones in `log.ring`, gaps between.
 *
 * Logical byte n is the n-th byte kept. Bytes below head_bytes lie in log.head at n; the others at
 * HEADER + (n - head_bytes) % ring_bytes. The ring's header (little endian):
 *   0 "DLQRING1"  8 head_bytes  16 ring_bytes  24 reserved_end  32 end  40 dropped
 * `reserved_end` moves before bytes are overwritten, and `end` after they are written. A reader
 * that looks at the header before and after knows the valid bytes. */
#include "shim.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define HEADER 4096

struct header {
    char magic[8];
    int64_t head_bytes, ring_bytes, reserved_end, end, dropped;
};

static void write_header(const struct logring *ring, int64_t reserved_end)
{
    struct header header = {
        .magic = {'D', 'L', 'Q', 'R', 'I', 'N', 'G', '1'},
        .head_bytes = ring->head_bytes,
        .ring_bytes = ring->ring_bytes,
        .reserved_end = reserved_end,
        .end = ring->end,
        .dropped = ring->dropped,
    };
    /* In place over a block that exists since logring_open: a full disk does not stop it. */
    ssize_t written = pwrite(ring->ring_fd, &header, sizeof header, 0);
    (void)written;
}

static int make(int dir_fd, const char *name)
{
    return openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* The head file is made with the first output: many jobs have none. */
int logring_open(struct logring *ring, int dir_fd, const struct plan *plan)
{
    ring->dir_fd = dir_fd;
    ring->head_fd = -1;
    ring->ring_fd = make(dir_fd, "log.ring");
    ring->head_bytes = plan->log_head_bytes;
    ring->ring_bytes = plan->log_ring_bytes;
    ring->end = ring->dropped = 0;
    if (ring->ring_fd < 0)
        return -1;
    write_header(ring, 0);
    return 0;
}

/* Where the next byte goes and how many fit there in one piece. */
static size_t place(struct logring *ring, int *fd, off_t *offset)
{
    if (ring->end < ring->head_bytes) {
        if (ring->head_fd < 0)
            ring->head_fd = make(ring->dir_fd, "log.head");
        *fd = ring->head_fd;
        *offset = ring->end;
        return (size_t)(ring->head_bytes - ring->end);
    }
    int64_t at = (ring->end - ring->head_bytes) % ring->ring_bytes;
    *fd = ring->ring_fd;
    *offset = HEADER + at;
    return (size_t)(ring->ring_bytes - at);
}

void logring_append(struct logring *ring, const char *data, size_t length)
{
    write_header(ring, ring->end + (int64_t)length);
    while (length > 0) {
        int fd;
        off_t offset;
        size_t piece = place(ring, &fd, &offset);
        if (piece > length)
            piece = length;
        ssize_t written = pwrite(fd, data, piece, offset);
        if (written <= 0) { /* full or broken disk: the job matters more than its log */
            ring->dropped += (int64_t)length;
            break;
        }
        ring->end += written;
        data += written;
        length -= (size_t)written;
    }
    write_header(ring, ring->end);
}
