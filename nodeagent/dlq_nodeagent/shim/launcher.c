/* `dlq-shim serve`: forks shims for the agent. A fork of this small process costs a fraction of the
 * start of a program.
 *
 * Descriptor 0 is a socket of whole messages. The agent sends the directory of an attempt, and gets
 * a pidfd of its shim, or an errno. A shim writes a byte to descriptor 1 when its start record is
 * there. The shims are this process's children until it leaves, which it
 * does when the agent is gone. They go on then. */
#include "shim.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define AGENT 0
#define NEWS 1
#define LONGEST_PATH 4096

static void answer(int error, int pidfd)
{
    struct iovec said = {.iov_base = &error, .iov_len = sizeof error};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof pidfd)];
    } with = {.room = {0}};
    struct msghdr message = {.msg_iov = &said, .msg_iovlen = 1};
    if (pidfd >= 0) {
        message.msg_control = with.room;
        message.msg_controllen = sizeof with.room;
        with.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
                                       .cmsg_len = CMSG_LEN(sizeof pidfd)};
        memcpy(CMSG_DATA(&with.header), &pidfd, sizeof pidfd);
    }
    sendmsg(AGENT, &message, MSG_NOSIGNAL);
}

/* Nobody has waited for the child yet, so its pid is still its own. */
static void fork_shim(const char *attempt_dir)
{
    pid_t pid = fork();
    if (pid == 0) {
        close(AGENT);
        prctl(PR_SET_NAME, "dlq-shim", 0, 0, 0);
        news_fd = NEWS;
        _exit(shim_main(attempt_dir));
    }
    int pidfd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    answer(pidfd < 0 ? errno : 0, pidfd);
    if (pidfd >= 0)
        close(pidfd);
}

static void ignore(int number)
{
    (void)number;
}

/* Returns when the agent has sent a directory (true), or is gone. */
static bool next_order(char path[LONGEST_PATH])
{
    sigset_t none;
    sigemptyset(&none);
    struct pollfd agent = {.fd = AGENT, .events = POLLIN};
    for (;;) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (ppoll(&agent, 1, NULL, &none) < 0)
            continue; /* a shim has ended */
        ssize_t got = recv(AGENT, path, LONGEST_PATH - 1, 0);
        if (got <= 0)
            return false;
        path[got] = '\0';
        return true;
    }
}

int launcher_main(void)
{
    char path[LONGEST_PATH];
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_SETMASK, &child, NULL); /* it arrives only while nothing else is done */
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = ignore}, NULL);
    prctl(PR_SET_NAME, "dlq-launcher", 0, 0, 0);
    setsid();
    while (next_order(path))
        fork_shim(path);
    return 0;
}
