/* From fork to exec: everything here runs once, in the order in which it must. */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void child_fail(int status_fd, const char *stage)
{
    struct start_error error = {.error = errno};
    snprintf(error.stage, sizeof error.stage, "%s", stage);
    ssize_t written = write(status_fd, &error, sizeof error);
    (void)written;
    _exit(127);
}

/* The agent ignores SIGPIPE, and the shim ignores more. glibc's posix_spawn leaves its own two
 * signals (32, 33) ignored, and signal(2) refuses to touch them. A job must inherit none of that.
 * */
void child_reset_signals(void)
{
    const char default_action[64] = {0}; /* the kernel's struct sigaction, all zero */
    sigset_t none;
    for (int number = 1; number <= SIGRTMAX; number++)
        syscall(SYS_rt_sigaction, number, default_action, NULL, 8);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static int redirect(int log_fd)
{
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0)
        return -1;
    /* The child's copies of the shim's own descriptors are close-on-exec already. This closes
     * descriptors that the C library or a future change may have left open. */
    return close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
}

static void drop_bounding_set(void)
{
    /* Needs CAP_SETPCAP; an unprivileged agent has nothing to drop. */
    for (int capability = 0; capability <= 63; capability++)
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
}

static int drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}, {0}};
    return (int)syscall(SYS_capset, &header, none);
}

static int become(const struct plan *plan)
{
    uid_t real, effective, saved;
    if (geteuid() == 0 && (setgroups(plan->group_count, plan->groups) != 0 ||
                           setresgid(plan->gid, plan->gid, plan->gid) != 0 ||
                           setresuid(plan->uid, plan->uid, plan->uid) != 0))
        return -1;
    if (getresuid(&real, &effective, &saved) != 0)
        return -1;
    if (real != plan->uid || effective != plan->uid || saved != plan->uid) {
        errno = EPERM;
        return -1;
    }
    return drop_capabilities();
}

/* "No such file" about a file that is there means the interpreter that its first line (or its ELF
 * header) names. Does not change errno. */
static const char *exec_stage(const char *program)
{
    int error = errno;
    bool there = error == ENOENT && strchr(program, '/') != NULL && access(program, F_OK) == 0;
    errno = error;
    return there ? "interpreter" : "exec";
}

/* From here on a rank's main process and a command inside the rank are treated alike: neither gets a
 * right that the other has not. */
void child_become(const struct plan *plan, pid_t guard, int status_fd)
{
    soft_limits_set(&plan->limits);
    drop_bounding_set();
    if (become(plan) != 0)
        child_fail(status_fd, "identity");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        child_fail(status_fd, "no_new_privs");
    /* After the change of ids, which clears it: a job without its guard must not live on. */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != guard)
        _exit(127);
    umask(plan->mask);
    if (chdir(plan->cwd) != 0) /* as the user, so that the user's rights decide */
        child_fail(status_fd, "chdir");
    child_reset_signals();
    environ = plan->env; /* execvp searches the PATH of `environ`: the plan's */
    execvp(plan->argv[0], plan->argv);
    child_fail(status_fd, exec_stage(plan->argv[0]));
}

static void run(const struct plan *plan, pid_t shim, int status_fd, int log_fd)
{
    setsid();
    write_text("/proc/self/oom_score_adj", "0"); /* the shim's own protection is not inherited */
    if (cgroup_join(plan) != 0)
        child_fail(status_fd, "cgroup");
    if (redirect(log_fd) != 0)
        child_fail(status_fd, "output");
    child_become(plan, shim, status_fd);
}

void child_words(const struct plan *plan, const struct start_error *error, char *words, size_t size)
{
    const char *name = NULL;
    if (strcmp(error->stage, "chdir") == 0)
        name = plan->cwd;
    else if (strcmp(error->stage, "exec") == 0 || strcmp(error->stage, "interpreter") == 0)
        name = plan->argv[0];
    if (name == NULL)
        snprintf(words, size, "%s", strerror(error->error));
    else
        snprintf(words, size, "%s: '%.200s'", strerror(error->error), name);
}

int child_start(const struct plan *plan, struct child *child)
{
    int status[2], log[2];
    pid_t shim = getpid();
    if (pipe2(status, O_CLOEXEC) != 0)
        return -1;
    if (pipe2(log, O_CLOEXEC) != 0)
        return -1;
    child->pid = fork();
    if (child->pid < 0)
        return -1;
    if (child->pid == 0)
        run(plan, shim, status[1], log[1]);
    close(status[1]);
    close(log[1]);
    fcntl(log[0], F_SETFL, O_NONBLOCK);
    fcntl(log[0], F_SETPIPE_SZ, 1 << 18); /* fewer wake-ups; refused is fine */
    fcntl(status[0], F_SETFL, O_NONBLOCK);
    child->status_fd = status[0];
    child->log_fd = log[0];
    return 0;
}
