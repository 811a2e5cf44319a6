/* The ids that a job may get. The agent repeats the master's word. A root-owned file on this host
 * decides, so that neither can invent a user. */
#include "shim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ATTEMPT_DIR is STATE_DIR/attempts/KEY; the map of this agent is STATE_DIR/users.map. */
static FILE *open_map(int dir_fd)
{
    struct stat info;
    int fd = openat(dir_fd, "../../users.map", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        fd = open(DLQ_USERS_MAP, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    bool trusted = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == 0 &&
                   (info.st_mode & 022) == 0;
    FILE *map = trusted ? fdopen(fd, "r") : NULL;
    if (map == NULL)
        close(fd);
    return map;
}

static bool listed(const char *list, gid_t id)
{
    while (*list != '\0') {
        char *end;
        unsigned long long entry = strtoull(list, &end, 10);
        if (end == list)
            return false;
        if (entry == id)
            return true;
        list = *end == ',' ? end + 1 : end;
    }
    return false;
}

/* A line is `uid:gid:group,group`; true when it is this user's and allows all of the plan. */
static bool allows(const char *line, const struct plan *plan)
{
    unsigned long long uid, gid;
    int used = 0;
    if (line[0] < '0' || line[0] > '9' || sscanf(line, "%llu:%llu:%n", &uid, &gid, &used) != 2 ||
        used == 0 || uid != plan->uid || gid != plan->gid)
        return false;
    for (size_t at = 0; at < plan->group_count; at++)
        if (plan->groups[at] != gid && !listed(line + used, plan->groups[at]))
            return false;
    return true;
}

static const char *check_submitter(int dir_fd, const struct plan *plan)
{
    if (plan->uid == 0 || plan->gid == 0)
        return "a submitter's job never runs with uid 0 or gid 0";
    for (size_t at = 0; at < plan->group_count; at++)
        if (plan->groups[at] == 0)
            return "a submitter's job never runs with group 0";
    FILE *map = open_map(dir_fd);
    if (map == NULL)
        return "no users map, or one that others than root may write";
    char line[8192];
    bool found = false;
    while (!found && fgets(line, sizeof line, map) != NULL)
        found = allows(line, plan);
    fclose(map);
    return found ? NULL : "uid, gid and groups are not those of the users map";
}

const char *users_check(int dir_fd, const struct plan *plan)
{
    if (plan->uid == (uid_t)-1 || plan->gid == (gid_t)-1)
        return "no uid or gid";
    if (plan->submitter)
        return check_submitter(dir_fd, plan);
    if (plan->uid != geteuid() || plan->gid != getegid())
        return "run_as self, but the ids are not the agent's own";
    if (plan->uid == 0 && !plan->allow_root)
        return "uid 0 without the development flag";
    return NULL;
}
