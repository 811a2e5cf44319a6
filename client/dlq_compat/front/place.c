/* Where things are: the `dlq` that answers, and the private directory of the servers. */

#include "front.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_program(const char *path)
{
    struct stat found;
    return !stat(path, &found) && S_ISREG(found.st_mode) && !access(path, X_OK);
}

/* The Python program beside a `dlq`, through links. So all names of an installation have one server. */
static bool use_plain(struct front_call *call)
{
    char real[PATH_MAX], plain[PATH_MAX];
    char *slash = realpath(call->dlq, real) ? strrchr(real, '/') : NULL;
    if (!slash)
        return false;
    *slash = 0;
    int size = snprintf(plain, sizeof plain, "%s/" FRONT_PLAIN, real);
    if (size < (int)sizeof plain && is_program(plain))
        memcpy(call->dlq, plain, (size_t)size + 1);
    return true;
}

/* As dlq_compat.delegate finds it: the first in PATH, else the one of the installation. */
static bool find_by_path(struct front_call *call)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        size_t length = strcspn(path, ":");
        /* An empty or relative entry depends on the directory: the slow way knows it. */
        if (!length || *path != '/')
            return false;
        int size = snprintf(call->dlq, sizeof call->dlq, "%.*s/dlq", (int)length, path);
        if (size > 0 && (size_t)size < sizeof call->dlq && is_program(call->dlq))
            return true;
        path += length + (path[length] == ':');
    }
    char noted[PATH_MAX];
    if (snprintf(noted, sizeof noted, "%s/../lib/dlq-cli", call->bin) >= (int)sizeof noted)
        return false;
    FILE *file = fopen(noted, "re");
    if (!file)
        return false;
    bool read = fgets(call->dlq, sizeof call->dlq, file) != NULL;
    fclose(file);
    call->dlq[strcspn(call->dlq, "\n")] = 0;
    return read && *call->dlq == '/' && is_program(call->dlq);
}

bool front_find_dlq(struct front_call *call)
{
    if (!front_is_dlq(call))
        return find_by_path(call) && use_plain(call);
    int size = snprintf(call->dlq, sizeof call->dlq, "%s/" FRONT_PLAIN, call->bin);
    return size < (int)sizeof call->dlq && is_program(call->dlq);
}

/* A directory of our own that nobody else may enter; made when its parent is there. */
static bool is_private(const char *path)
{
    struct stat found;
    if (mkdir(path, 0700) && errno != EEXIST)
        return false;
    return !lstat(path, &found) && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
           !(found.st_mode & 077);
}

static bool try_dir(struct front_call *call, const char *base, const char *below, const char *last)
{
    char parent[PATH_MAX];
    int size = snprintf(parent, sizeof parent, "%s%s", base, below);
    if (*base != '/' || size >= (int)sizeof parent)
        return false;
    size = snprintf(call->run_dir, sizeof call->run_dir, "%s/%s", parent, last);
    /* The longest name in it, with its ending, must fit into the address of a socket (108). */
    return size < 60 && is_private(call->run_dir);
}

bool front_find_run_dir(struct front_call *call)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR"), *home = getenv("HOME");
    if (runtime && *runtime && try_dir(call, runtime, "", "dlq"))
        return true;
    return home && *home && try_dir(call, home, "/.config/dlq", "run");
}
