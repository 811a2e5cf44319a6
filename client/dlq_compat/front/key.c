/* The key of a server. A request takes over arguments, environment, directory, umask, soft limits and
 * the three standard descriptors. It cannot take over what is hashed here. So two callers that differ
 * in one of these have two servers. */

#include "front.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

struct hash {
    uint64_t a, b;
};

/* FNV-1a, twice with different beginnings: against chance, not against the user's own forgery. */
static void add(struct hash *hash, const void *data, size_t size)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < size; i++) {
        hash->a = (hash->a ^ byte[i]) * 0x100000001b3u;
        hash->b = (hash->b ^ (byte[i] + 0x5bu)) * 0x100000001b3u;
    }
}

static void add_number(struct hash *hash, uint64_t number)
{
    add(hash, &number, sizeof number);
}

static bool add_file(struct hash *hash, const char *path)
{
    char text[8192];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t size = read(fd, text, sizeof text);
    close(fd);
    if (size < 0 || size == sizeof text)
        return false;
    add(hash, text, (size_t)size);
    return true;
}

static bool add_stat(struct hash *hash, const char *path)
{
    struct stat found;
    if (stat(path, &found))
        return false;
    add_number(hash, found.st_dev);
    add_number(hash, found.st_ino);
    add_number(hash, (uint64_t)found.st_mtim.tv_sec);
    add_number(hash, (uint64_t)found.st_mtim.tv_nsec);
    add_number(hash, (uint64_t)found.st_size);
    return true;
}

static bool add_namespaces(struct hash *hash)
{
    static const char *const names[] = {"mnt", "pid", "net", "user", "uts", "ipc"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        struct stat found;
        snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
        if (stat(path, &found))
            return false;
        add_number(hash, found.st_ino);
    }
    struct stat root;
    if (stat("/", &root))
        return false;
    add_number(hash, root.st_dev);
    add_number(hash, root.st_ino);
    return true;
}

static bool add_rights(struct hash *hash)
{
    gid_t groups[256];
    int count = getgroups(256, groups);
    if (count < 0)
        return false;
    add_number(hash, geteuid());
    add_number(hash, getegid());
    add(hash, groups, sizeof *groups * (size_t)count);
    for (int which = 0; which < FRONT_LIMITS; which++) {
        struct rlimit limit;
        if (getrlimit(which, &limit))
            return false;
        add_number(hash, limit.rlim_max);
    }
    add_number(hash, (uint64_t)(int64_t)getpriority(PRIO_PROCESS, 0));
    return true;
}

bool front_key(struct front_call *call)
{
    struct hash hash = {0xcbf29ce484222325u, 0x84222325cbf29ce4u};
    add_number(&hash, FRONT_VERSION);
    add(&hash, call->dlq, strlen(call->dlq));
    if (!add_stat(&hash, call->dlq) || !add_namespaces(&hash) || !add_rights(&hash) ||
        !add_file(&hash, "/proc/sys/kernel/random/boot_id") || !add_file(&hash, "/proc/self/cgroup"))
        return false;
    snprintf(call->key, sizeof call->key, "%016llx%016llx", (unsigned long long)hash.a,
             (unsigned long long)hash.b);
    return true;
}
