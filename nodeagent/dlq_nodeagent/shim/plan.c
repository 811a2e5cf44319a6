/* The plan file: NUL-terminated `key=value` records, so values may hold any other byte. */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLAN_VERSION "dlq-plan=1"
#define MAX_PLAN_BYTES (4 << 20)
#define MAX_ID 4294967294ll /* 2^32 - 1 means "unchanged" to setresuid(2) */
#define MAX_MS (INT64_MAX / NS_PER_MS)

bool parse_number(const char *text, int64_t max, int64_t *out)
{
    int64_t value = 0;
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' || value > (max - (*text - '0')) / 10)
            return false;
        value = value * 10 + (*text - '0');
    }
    *out = value;
    return value <= max;
}

int plan_look(int dir_fd)
{
    struct stat info;
    int fd = openat(dir_fd, "plan", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -1;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
        (info.st_mode & 077) == 0)
        return fd;
    close(fd);
    return -1;
}

int plan_open(int dir_fd)
{
    int fd = plan_look(dir_fd);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Reads all of the file, with one more NUL behind it. */
static char *slurp(int fd, size_t *length)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || info.st_size <= 0 || info.st_size > MAX_PLAN_BYTES)
        return NULL;
    char *text = calloc(1, (size_t)info.st_size + 1);
    size_t used = 0;
    while (text != NULL && used < (size_t)info.st_size) {
        ssize_t got = pread(fd, text + used, (size_t)info.st_size - used, (off_t)used);
        if (got <= 0) {
            free(text);
            return NULL;
        }
        used += (size_t)got;
    }
    *length = used;
    return text;
}

static bool take_cgroup(struct plan *plan, char *value)
{
    char *colon = strchr(value, ':');
    if (colon == NULL || colon[1] != '/' || plan->cgroup_count == MAX_CGROUPS)
        return false;
    *colon = '\0';
    plan->cgroups[plan->cgroup_count++] = (struct cgroup_dir){.kind = value, .path = colon + 1};
    return true;
}

static bool take_path(const char *value, const char *list[], size_t *count)
{
    if (*count == MAX_MOUNTS || value[0] != '/')
        return false;
    list[(*count)++] = value;
    return true;
}

static bool take_group(struct plan *plan, const char *value)
{
    int64_t id;
    if (plan->group_count == MAX_GROUPS || !parse_number(value, MAX_ID, &id))
        return false;
    plan->groups[plan->group_count++] = (gid_t)id;
    return true;
}

static bool take_ms(const char *value, int64_t *ns)
{
    int64_t ms;
    if (!parse_number(value, MAX_MS, &ms))
        return false;
    *ns = ms * NS_PER_MS;
    return true;
}

static bool take_id(const char *value, uid_t *id)
{
    int64_t number;
    if (!parse_number(value, MAX_ID, &number))
        return false;
    *id = (uid_t)number;
    return true;
}

static bool take_mask(const char *value, mode_t *out)
{
    int64_t number;
    if (!parse_number(value, 0777, &number))
        return false;
    *out = (mode_t)number;
    return true;
}

static bool take_signal(const char *value, int *out)
{
    int64_t number;
    if (!parse_number(value, 64, &number) || number == 0)
        return false;
    *out = (int)number;
    return true;
}

static bool take_word(const char *value, const char *no, const char *yes, bool *out)
{
    *out = strcmp(value, yes) == 0;
    return *out || strcmp(value, no) == 0;
}

