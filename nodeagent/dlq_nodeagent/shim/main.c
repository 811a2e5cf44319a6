/* dlq-shim ATTEMPT_DIR: see README.md. Outlives the agent (but not as `exec` or `serve`). */
#include "shim.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION "dlq-shim 1\n"

/* Exit codes for people that start the shim by hand; the agent reads the exit record instead. */
enum { DONE = 0, USAGE = 2, NOT_OURS = 3 };

static const int ignored[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE, SIGALRM, SIGTERM,
                              SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU};

/* Nothing but `kill -9` ends the shim before its job has ended. */
static void become_guard(void)
{
    sigset_t child;
    for (size_t at = 0; at < sizeof ignored / sizeof *ignored; at++)
        signal(ignored[at], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_SETMASK, &child, NULL);
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    write_text("/proc/self/oom_score_adj", "-900"); /* needs CAP_SYS_RESOURCE; else unchanged */
    umask(077);
    if (chdir("/") != 0) /* keep no file system busy */
        _exit(NOT_OURS);
}

static void tidy_descriptors(void)
{
    int fd;
    close_range(3, ~0u, 0);
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd < 3);
    if (fd >= 3)
        close(fd);
}

static void refuse(int dir_fd, struct plan *plan, const char *stage, const char *why,
                   const char *boot_id)
{
    struct ending ending = {.why = "start_error", .start_error_text = why,
                            .started_boottime_ns = -1, .started_wall_ns = -1,
                            .usage = {-1, -1, -1}};
    snprintf(ending.start_error.stage, sizeof ending.start_error.stage, "%s", stage);
    if (plan->job_id == NULL)
        plan->job_id = "0";
    record_exit(dir_fd, plan, &ending, boot_id);
}

int shim_main(const char *attempt_dir)
{
    struct plan plan;
    char boot_id[40];
    tidy_descriptors();
    int dir_fd = open(attempt_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int plan_fd = dir_fd < 0 ? -1 : plan_open(dir_fd);
    /* A record that is there already was written by an agent that gave this start up. */
    if (plan_fd < 0 || faccessat(dir_fd, "exit.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return NOT_OURS;
    become_guard();
    read_boot_id(boot_id);
    record_reserve(dir_fd);
    const char *wrong = plan_read(plan_fd, &plan);
    if (wrong != NULL) {
        refuse(dir_fd, &plan, "plan", wrong, boot_id);
        return DONE;
    }
    wrong = users_check(dir_fd, &plan);
    if (wrong != NULL)
        refuse(dir_fd, &plan, "identity", wrong, boot_id);
    else
        guard_run(dir_fd, &plan, boot_id);
    return DONE;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--version") == 0)
        return fputs(VERSION, stdout) < 0;
    if (argc > 1 && strcmp(argv[1], "exec") == 0)
        return exec_main(argc - 2, argv + 2);
    if (argc == 2 && strcmp(argv[1], "serve") == 0)
        return launcher_main();
    return argc == 2 ? shim_main(argv[1]) : USAGE;
}
