/* The nodes of a step, and the number of tasks on each of them, as Slurm lays tasks out. Pure. */
#include "steps.h"

#include <stdio.h>
#include <string.h>

static int popcount(uint64_t bits)
{
    return __builtin_popcountll(bits);
}

static uint64_t all_gpus(const struct room *room)
{
    return room->gpus >= 64 ? ~0ull : (1ull << room->gpus) - 1;
}

static bool counts_exactly(const struct wish *wish)
{
    return (wish->flags & (EXACT | SHARES)) != 0;
}

/* A step that says nothing about GPUs has those of the job, and shares them with no other. */
static bool takes_all_gpus(const struct wish *wish)
{
    return wish->gpus_per_task + wish->gpus_per_node + wish->gpus == 0 && !(wish->flags & NO_GPUS);
}

/* Tasks that this node could take now; `ever`: if nothing else ran there. */
static int takes(const struct wish *wish, const struct room *room, bool ever)
{
    int most = wish->tasks_per_node > 0 ? (int)wish->tasks_per_node : MOST_TASKS;
    bool alone = ever || (wish->flags & SHARES);
    if (!alone && (room->whole > 0 || (!counts_exactly(wish) && room->used_cpus > 0)))
        return 0;
    if (room->cpus > 0 && !(wish->flags & OVERCOMMITS)) {
        int free = room->cpus - (alone ? 0 : room->used_cpus);
        int each = wish->cpus_per_task > 0 ? (int)wish->cpus_per_task : 1;
        most = free / each < most ? free / each : most;
    }
    int gpus = alone ? room->gpus : popcount(all_gpus(room) & ~room->used_gpus);
    if (wish->gpus_per_task > 0 && gpus / (int)wish->gpus_per_task < most)
        most = gpus / (int)wish->gpus_per_task;
    if (wish->gpus_per_node > 0 && gpus < (int)wish->gpus_per_node)
        most = 0;
    if (takes_all_gpus(wish) && gpus < room->gpus)
        most = 0;
    return most;
}

/* As many nodes of those that have room as it may have; their number. */
static int choose(const struct wish *wish, const struct room *rooms, bool ever, int chosen[],
                  int most[])
{
    int count = 0, sum = 0;
    int wanted = (int)(wish->nodes_max < wish->tasks ? wish->nodes_max : wish->tasks);
    for (uint32_t at = 0; at < wish->candidate_count && count < wanted; at++) {
        int node = wish->candidates[at], room = takes(wish, &rooms[node], ever);
        if (room < 1)
            continue;
        if (count >= (int)wish->nodes_min && sum >= (int)wish->tasks)
            break;
        chosen[count] = node;
        most[count++] = room;
        sum += room;
    }
    return count >= (int)wish->nodes_min && sum >= (int)wish->tasks ? count : 0;
}

static uint64_t pick_gpus(const struct wish *wish, const struct room *room, int tasks,
                          int *total_left)
{
    int wanted = -1;
    if (wish->flags & NO_GPUS)
        return 0;
    if (wish->gpus_per_task > 0)
        wanted = (int)wish->gpus_per_task * tasks;
    else if (wish->gpus_per_node > 0)
        wanted = (int)wish->gpus_per_node;
    uint64_t free = all_gpus(room) & ~((wish->flags & SHARES) ? 0 : room->used_gpus), taken = 0;
    if (wanted < 0 && wish->gpus > 0)
        wanted = *total_left < popcount(free) ? *total_left : popcount(free);
    if (wanted < 0)
        return all_gpus(room);
    for (int bit = 0; bit < 64 && popcount(taken) < wanted; bit++)
        taken |= free & (1ull << bit);
    *total_left -= popcount(taken);
    return taken;
}

/* In rounds, one task (or a plane) for each node that has room: even, as Slurm does without
 * CR_Pack_Nodes. */
static void deal(const struct wish *wish, int count, const int most[], int tasks[])
{
    uint32_t left = wish->tasks, chunk = wish->plane > 0 ? wish->plane : 1;
    for (int at = 0; at < count; at++)
        tasks[at] = 0;
    for (bool moved = true; left > 0 && moved;) {
        moved = false;
        for (int at = 0; at < count && left > 0; at++)
            for (uint32_t each = 0; each < chunk && left > 0 && tasks[at] < most[at]; each++) {
                tasks[at]++;
                left--;
                moved = true;
            }
    }
}

enum fit layout_fit(const struct wish *wish, const struct room *rooms, int node_count,
                    struct grant *grant, const char **why)
{
    int chosen[MOST_NODES], most[MOST_NODES], tasks[MOST_NODES];
    if (wish->nodes_min < 1 || wish->tasks < 1 || wish->tasks > MOST_TASKS ||
        wish->candidate_count > (uint32_t)node_count) {
        *why = "More processors requested than permitted";
        return NEVER;
    }
    if (wish->candidate_count < wish->nodes_min) {
        *why = "Node count specification invalid";
        return NEVER;
    }
    if (choose(wish, rooms, true, chosen, most) == 0) {
        *why = wish->gpus_per_task + wish->gpus_per_node > 0
                   ? "Invalid generic resource (gres) specification"
                   : "More processors requested than permitted";
        return NEVER;
    }
    int count = choose(wish, rooms, false, chosen, most);
    if (count == 0)
        return BUSY;
    deal(wish, count, most, tasks);
    int gpus_left = (int)wish->gpus;
    grant->count = 0;
    for (int at = 0; at < count; at++) {
        const struct room *room = &rooms[chosen[at]];
        int each = wish->cpus_per_task > 0 ? (int)wish->cpus_per_task : 1;
        int cpus = counts_exactly(wish) || room->cpus == 0 ? tasks[at] * each : room->cpus;
        grant->parts[grant->count++] = (struct part){
            .node = (uint16_t)chosen[at],
            .tasks = (uint16_t)tasks[at],
            .cpus = (uint32_t)cpus,
            .gpus = pick_gpus(wish, room, tasks[at], &gpus_left),
        };
    }
    if (wish->gpus > 0 && gpus_left > 0) {
        int have = 0;
        for (uint32_t at = 0; at < wish->candidate_count; at++)
            have += rooms[wish->candidates[at]].gpus;
        *why = "Invalid generic resource (gres) specification";
        return have < (int)wish->gpus ? NEVER : BUSY;
    }
    return FITS;
}

void grant_nodes(const struct who *who, const struct grant *grant, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t at = 0; at < grant->count && used < size; at++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", at > 0 ? "," : "",
                                 who->peers[grant->parts[at].node].name);
}

void layout_take(const struct wish *wish, const struct grant *grant, struct room *rooms, int sign)
{
    if (wish->flags & SHARES)
        return;
    for (uint32_t at = 0; at < grant->count; at++) {
        const struct part *part = &grant->parts[at];
        struct room *room = &rooms[part->node];
        room->used_cpus += sign * (int)part->cpus;
        if (!(wish->flags & EXACT))
            room->whole += sign;
        room->used_gpus = sign > 0 ? room->used_gpus | part->gpus : room->used_gpus & ~part->gpus;
    }
}
