/* dlq-output: the main process of a rank whose submitter named output files. Runs the rank's
 * program, and copies its output into the files and to our own stdout and stderr, which the shim
 * keeps for `dlq logs`. Forwards signals, and ends as the program did.
 *
 *   dlq-output append|truncate[,mkdir][,slurm] STDOUT [STDERR] -- COMMAND...
 *
 * With mkdir the directories of the files are made where they are missing.
 * Without STDERR both streams go to one file. It runs as the job, so the kernel judges the paths
 * by the rights of the job's user. A process of its own writes each file. So a file system that is
 * full or hung stops no job; a line in the file tells how many bytes are missing.
 * A restart or a silence of agent and master changes nothing here: it is part of the job. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../passing_on.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define CHUNK 65536
#define PIPE_BYTES (1 << 20) /* what a writer may lag behind before we wait for it */
#define FLUSH_MS 10000       /* for writers, once the program has ended */
#define SLOW_MS 1000         /* the longest wait for a writer; then bytes are left out until it goes on */
#define CANNOT_OPEN 53       /* as in Slurm, where it is the number of a signal: 0:53 */
#define STREAMS 2
#define NO_FILE EBADFD /* a FIFO, a device, or a word of the kernel; no call here fails so */

struct writer {
    pid_t pid;
    int fd; /* our end of its pipe, -1: closed */
    int64_t missed;
    bool stuck;
};

struct stream {
    int from, to; /* the program's end, and our own stdout or stderr */
    struct writer *writer;
};

static struct writer writers[STREAMS];
static struct stream streams[STREAMS];
static bool makes_directories;

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool is_null(const struct stat *info)
{
    return S_ISCHR(info->st_mode) && info->st_rdev == makedev(1, 3);
}

/* ---- the writer of one file, in a process of its own ---- */

/* A line about bytes that have found no room. False: there is none for the line either. */
static bool tell_missing(int file, int64_t missed, int why)
{
    char line[160];
    int length = snprintf(line, sizeof line, "\n[dlq: %lld bytes were not written: %s]\n",
                          (long long)missed, strerror(why));
    struct stat before;
    if (fstat(file, &before) != 0)
        return false;
    size_t done = write_whole(file, line, (size_t)length);
    if (done > 0 && done < (size_t)length) /* a part of it says nothing */
        done = ftruncate(file, before.st_size) == 0 ? 0 : done;
    return done == (size_t)length;
}

