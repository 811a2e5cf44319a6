/* JSON files that outlive the shim: written beside their place, synced, then renamed. */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_TMP "exit.tmp"
#define RECORD_BYTES 4096

int news_fd = -1;

struct json {
    char text[RECORD_BYTES];
    size_t used;
};

static void put(struct json *json, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct json *json, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(json->text + json->used, sizeof json->text - json->used, format,
                           arguments);
    va_end(arguments);
    if (length > 0 && json->used + (size_t)length < sizeof json->text)
        json->used += (size_t)length;
}

/* Our own words, strerror's, and names of files. These may hold any byte and be cut anywhere, so
 * the reader must forgive bytes that are not UTF-8. */
static void put_string(struct json *json, const char *key, const char *value)
{
    if (value == NULL) {
        put(json, ",\"%s\":null", key);
        return;
    }
    put(json, ",\"%s\":\"", key);
    for (; *value != '\0'; value++)
        if ((unsigned char)*value >= ' ')
            put(json, *value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
    put(json, "\"");
}

static void put_number(struct json *json, const char *key, int64_t value)
{
    put(json, ",\"%s\":%" PRId64, key, value);
}

/* -1 stands for "not known". */
static void put_known(struct json *json, const char *key, int64_t value)
{
    if (value < 0)
        put(json, ",\"%s\":null", key);
    else
        put_number(json, key, value);
}

/* The last field: the CRC-32 (as zlib's) of all bytes before it. A disk that turns one bit of a digit
 * leaves sound JSON, and another exit code. */
static void put_sum(struct json *json)
{
    uint32_t sum = 0xffffffffU;
    for (size_t at = 0; at < json->used; at++) {
        sum ^= (unsigned char)json->text[at];
        for (int bit = 0; bit < 8; bit++)
            sum = (sum >> 1) ^ ((sum & 1U) != 0 ? 0xedb88320U : 0U);
    }
    put(json, ",\"crc\":\"%08" PRIx32 "\"}\n", ~sum);
}

static void put_fence(struct json *json, const struct plan *plan, const char *boot_id)
{
    put(json, "{\"v\":1,\"job_id\":\"%s\"", plan->job_id);
    put_number(json, "attempt", plan->attempt);
    put_number(json, "epoch", plan->epoch);
    put_number(json, "node_rank", plan->node_rank);
    put_string(json, "boot_id", boot_id);
}

/* A disk that is nearly full takes less than it is given. */
static bool write_all(int fd, const char *text, size_t length)
{
    size_t at = 0;
    while (at < length) {
        ssize_t taken = pwrite(fd, text + at, length - at, (off_t)at);
        if (taken > 0) {
            at += (size_t)taken;
        } else if (taken == 0) {
            errno = ENOSPC;
            return false;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* errno says why where it returns -1. */
static int write_whole(int dir_fd, const char *name, int flags, mode_t mode, bool synced,
                       const struct json *json)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, mode);
    if (fd < 0)
        return -1;
    bool good = write_all(fd, json->text, json->used) &&
                ftruncate(fd, (off_t)json->used) == 0 && (!synced || fsync(fd) == 0);
    int why = errno;
    close(fd);
    errno = why;
    return good ? 0 : -1;
}

void record_reserve(int dir_fd)
{
    int fd = openat(dir_fd, EXIT_TMP, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    int result = posix_fallocate(fd, 0, RECORD_BYTES);
    (void)result;
    close(fd);
}

void record_started(int dir_fd, const struct plan *plan, pid_t main_pid, const char *boot_id,
                    int64_t boottime_ns, int64_t wall_ns)
{
    struct json json = {.used = 0};
    put_fence(&json, plan, boot_id);
    put_number(&json, "shim_pid", getpid());
    put_number(&json, "shim_start_ticks", start_ticks(getpid()));
    put_number(&json, "main_pid", main_pid);
    put_number(&json, "main_start_ticks", start_ticks(main_pid));
    put_number(&json, "started_boottime_ns", boottime_ns);
    put_number(&json, "started_wall_ns", wall_ns);
    put(&json, "}\n");
    if (write_whole(dir_fd, "started.tmp", 0, 0600, false, &json) != 0 ||
        renameat(dir_fd, "started.tmp", dir_fd, "started.json") != 0)
        return;
    ssize_t told = write(news_fd, "s", 1);
    (void)told;
}

static void put_start_error(struct json *json, const struct ending *ending)
{
    if (ending->start_error.stage[0] == '\0') {
        put(json, ",\"start_error\":null");
        return;
    }
    const char *text = ending->start_error_text;
    put(json, ",\"start_error\":{\"errno\":%d", ending->start_error.error);
    put_string(json, "stage", ending->start_error.stage);
    put_string(json, "text", text != NULL ? text : strerror(ending->start_error.error));
    put(json, "}");
}

void record_exit(int dir_fd, const struct plan *plan, const struct ending *ending,
                 const char *boot_id)
{
    struct json json = {.used = 0};
    bool ran = ending->reaped && ending->start_error.stage[0] == '\0';
    int status = ending->wait_status;
    put_fence(&json, plan, boot_id);
    put_string(&json, "why", ending->why);
    put_known(&json, "code", ran && WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    put_known(&json, "signal", ran && WIFSIGNALED(status) ? WTERMSIG(status) : -1);
    put_start_error(&json, ending);
    put_string(&json, "noticed", ending->noticed);
    put_known(&json, "noticed_boottime_ns", ending->noticed ? ending->noticed_boottime_ns : -1);
    put_known(&json, "oom_kills", ending->usage.oom_kills);
    put_known(&json, "peak_memory_bytes", ending->usage.peak_memory_bytes);
    put_known(&json, "cpu_ns", ending->usage.cpu_ns);
    put_known(&json, "started_boottime_ns", ending->started_boottime_ns);
    put_known(&json, "started_wall_ns", ending->started_wall_ns);
    put_number(&json, "ended_boottime_ns", clock_ns(CLOCK_BOOTTIME));
    put_number(&json, "ended_wall_ns", clock_ns(CLOCK_REALTIME));
    put_number(&json, "log_bytes", ending->log_bytes);
    put_number(&json, "dropped_log_bytes", ending->dropped_log_bytes);
    put_number(&json, "refused_commands", ending->refused_commands);
    put_number(&json, "remaining_pids", ending->remaining_pids);
    put_sum(&json);
    /* Nothing is left to guard: a disk that recovers later still gets the truth. ENOENT means that
     * the directory itself is gone, and with it every reader of the record. A power cut may undo
     * the new name; the agent reads the record by the old one then. */
    while ((write_whole(dir_fd, EXIT_TMP, 0, 0600, true, &json) != 0 ||
            renameat(dir_fd, EXIT_TMP, dir_fd, "exit.json") != 0) &&
           errno != ENOENT)
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
}

int record_notice(int dir_fd, const struct plan *plan, int64_t left_ns)
{
    struct json json = {.used = 0};
    int64_t now = clock_ns(CLOCK_REALTIME);
    put(&json, "{\"v\":1,\"kind\":\"hold_expired\"");
    put_string(&json, "reason", "the master has been silent for too long");
    put(&json, ",\"notice_s\":%.6f", (double)now / (double)NS_PER_S);
    put(&json, ",\"deadline_s\":%.6f}\n", (double)(now + left_ns) / (double)NS_PER_S);
    if (write_whole(dir_fd, "notice.tmp", O_TRUNC, 0600, true, &json) != 0)
        return -1;
    /* Only the job may read it; only we may write it. */
    int fd = openat(dir_fd, "notice.tmp", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int result = fd >= 0 && (geteuid() != 0 || fchown(fd, (uid_t)-1, plan->gid) == 0) &&
                         fchmod(fd, 0640) == 0
                     ? renameat(dir_fd, "notice.tmp", dir_fd, "notice.json")
                     : -1;
    if (fd >= 0)
        close(fd);
    return result;
}