static bool take(struct plan *plan, const char *key, char *value)
{
    int64_t unused;
    if (strcmp(key, "job_id") == 0) {
        plan->job_id = value;
        return parse_number(value, INT64_MAX, &unused);
    }
    if (strcmp(key, "cwd") == 0) {
        plan->cwd = value;
        return value[0] == '/';
    }
    if (strcmp(key, "contact") == 0) {
        plan->contact = value;
        return value[0] == '/';
    }
    if (strcmp(key, "attempt") == 0)
        return parse_number(value, INT64_MAX, &plan->attempt);
    if (strcmp(key, "epoch") == 0)
        return parse_number(value, INT64_MAX, &plan->epoch);
    if (strcmp(key, "node_rank") == 0)
        return parse_number(value, INT64_MAX, &plan->node_rank);
    if (strcmp(key, "uid") == 0)
        return take_id(value, &plan->uid);
    if (strcmp(key, "gid") == 0)
        return take_id(value, &plan->gid);
    if (strcmp(key, "group") == 0)
        return take_group(plan, value);
    if (strcmp(key, "cgroup") == 0)
        return take_cgroup(plan, value);
    if (strcmp(key, "mount") == 0)
        return take_path(value, plan->mounts, &plan->mount_count);
    if (strcmp(key, "mount_root") == 0)
        return take_path(value, plan->mount_roots, &plan->mount_root_count);
    if (strcmp(key, "image_cwd") == 0) {
        plan->image_cwd = value;
        return value[0] == '/';
    }
    if (strcmp(key, "run_as") == 0)
        return take_word(value, "self", "submitter", &plan->submitter);
    if (strcmp(key, "allow_root") == 0)
        return take_word(value, "no", "yes", &plan->allow_root);
    if (strcmp(key, "hold_ms") == 0)
        return take_ms(value, &plan->hold_ns);
    if (strcmp(key, "grace_ms") == 0)
        return take_ms(value, &plan->grace_ns);
    if (strcmp(key, "term_ms") == 0)
        return take_ms(value, &plan->term_ns);
    if (strcmp(key, "umask") == 0)
        return take_mask(value, &plan->mask);
    if (strcmp(key, "signal") == 0)
        return take_signal(value, &plan->signal);
    if (strcmp(key, "signal_to") == 0)
        return take_word(value, "main", "ranks", &plan->to_ranks);
    if (strcmp(key, "log_head_bytes") == 0)
        return parse_number(value, INT64_MAX / 2, &plan->log_head_bytes);
    if (strcmp(key, "log_ring_bytes") == 0)
        return parse_number(value, INT64_MAX / 2, &plan->log_ring_bytes);
    if (strcmp(key, "log_bytes_per_s") == 0)
        return parse_number(value, INT64_MAX / 2, &plan->log_bytes_per_s);
    return false;
}

static bool complete(const struct plan *plan)
{
    return plan->job_id != NULL && plan->cwd != NULL && plan->contact != NULL &&
           plan->argv[0] != NULL && plan->signal > 0 && plan->hold_ns > 0 &&
           plan->log_ring_bytes >= 4096 &&
           (plan->podman[0] == NULL) == (plan->podman_rm[0] == NULL);
}

static bool take_limits(struct plan *plan)
{
    for (char **text = plan->limit_texts; *text != NULL; text++)
        if (!soft_limit_take(&plan->limits, *text))
            return false;
    return true;
}

/* Records that may come any number of times: pointers into the text. */
struct list {
    const char *key;
    char ***values;
    size_t count;
};

static bool take_listed(struct list *lists, size_t count, char *record)
{
    for (size_t at = 0; at < count; at++) {
        size_t length = strlen(lists[at].key);
        if (strncmp(record, lists[at].key, length) != 0 || record[length] != '=')
            continue;
        (*lists[at].values)[lists[at].count++] = record + length + 1;
        return true;
    }
    return false;
}

const char *plan_read(int plan_fd, struct plan *plan)
{
    size_t length = 0;
    struct list lists[] = {{"arg", &plan->argv, 0},
                           {"soft_limit", &plan->limit_texts, 0},
                           {"env", &plan->env, 0},
                           {"podman", &plan->podman, 0},
                           {"podman_env", &plan->podman_env, 0},
                           {"podman_rm", &plan->podman_rm, 0}};
    size_t list_count = sizeof lists / sizeof *lists;
    memset(plan, 0, sizeof *plan);
    plan->uid = plan->gid = (uid_t)-1;
    plan->mask = 022;
    plan->text = slurp(plan_fd, &length);
    if (plan->text == NULL)
        return "cannot be read";
    for (size_t at = 0; at < list_count; at++) {
        /* No list can be longer than the file has bytes. */
        *lists[at].values = calloc(length / 2 + 1, sizeof **lists[at].values);
        if (*lists[at].values == NULL)
            return "no memory";
    }
    if (strcmp(plan->text, PLAN_VERSION) != 0)
        return "not a plan of version 1";
    char *record = plan->text + strlen(plan->text) + 1;
    for (; record < plan->text + length; record += strlen(record) + 1) {
        if (strcmp(record, "end") == 0)
            return !take_limits(plan) ? "a bad soft limit"
                   : complete(plan)   ? NULL
                                      : "a required record is missing";
        if (take_listed(lists, list_count, record))
            continue;
        char *equals = strchr(record, '=');
        if (equals == NULL)
            return "a record without =";
        *equals = '\0';
        size_t key_length = strlen(record);
        if (!take(plan, record, equals + 1))
            return "an unknown key or a bad value";
        /* take_cgroup cut the value in two: step over both halves. */
        bool cut = strcmp(record, "cgroup") == 0;
        record += key_length + 1;
        if (cut)
            record += strlen(record) + 1;
    }
    return "cut short (no end record)";
}