static void write_file(int from, int file, const char *path)
{
    static char bytes[CHUNK];
    int64_t missed = 0;
    int why = 0;
    ssize_t got;
    while ((got = read(from, bytes, sizeof bytes)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return;
        if (missed > 0 && tell_missing(file, missed, why))
            missed = 0;
        size_t done = missed > 0 ? 0 : write_whole(file, bytes, (size_t)got);
        if (done < (size_t)got) {
            why = missed > 0 ? why : errno;
            missed += got - (ssize_t)done;
        }
    }
    if (missed > 0 && !tell_missing(file, missed, why))
        dprintf(2, "dlq: %lld bytes were not written to %s: %s\n", (long long)missed, path,
                strerror(why));
}

/* Files that are the kernel's words: to write them is to act. */
static bool is_of_kernel(int fd)
{
    struct statfs info;
    if (fstatfs(fd, &info) != 0)
        return false;
    switch ((unsigned long)info.f_type) {
    case PROC_SUPER_MAGIC:
    case SYSFS_MAGIC:
    case CGROUP_SUPER_MAGIC:
    case CGROUP2_SUPER_MAGIC:
    case DEBUGFS_MAGIC:
    case TRACEFS_MAGIC:
    case SECURITYFS_MAGIC:
    case BPF_FS_MAGIC:
        return true;
    default:
        return false;
    }
}

/* Makes the directories of a file that are missing. A name such as logs/%j/out cannot stand before
 * the job has its number. Errors are left to the open that follows: it tells their reason. */
static void make_directories(const char *path)
{
    char parent[PATH_MAX];
    if (strlen(path) >= sizeof parent)
        return;
    strcpy(parent, path);
    for (char *end = strchr(parent + 1, '/'); end != NULL; end = strchr(end + 1, '/')) {
        *end = '\0';
        (void)mkdir(parent, 0777);
        *end = '/';
    }
}

/* Links are followed: the rights are the user's own. Only a regular file or /dev/null is opened:
 * a FIFO would wait, and a device or a terminal might act. The look before spares them the open,
 * and the look after it decides. */
static int open_file(const char *path, bool truncate)
{
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !is_null(&info)) {
        errno = S_ISDIR(info.st_mode) ? EISDIR : NO_FILE;
        return -1;
    }
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd = open(path, flags, 0666);
    if (fd < 0 && errno == ENOENT && makes_directories) {
        make_directories(path);
        fd = open(path, flags, 0666);
    }
    if (fd < 0)
        return -1;
    if (fstat(fd, &info) == 0 && is_null(&info))
        return fd;
    bool is_file = S_ISREG(info.st_mode) && !is_of_kernel(fd);
    if (!is_file || (truncate && ftruncate(fd, 0) != 0)) {
        int error = is_file ? errno : NO_FILE;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static int fail(const char *what, const char *path)
{
    const char *why = errno == NO_FILE ? "it is neither a plain file nor /dev/null" : strerror(errno);
    dprintf(2, "dlq: %s %s: %s\n", what, path, why);
    return CANNOT_OPEN;
}

static int start_writer(struct writer *writer, const char *path, bool truncate)
{
    int file = open_file(path, truncate), ends[2];
    if (file < 0)
        return fail("cannot write the output file", path);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return fail("cannot start the writer of", path);
    fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES);
    pid_t pid = fork();
    if (pid < 0)
        return fail("cannot start the writer of", path);
    if (pid == 0) {
        prctl(PR_SET_NAME, "dlq-output-file");
        close(ends[1]);
        for (int each = 0; each < STREAMS; each++)
            if (writers[each].pid > 0)
                close(writers[each].fd); /* of the other file */
        write_file(ends[0], file, path);
        _exit(0);
    }
    close(ends[0]);
    close(file);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    writer->pid = pid;
    writer->fd = ends[1];
    return 0;
}

/* ---- copying ---- */

/* Waits for a writer that is slow, once; a writer that did not go on is not waited for again. */
static bool has_room(const struct writer *writer)
{
    struct pollfd its = {.fd = writer->fd, .events = POLLOUT};
    return !writer->stuck && poll(&its, 1, SLOW_MS) > 0;
}

/* Bytes that find no room are counted, and a line tells of them as soon as there is some. */
static void give(struct writer *writer, const char *bytes, size_t length)
{
    if (writer->fd < 0)
        return;
    if (writer->missed > 0) {
        char line[120];
        int size = snprintf(line, sizeof line,
                            "\n[dlq: %lld bytes were not written: the file system is too slow]\n",
                            (long long)writer->missed);
        if (write(writer->fd, line, (size_t)size) == size) /* whole or not at all: below PIPE_BUF */
            writer->missed = 0;
    }
    size_t done = 0;
    while (writer->missed == 0 && done < length) {
        ssize_t wrote = write(writer->fd, bytes + done, length - done);
        if (wrote > 0)
            done += (size_t)wrote;
        else if (errno != EINTR && (errno != EAGAIN || !has_room(writer)))
            break;
    }
    writer->stuck = done < length;
    writer->missed += (int64_t)(length - done);
}

/* Copies one piece; false at the end of the stream, or when there is nothing now. */
static bool copy(struct stream *stream)
{
    static char bytes[CHUNK];
    ssize_t got = read(stream->from, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR)
        return true;
    if (got <= 0) {
        if (got == 0 || errno != EAGAIN) {
            close(stream->from);
            stream->from = -1;
        }
        return false;
    }
    write_whole(stream->to, bytes, (size_t)got);
    give(stream->writer, bytes, (size_t)got);
    return true;
}

/* Ends the files. Waits a bounded time for the writers, so that a file is whole when its job ends. */
static void finish(void)
{
    int64_t until = now_ms() + FLUSH_MS;
    for (int each = 0; each < STREAMS; each++) {
        struct writer *writer = &writers[each];
        struct pollfd its = {.fd = writer->fd, .events = POLLOUT};
        if (writer->missed > 0 && poll(&its, 1, until > now_ms() ? (int)(until - now_ms()) : 0) > 0)
            give(writer, "", 0);
        if (writer->fd >= 0)
            close(writer->fd);
    }
    for (int each = 0; each < STREAMS; each++)
        while (writers[each].pid > 0 && waitpid(writers[each].pid, NULL, WNOHANG) == 0) {
            if (now_ms() > until) {
                dprintf(2, "dlq: an output file is not complete: its file system is too slow\n");
                return;
            }
            poll(NULL, 0, 5);
        }
}

/* ---- the program ---- */

/* `count` pipes: both streams share one where they share a file, which keeps their order. */
static pid_t start(char **command, int count)
{
    int ends[STREAMS][2];
    for (int each = 0; each < count; each++)
        if (pipe2(ends[each], O_CLOEXEC) != 0)
            return -1;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[0][1], 1);
        dup2(ends[count - 1][1], 2);
        run_program(command);
    }
    for (int each = 0; each < count; each++) {
        close(ends[each][1]);
        fcntl(ends[each][0], F_SETFL, O_NONBLOCK);
        streams[each].from = ends[each][0];
        streams[each].to = each + 1;
    }
    return pid;
}

