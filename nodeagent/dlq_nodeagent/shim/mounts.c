/* The host's directories and files that a container gets: opened once, as the user, and pinned. */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Trees without users' data: the kernel's, and those that steer other services. */
static const char *const never[] = {"/proc", "/sys", "/dev", "/run", "/boot"};

static bool is_below(const char *path, const char *root)
{
    size_t length = strlen(root);
    if (length > 1 && root[length - 1] == '/')
        length--;
    if (length == 1)
        return true;
    return strncmp(path, root, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

static const char *check_place(const struct plan *plan, const char *path)
{
    bool allowed = plan->mount_root_count == 0;
    if (path[0] != '/' || path[1] == '\0')
        return "not a directory below /";
    for (size_t at = 0; at < sizeof never / sizeof *never; at++)
        if (is_below(path, never[at]))
            return "a directory of the system's";
    for (size_t at = 0; at < plan->mount_root_count && !allowed; at++)
        allowed = is_below(path, plan->mount_roots[at]);
    return allowed ? NULL : "not below any directory this node allows";
}

/* File system ids other than root's also drop the capabilities that override permissions. The shim
 * has one thread, so nothing else runs with these rights. */
static int open_as_user(const struct plan *plan, const char *source)
{
    gid_t before[MAX_GROUPS];
    int count = getgroups(MAX_GROUPS, before);
    if (geteuid() != 0 || plan->uid == 0)
        return open(source, O_PATH | O_CLOEXEC);
    if (count < 0 || setgroups(plan->group_count, plan->groups) != 0)
        return -1;
    setfsgid(plan->gid);
    setfsuid(plan->uid);
    int fd = setfsuid((uid_t)-1) == (int)plan->uid ? open(source, O_PATH | O_CLOEXEC) : -1;
    int error = errno;
    setfsuid(0);
    setfsgid(getegid());
    if (setgroups((size_t)count, before) != 0 && fd >= 0) {
        close(fd);
        return -1;
    }
    errno = error;
    return fd;
}

static int make_target(int dir_fd, const char *name, bool directory)
{
    if (directory)
        return mkdirat(dir_fd, name, 0700);
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? -1 : close(fd);
}

static const char *pin(int dir_fd, const struct plan *plan, size_t at)
{
    char from[64], to[64], real[PATH_MAX], name[32];
    struct stat info;
    int fd = open_as_user(plan, plan->mounts[at]);
    if (fd < 0)
        return "cannot be opened by this user";
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(from, real, sizeof real - 1);
    real[length < 0 ? 0 : length] = '\0';
    errno = 0;
    const char *wrong = check_place(plan, real);
    /* Whether the user may look into it the kernel decides again, inside the container. */
    if (wrong == NULL && fstat(fd, &info) != 0)
        wrong = "cannot be opened by this user";
    if (wrong == NULL && !S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode))
        wrong = "neither a directory nor a plain file";
    snprintf(name, sizeof name, "podman/m%zu", at);
    snprintf(to, sizeof to, "/proc/self/fd/%d/%s", dir_fd, name);
    if (wrong == NULL && (make_target(dir_fd, name, S_ISDIR(info.st_mode)) != 0 ||
                          mount(from, to, NULL, MS_BIND | MS_REC, NULL) != 0))
        wrong = "cannot be mounted";
    close(fd);
    return wrong;
}

/* The attempt's directory again, as our own mount table has it: -1 with errno. */
static int reopen(int dir_fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", dir_fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = '\0';
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

const char *mounts_pin(int dir_fd, const struct plan *plan, size_t *at)
{
    const char *wrong = NULL;
    *at = plan->mount_count;
    if (plan->mount_count == 0)
        return NULL;
    /* A copy of the mount table: later mounts and unmounts of the host are seen here, ours are not
     * seen there. */
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", NULL, MS_REC | MS_SLAVE, NULL) != 0)
        return "no mount namespace";
    int here = reopen(dir_fd);
    if (here < 0)
        return "no place for mounts";
    *at = 0;
    while (*at < plan->mount_count && (wrong = pin(here, plan, *at)) == NULL)
        (*at)++;
    int error = errno;
    close(here);
    errno = error;
    return wrong;
}
