/* A rank in a container. `podman run -d` is our child only until it has made the container. Its
 * monitor (conmon) comes back to us because we are the subreaper, and so does the container should
 * conmon die. dlq-init, process 1 of the container (init/), reports the job's end. */
#include "shim.h"

#include "init/message.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TO_SHIM = 3, JOB = 4 };

/* ---- the job, as dlq-init reads it ---- */

static int put(int fd, const char *key, const char *value)
{
    struct {
        const char *text;
        size_t length;
    } parts[] = {{key, strlen(key)}, {value, strlen(value) + 1}};
    for (size_t at = 0; at < 2; at++)
        for (size_t done = 0; done < parts[at].length;) {
            ssize_t wrote = write(fd, parts[at].text + done, parts[at].length - done);
            if (wrote <= 0)
                return -1;
            done += (size_t)wrote;
        }
    return 0;
}

int container_job(const struct plan *plan)
{
    char mask[16];
    int fd = memfd_create("job", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int failed = fd < 0;
    snprintf(mask, sizeof mask, "%o", plan->mask);
    failed = failed || put(fd, "umask=", mask) != 0;
    failed = failed || (plan->image_cwd != NULL ? put(fd, "try=", plan->image_cwd)
                                                 : put(fd, "cwd=", plan->cwd)) != 0;
    for (char **each = plan->limit_texts; !failed && *each != NULL; each++)
        failed |= put(fd, "limit=", *each);
    for (char **each = plan->env; !failed && *each != NULL; each++)
        failed |= put(fd, "env=", *each);
    for (char **each = plan->argv; !failed && *each != NULL; each++)
        failed |= put(fd, "arg=", *each);
    if (!failed)
        failed = put(fd, "end", "") != 0 ||
                 fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    if (failed && fd >= 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* ---- the client ---- */

static void run_client(int dir_fd, char **argv, char **env, int log_fd, int to_shim, int job)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    int home = openat(dir_fd, "podman", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    setsid();
    umask(022); /* podman's files for the container are for the job's user too */
    write_text("/proc/self/oom_score_adj", "0"); /* the shim's own protection is not inherited */
    /* conmon leaves its mark of an out-of-memory kill in its working directory. */
    if (null_fd < 0 || (dir_fd >= 0 && (home < 0 || fchdir(home) != 0)))
        _exit(126);
    if (log_fd < 0)
        log_fd = null_fd;
    /* High copies first: the numbers in use may be the ones that are wanted. */
    if (to_shim >= 0)
        to_shim = fcntl(to_shim, F_DUPFD_CLOEXEC, 64);
    if (job >= 0)
        job = fcntl(job, F_DUPFD_CLOEXEC, 64);
    log_fd = fcntl(log_fd, F_DUPFD_CLOEXEC, 64);
    if (dup2(null_fd, 0) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0)
        _exit(126);
    if (to_shim >= 0 && (dup2(to_shim, TO_SHIM) < 0 || dup2(job, JOB) < 0))
        _exit(126);
    close_range(to_shim >= 0 ? JOB + 1 : 3, ~0u, CLOSE_RANGE_CLOEXEC);
    child_reset_signals();
    environ = env;
    execvp(argv[0], argv);
    dprintf(2, "Error: %s: %s\n", argv[0], strerror(errno));
    _exit(126);
}

const char *container_start(int dir_fd, const struct plan *plan, struct container *box,
                            struct child *child)
{
    int pair[2], log[2], on = 1;
    int job = container_job(plan);
    if (job < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return "container";
    if (setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
        pipe2(log, O_CLOEXEC) != 0)
        return "container";
    box->client = fork();
    if (box->client < 0)
        return "fork";
    if (box->client == 0)
        run_client(dir_fd, plan->podman, plan->podman_env, log[1], pair[1], job);
    close(job);
    close(pair[1]);
    close(log[1]);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    fcntl(log[0], F_SETFL, O_NONBLOCK);
    fcntl(log[0], F_SETPIPE_SZ, 1 << 18); /* fewer wake-ups; refused is fine */
    box->socket = pair[0];
    child->pid = box->client;
    child->log_fd = log[0];
    return NULL;
}

void container_sweep(const struct plan *plan, struct container *box)
{
    if (box->sweeper != 0)
        return;
    box->sweeper = fork();
    if (box->sweeper == 0)
        run_client(-1, plan->podman_rm, plan->podman_env, -1, -1, -1);
    if (box->sweeper < 0)
        box->swept = true; /* the agent sweeps again when it starts */
}

/* ---- dlq-init ---- */

static pid_t sender_of(struct msghdr *header)
{
    struct ucred sender = {0};
    for (struct cmsghdr *each = CMSG_FIRSTHDR(header); each != NULL;
         each = CMSG_NXTHDR(header, each))
        if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SCM_CREDENTIALS)
            memcpy(&sender, CMSG_DATA(each), sizeof sender);
    return sender.pid;
}

static int open_pidfd(pid_t pid)
{
    return pid > 1 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

bool container_receive(struct container *box, struct init_message *message)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec data = {.iov_base = message, .iov_len = sizeof *message};
    struct msghdr header = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
                            .msg_controllen = sizeof control};
    ssize_t got = recvmsg(box->socket, &header, MSG_CMSG_CLOEXEC);
    if (got < 0)
        return false;
    if (got == 0) { /* every sender has gone */
        close(box->socket);
        box->socket = -1;
        return false;
    }
    pid_t sender = sender_of(&header);
    message->stage[sizeof message->stage - 1] = '\0';
    if (got != (ssize_t)sizeof *message)
        message->kind = 0;
    if (message->kind == INIT_HELLO && box->init == 0) {
        box->init = sender;
        box->init_fd = open_pidfd(sender);
    } else if (message->kind == INIT_MAIN && box->main == 0) {
        box->main = sender;
        box->main_fd = open_pidfd(sender);
    }
    return true;
}

void container_signal(const struct container *box, int number)
{
    int fd = number == SIGKILL ? box->init_fd : box->main_fd;
    if (fd >= 0)
        syscall(SYS_pidfd_send_signal, fd, number, NULL, 0);
}