static void forward(int signals, pid_t pid)
{
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD)
            kill(pid, (int)info.ssi_signo);
}

/* Until the program has ended and the rest of its output is copied. Its status. */
static int stay(pid_t pid, int signals)
{
    int status;
    for (;;) {
        bool over = waitpid(pid, &status, WNOHANG) == pid;
        struct pollfd fds[] = {{.fd = signals, .events = POLLIN},
                               {.fd = streams[0].from, .events = POLLIN},
                               {.fd = streams[1].from, .events = POLLIN}};
        if (!over) { /* once it is reaped, its number may be another's */
            poll(fds, 3, -1);
            forward(signals, pid);
        }
        for (int each = 0; each < STREAMS; each++)
            if (over || fds[each + 1].revents != 0)
                for (int piece = 0; streams[each].from >= 0 && (over || piece < 1); piece++)
                    if (!copy(&streams[each]))
                        break;
        if (over)
            return status;
    }
}

int main(int argc, char **argv)
{
    int command = 3;
    while (command < argc && command < 5 && strcmp(argv[command], "--") != 0)
        command++;
    if (command + 1 >= argc || command > 4 || strcmp(argv[command], "--") != 0) {
        dprintf(2, "dlq-output: append|truncate[,mkdir][,slurm] STDOUT [STDERR] -- COMMAND...\n");
        return 125;
    }
    int signals = catch_all();
    bool truncate = strncmp(argv[1], "truncate", strlen("truncate")) == 0;
    makes_directories = strstr(argv[1], ",mkdir") != NULL;
    writers[0].fd = writers[1].fd = -1;
    streams[0].writer = streams[1].writer = &writers[0];
    streams[1].from = -1;
    int failed = start_writer(&writers[0], argv[2], truncate);
    bool apart = command == 4 && strcmp(argv[2], argv[3]) != 0;
    if (failed == 0 && apart) {
        failed = start_writer(&writers[1], argv[3], truncate);
        streams[1].writer = &writers[1];
    }
    if (failed != 0) /* a script may end with exit code 53 too, but hardly by that signal */
        return strstr(argv[1], ",slurm") != NULL ? end_as(CANNOT_OPEN) : failed;
    pid_t pid = signals < 0 ? -1 : start(argv + command + 1, apart ? 2 : 1);
    if (pid < 0)
        return fail("cannot start", argv[command + 1]);
    int status = stay(pid, signals);
    finish();
    return end_as(status);
}
