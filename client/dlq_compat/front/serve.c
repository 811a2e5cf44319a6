/* Starts a server in the background. It must inherit nothing of this call but what the key holds. */

#include "front.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AGAIN_S 30
#define CALL_MS 5000

/* Once in AGAIN_S seconds: an installation that cannot serve must not be tried at every call. */
static bool is_due(const struct front_call *call)
{
    char path[PATH_MAX];
    struct stat found;
    snprintf(path, sizeof path, "%.4000s/%s.tried", call->run_dir, call->key);
    bool there = !lstat(path, &found);
    if (there && time(NULL) - found.st_mtime < AGAIN_S && time(NULL) >= found.st_mtime)
        return false;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return false;
    bool touched = !futimens(fd, NULL);
    close(fd);
    return touched;
}

/* Names that say who and where the user is; all else of the environment comes with each request. */
static char **clean_environment(void)
{
    static const char *const names[] = {"HOME", "USER", "LOGNAME", "XDG_RUNTIME_DIR", "TMPDIR"};
    static char *clean[8], text[6][PATH_MAX];
    size_t count = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && snprintf(text[count], PATH_MAX, "%s=%s", names[i], value) < PATH_MAX) {
            clean[count] = text[count];
            count++;
        }
    }
    clean[count++] = "PATH=/usr/local/bin:/usr/bin:/bin";
    clean[count++] = "LC_CTYPE=C.UTF-8";
    clean[count] = NULL;
    return clean;
}

/* Two interpreters that start at once delay the call. So the server waits for the end of the call,
 * whose slow way is the same process. It does not wait for a long one. */
static void await_call(int caller)
{
    struct pollfd ended = {.fd = caller, .events = POLLIN};
    poll(&ended, 1, CALL_MS);
    close(caller);
}

static void become_server(const struct front_call *call, int caller)
{
    sigset_t none;
    sigemptyset(&none);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int which = 0; which < FRONT_LIMITS; which++) {
        struct rlimit limit;
        if (!getrlimit(which, &limit) && which != RLIMIT_STACK) {
            limit.rlim_cur = limit.rlim_max;
            setrlimit(which, &limit);
        }
    }
    umask(077);
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || chdir("/"))
        _exit(1);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    int kept = caller < 0 ? 2 : dup2(caller, 3);
    syscall(SYS_close_range, kept + 1u, ~0u, 0u);
    for (int fd = kept + 1; fd < 1024; fd++) /* where the kernel does not have the call */
        close(fd);
    if (kept == 3)
        await_call(kept);
    char *arguments[] = {(char *)call->dlq, "slurm", "serve", (char *)call->run_dir,
                         (char *)call->key, NULL};
    execve(call->dlq, arguments, clean_environment());
    _exit(1);
}

void front_start_server(const struct front_call *call)
{
    if (!is_due(call))
        return;
    int caller = (int)syscall(SYS_pidfd_open, getpid(), 0u);
    pid_t child = fork();
    if (child > 0)
        waitpid(child, NULL, 0);
    if (child) {
        close(caller);
        return;
    }
    setsid();
    if (!fork())
        become_server(call, caller);
    _exit(0);
}
