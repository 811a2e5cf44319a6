/* dlq, sbatch, squeue, ... for people: asks the user's server of commands, or takes the slow way. */

#include "front.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* bin/NAME of an installation: its name is the command, whatever argv[0] says. */
static bool find_self(struct front_call *call)
{
    ssize_t size = readlink("/proc/self/exe", call->bin, sizeof call->bin - 1);
    char *slash = size > 0 ? strrchr(call->bin, '/') : NULL;
    if (!slash)
        return false;
    *slash = 0;
    call->name = slash + 1;
    return true;
}

static bool starts_with(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* A server speaks UTF-8, which is also what Python makes of the C locale. */
static bool is_utf8(void)
{
    const char *names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (!value || !*value)
            continue;
        const char *dot = strchr(value, '.');
        return !strcmp(value, "C") || !strcmp(value, "POSIX") ||
               (dot && (starts_with(dot, ".UTF-8") || starts_with(dot, ".utf8")));
    }
    return true;
}

/* Variables that an interpreter or a library reads when it starts, and a server has started. */
static bool is_plain(char **envp)
{
    static const char *const harmless[] = {"PYTHONPATH=", "PYTHONUNBUFFERED=", "PYTHONHASHSEED=",
                                           "PYTHONDONTWRITEBYTECODE=", "PYTHONNOUSERSITE=",
                                           "PYTHONSTARTUP=", "PYTHONFAULTHANDLER=",
                                           "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH="};
    static const char *const early[] = {"PYTHON", "GRPC_", "MALLOC_", "GCONV_",
                                        "GLIBC_TUNABLES=", "LOCPATH="};
    for (; *envp; envp++) {
        bool known = false;
        for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
            known = known || starts_with(*envp, harmless[i]);
        for (size_t i = 0; !known && i < sizeof early / sizeof *early; i++)
            if (starts_with(*envp, early[i]))
                return false;
    }
    return true;
}

/* Descriptors beside the first three stay here: no word may name one. /dev/null is none. */
static bool names_descriptors(char **argv)
{
    for (; *argv; argv++) {
        const char *device = strstr(*argv, "/dev/");
        if ((device && strcmp(device, "/dev/null")) || strstr(*argv, "/proc/"))
            return true;
    }
    return false;
}

static bool may_be_served(const struct front_call *call, char **argv, char **envp)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            return false;
    /* Inside a job nothing may outlive the job, and memory counts. */
    return getuid() == geteuid() && getgid() == getegid() && !getenv("DLQ_JOB_ID") &&
           !getenv("DLQ_SLURM_CONTROL") && !getenv("DLQ_NO_HELPER") && is_utf8() &&
           is_plain(envp) && !names_descriptors(argv + 1) && front_is_served(call, argv);
}

/* `dlq` has a Python program beside it. Slurm's names have theirs where they were installed. */
static _Noreturn void go_slowly(const struct front_call *call, char **argv)
{
    char path[PATH_MAX + 64];
    if (front_is_dlq(call))
        snprintf(path, sizeof path, "%s/" FRONT_PLAIN, call->bin);
    else
        snprintf(path, sizeof path, "%s/../lib/slow/%s", call->bin, call->name);
    execv(path, argv);
    perror(path);
    exit(127);
}

int main(int argc, char **argv, char **envp)
{
    static struct front_call call;
    int code = 0;
    if (!find_self(&call)) {
        fprintf(stderr, "%s: cannot find its own file by /proc/self/exe\n", argv[0]);
        return 127;
    }
    if (may_be_served(&call, argv, envp) && front_find_dlq(&call) && front_find_run_dir(&call) &&
        front_key(&call)) {
        if (front_talk(&call, argc, argv, envp, &code))
            return code;
        front_start_server(&call);
    }
    go_slowly(&call, argv);
}
